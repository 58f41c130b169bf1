"""Measure and write it down: python -m bench journal [--quick] [--store sqlite|postgres|all] [--out FILE]"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from bench import appending, disk, following, reading, starting, together
from bench.figure import Run

PAGE = Path(__file__).parents[1] / "docs/explanation/speed.md"


async def sqlite(run: Run) -> None:
    await appending.synced(run)
    await appending.unsynced(run)
    await appending.by_length(run)
    await together.groups(run, f"sqlite:///{run.folder}/groups.db", "sqlite")
    await together.processes(run)
    many, count = await reading.many_sessions(run)
    await reading.long_session(run)
    await reading.opening(run)
    await following.same_process(run)
    await following.other_process(run, f"sqlite:///{run.folder}/other.db", "SQLite", 0.015)
    await following.thousand(run)
    await disk.size(run)
    await disk.large_output(run)
    starting.imports(run)
    starting.commands(run, many, count)


async def postgres(run: Run) -> None:
    from tests.postgres import fresh_database

    await appending.postgres(run, fresh_database(durable=True))
    await together.groups(run, fresh_database(durable=True), "postgres")
    await following.other_process(run, fresh_database(durable=True), "PostgreSQL", 0.005)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", choices=["journal"])
    parser.add_argument("--quick", action="store_true", help="a rough look, in less than a minute")
    parser.add_argument("--store", choices=["sqlite", "postgres", "all"], default="all")
    parser.add_argument(
        "--out", type=Path, help="the page to write; docs/explanation/speed.md for a full run"
    )
    wanted = parser.parse_args()
    stores = ("sqlite", "postgres") if wanted.store == "all" else (wanted.store,)
    folder = Path(tempfile.mkdtemp(prefix="perdure-bench-"))
    run = Run(folder, wanted.quick)
    began = perf_counter()
    try:
        for store in stores:
            asyncio.run({"sqlite": sqlite, "postgres": postgres}[store](run))
    finally:
        shutil.rmtree(folder)
    seconds = perf_counter() - began
    print(f"{seconds:.0f} s", file=sys.stderr)
    out = wanted.out or (None if wanted.quick or wanted.store != "all" else PAGE)
    if out:
        from bench import page  # matplotlib takes longer to import than a quick look has time for

        page.write(run, out, seconds)
        print(f"written: {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
