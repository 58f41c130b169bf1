"""What it costs to begin: importing, and the commands people wait for. Fresh interpreters, by turns."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.figure import Figure, Run, shown

_TIMED = "import time; began = time.perf_counter(); import {}; print(time.perf_counter() - began)"
_STANDARD = "sqlite3, json, asyncio"


def imports(run: Run) -> None:
    what = {
        "surface": "perdure",
        "journal": "perdure.journal",
        "sqlite": "perdure.journal.sqlite",
        "peer": _STANDARD,
    }
    times: dict[str, list[float]] = {name: [] for name in what}
    for number in range(run.size(41, 9)):
        for name, modules in what.items():
            said = subprocess.run(
                [sys.executable, "-I", "-c", _TIMED.format(modules)], capture_output=True, check=True, encoding="ascii"
            )  # fmt: skip
            if number:  # the first one may still have had to compile
                times[name].append(float(said.stdout))
    medians = {name: median(each) for name, each in times.items()}
    run.add(
        *(
            Figure(
                name, medians[key], medians["peer"], "s", medians[key] / medians["peer"], bound,
                f"1.5 × `import {_STANDARD}`" if bound < inf else "", f"`import {_STANDARD}`", why,
            )
            for name, key, bound, why in (
                ("`import perdure`", "surface", 1.5, "Measured inside the interpreter, so that its own start dilutes nothing."),
                ("`import perdure.journal`", "journal", inf, "What a program imports that opens a store; the promise is about `import perdure`."),
                ("`import perdure.journal.sqlite`", "sqlite", inf, "And what is imported once the store it opens is an SQLite file."),
            )
        )
    )  # fmt: skip


def commands(run: Run, many: Path, count: int) -> None:
    perdure = Path(sys.executable).with_name("perdure")
    home = run.folder / "home"
    home.mkdir()
    environ = {**os.environ, "PERDURE_HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    wanted: dict[str, Sequence[str | Path]] = {
        "version": [perdure, "--version"],
        "list": [perdure, "--db", f"sqlite:///{many}", "sessions", "list"],
        "python": [sys.executable, "-I", "-c", "pass"],
    }
    times: dict[str, list[float]] = {name: [] for name in wanted}
    for number in range(run.size(21, 6)):
        for name, command in wanted.items():
            began = perf_counter()
            done = subprocess.run(command, env=environ, cwd=home, capture_output=True, check=False)
            took = perf_counter() - began
            if done.returncode:
                raise RuntimeError(f"{name}: {done.stderr.decode()}")
            if number:
                times[name].append(took)
    version, listed, python = (median(times[name]) for name in wanted)
    run.add(
        Figure(
            "`perdure --version`", version, python, "s", version, 0.15, "0.15 s", "an interpreter that does nothing",
            "The whole process, from its start to its end.",
        ),
        Figure(
            f"`perdure sessions list` on {count:,} sessions", listed, python, "s", listed, 0.35, "0.35 s",
            "an interpreter that does nothing",
            f"Of this {shown(python, 's')} is the interpreter's own start and end.",
        ),
    )  # fmt: skip
