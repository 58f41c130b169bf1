"""The page that keeps a run: which machine, what was promised, what was measured, and why where it was not reached."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import apsw

from bench import plots
from bench.figure import Figure, Run, shown

_TITLES = (
    (plots.LATENCY, "How long an append takes, ours and the bare driver's"),
    (plots.LENGTH, "An append does not know how much has happened before"),
    (plots.RATE, "Sessions at once share a commit"),
    (plots.FOLLOWING, "From an append to its followers"),
)


def write(run: Run, path: Path, seconds: float) -> None:
    plots.draw(run, path.with_suffix(""))
    path.write_text(text(run, path, seconds), "utf-8")


def text(run: Run, path: Path, seconds: float) -> str:
    missed = [figure for figure in run.figures if not figure.met]
    promised = [figure for figure in run.figures if figure.promised]
    told = [figure for figure in run.figures if figure.met and figure.why]
    size = "the quick size, which shows only roughly" if run.quick else "the full size"
    return f"""# How fast

Written by `python -m bench journal` on {time.strftime("%Y-%m-%d", time.gmtime())}, in {size}; it took {seconds / 60:.0f} minutes. Do not edit: run it again.

{_machine()}

Every figure was measured in turns with the raw driver, in small blocks, in the same run on the same disk, so that whatever else
the machine did is in both. Figures are medians. A ratio is the median of what the blocks say, each divided by its neighbour, so it
need not be the quotient of the medians beside it; where a limit allows for a hop, the hop has been taken out of the ratio. Trust
the ratios; the times are those of this machine on that day.

What is appended is an agent's turn: a user's message of 200 bytes, a reply of 400 bytes with a tool call, a tool's result of 2 KB,
and the four small facts that the grammar asks for between them: seven facts in six appends, each durable before the next. The bare
driver is given the very same bytes, as many rows to a commit, with one head row to update: no checksum, no chain, no index.

{len(promised) - len(missed)} of {len(promised)} promised figures are reached.

{_table(run.figures)}

{_pictures(path)}
## What is not reached, and why

{_paragraphs(missed) or "Everything is."}

## What one should know about the others

{_paragraphs(told)}
"""


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    load = os.getloadavg()[2]
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GB; {platform.system()} {platform.release().split('-')[0]}; "
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}{_postgres()}. "
        f"The load over the last quarter of an hour was {load:.1f}."
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _postgres() -> str:
    try:
        from importlib.metadata import version

        return f", psycopg {version('psycopg')}"
    except ImportError:
        return ""


def _table(figures: list[Figure]) -> str:
    rows = ["| What | Perdure | Beside it | Ratio | Limit | |", "|---|---|---|---|---|---|"]
    for f in figures:
        beside = "" if f.theirs is None else f"{shown(f.theirs, f.unit)} ({f.peer})"
        # A plain figure is held against a plain limit; what it is of the other side is only told.
        compared = f.value if f.value != f.ours else f.ratio
        ratio = "" if compared is None else f"{compared:.2f}"
        rows.append(
            f"| {f.name} | {shown(f.ours, f.unit)} | {beside} | {ratio} | {f.limit} | {_verdict(f)} |"
        )
    return "\n".join(rows)


def _verdict(figure: Figure) -> str:
    if not figure.promised:
        return ""
    return "reached" if figure.met else "**not reached**"


def _pictures(path: Path) -> str:
    return "".join(f"![{title}]({path.stem}/{name})\n\n" for name, title in _TITLES)


def _paragraphs(figures: list[Figure]) -> str:
    # Figures that share an explanation share a paragraph.
    by_why: dict[str, list[Figure]] = {}
    for figure in figures:
        by_why.setdefault(figure.why, []).append(figure)
    return "\n\n".join(
        " ".join(
            f"**{_capital(f.name)}**: {f.value:.3g} against {f.bound:g}."
            if f.unit == "x" or f.value != f.ours
            else f"**{_capital(f.name)}**: {shown(f.value, f.unit)}."
            for f in them
        )
        + f" {why}"
        for why, them in by_why.items()
    )


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
