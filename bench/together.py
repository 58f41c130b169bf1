"""Many at once: sessions of one process that share a commit, and processes that share a file."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep

import apsw

from bench.bare import BarePostgres, BareSqlite
from bench.figure import Figure, Run, shown
from bench.payload import APPENDS
from bench.sides import Agent, Bare, Rows
from perdure import journal
from perdure.journal.store import Append, Appended

ROOT = Path(__file__).parents[1]


async def groups(run: Run, url: str, store: str) -> None:
    """The rate of 8 and 64 sessions at once, beside the rate of the same appends one commit each."""
    rounds = run.size(6, 2)
    bare: BareSqlite | BarePostgres
    if store == "sqlite":
        bare = BareSqlite(run.folder / "groups-bare.db", "FULL")
    else:
        bare = BarePostgres(url, "groups")
    sizes = (1, 2, 4, 8, 16, 32, 64) if not run.quick else (1, 8, 64)
    rates: dict[int, list[float]] = {size: [] for size in sizes}
    raw: list[float] = []
    at_rest: list[float] = []
    shared: dict[int, float] = {}
    async with await journal.open(url) as ours:
        agents = await asyncio.gather(*(Agent.begin(ours) for _ in range(64)))
        await asyncio.gather(*(agent.append_many(2 * APPENDS) for agent in agents))
        rows = Rows()
        _bare_rate(bare, rows, 600)
        for _ in range(rounds):
            for size in sizes:
                each = max(APPENDS, run.size(1800, 900) // size // APPENDS * APPENDS)
                rates[size].append(await _rate(agents[:size], each))
            raw.append(_bare_rate(bare, rows, run.size(600, 300)))
            at_rest.append(await _cpu_per_append(agents, 2 * APPENDS))
        for size in (8, 64):
            shared[size] = await _appends_to_a_commit(ours, agents[:size])
    bare.close()
    slowly = await _on_a_slow_disk(run) if store == "sqlite" else ""
    # Rates of the same round are divided by one another: what else the machine did is in both.
    times = {size: median(r / one for r, one in zip(rates[size], rates[1], strict=True)) for size in sizes}
    against_raw = {size: median(r / one for r, one in zip(rates[size], raw, strict=True)) for size in sizes}
    run.rates[f"Perdure, {_name(store)}"] = [(size, median(rates[size])) for size in sizes]
    run.rates[f"bare driver, {_name(store)}, one commit each"] = [(size, median(raw)) for size in sizes]
    cpu = median(at_rest)
    one = median(rates[1])
    for size, bound in ((8, 4.0), (64, 6.0)):
        run.add(
            Figure(
                f"{size} sessions at once, {_name(store)}", median(rates[size]), one, "/s",
                times[size], bound, f"{bound:g} × the rate of one commit per append", "the same appends, one commit each",
                f"The bare driver, one commit each, makes {shown(median(raw), '/s')}: {size} sessions at once make "
                f"{against_raw[size]:.2f} times that. A commit holds {shared[size]:.1f} appends. "
                f"Of the {shown(1 / median(rates[size]), 's')} that each then takes, "
                f"{shown(cpu, 's')} are its own work. Sharing a commit saves the sync and the hop, not the work: with 64 at once "
                f"an append takes {shown(cpu, 's')} of processor time in this process (of one core, for Python runs one "
                f"thread at a time), so no number of sessions can make more than {shown(1 / cpu, '/s')}, which is "
                f"{1 / cpu / one:.1f} times the {shown(one, '/s')} of one commit per append here. The slower the sync, the more there is to share.{slowly}",
                at_least=True,
            )
        )  # fmt: skip


async def _appends_to_a_commit(ours: journal.Journal, agents: list[Agent]) -> float:
    commits = 0
    commit = ours.store.commit

    def counted(appends: Sequence[Append]) -> list[Appended | Exception]:
        nonlocal commits
        commits += 1
        return commit(appends)

    ours.store.commit = counted  # type: ignore[method-assign]
    each = 10 * APPENDS
    await _rate(agents, each)
    ours.store.commit = commit  # type: ignore[method-assign]
    return each * len(agents) / commits


async def _on_a_slow_disk(run: Run) -> str:
    """The same with a sync of two milliseconds more, as disks have it that are not this one."""
    disk = _SlowDisk()
    url = f"sqlite:///{run.folder}/slow.db"
    async with await journal.open(url, vfs=disk.name) as ours:
        agents = await asyncio.gather(*(Agent.begin(ours) for _ in range(64)))
        one = await _rate(agents[:1], run.size(300, 60))
        eight, many = await _rate(agents[:8], run.size(120, 30)), await _rate(agents, run.size(48, 12))
    disk.unregister()
    return (
        f" With {_SLOWER * 1e3:g} ms added to every sync, by a layer under SQLite, 8 sessions make {eight / one:.1f} times and "
        f"64 make {many / one:.1f} times the rate of one commit per append."
    )


_SLOWER = 0.002


class _SlowDisk(apsw.VFS):
    name = "bench-slow"

    def __init__(self) -> None:
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 (SQLite's name)
        return _SlowFile("", name, flags)


class _SlowFile(apsw.VFSFile):
    def xSync(self, flags: int) -> None:  # noqa: N802 (SQLite's name)
        sleep(_SLOWER)
        super().xSync(flags)


def _name(store: str) -> str:
    return {"sqlite": "SQLite", "postgres": "PostgreSQL"}[store]


async def _rate(agents: list[Agent], each: int) -> float:
    for agent in agents:
        agent.prepare(each)
    began = perf_counter()
    await asyncio.gather(*(agent.append_many(each) for agent in agents))
    return each * len(agents) / (perf_counter() - began)


async def _cpu_per_append(agents: list[Agent], each: int) -> float:
    for agent in agents:
        agent.prepare(each)
    began = process_time()
    await asyncio.gather(*(agent.append_many(each) for agent in agents))
    return (process_time() - began) / (each * len(agents))


def _bare_rate(bare: Bare, rows: Rows, count: int) -> float:
    rows.prepare(count)
    write = rows.into(bare.append)
    began = perf_counter()
    for _ in range(count):
        write()
    return count / (perf_counter() - began)


async def processes(run: Run) -> None:
    """Four processes on one file against one on it, by turns."""
    url = f"sqlite:///{run.folder}/processes.db"
    async with await journal.open(url):
        pass
    seconds = run.size(3, 1)
    alone: list[float] = []
    four: list[float] = []
    slowest = 0.0
    longest_alone = 0.0
    slowly = await _processes_on_a_slow_disk(run)
    async with Children(url, 4, _appending) as children:
        await children.all(0.5)
        for _ in range(run.size(5, 2)):
            (count, worst) = (await children.some(1, seconds))[0]
            alone.append(count / seconds)
            longest_alone = max(longest_alone, worst)
            answers = await children.all(seconds)
            four.append(sum(count for count, _ in answers) / seconds)
            slowest = max(slowest, *(worst for _, worst in answers))
    ratio = median(f / one for f, one in zip(four, alone, strict=True))
    run.add(
        Figure(
            "four processes on one file, rate", median(four), median(alone), "/s", ratio, 1.0,
            "the rate of one process", "one process",
            "Only one process writes at a time, and each hands the file on to the next after every commit: what can be "
            "gained is that others prepare meanwhile, on two cores; what is lost is that each must read what the others "
            "have changed, and that the next writer has to be woken while nobody writes. Where a sync takes longer than "
            f"that, it does not show: {slowly}",
            at_least=True,
        ),
        Figure(
            "four processes on one file, worst append", slowest, longest_alone, "s", slowest, 0.25, "250 ms",
            "one process",
            "The worst is of the disk as much as of the queue: the worst append of one process alone stands beside it.",
        ),
    )  # fmt: skip


async def _processes_on_a_slow_disk(run: Run) -> str:
    url = f"sqlite:///{run.folder}/processes-slow.db"
    async with await journal.open(url):
        pass
    async with Children(url, 4, _appending_slowly) as children:
        await children.all(0.5)
        (alone, _) = (await children.some(1, run.size(3, 1)))[0]
        four = sum(count for count, _ in await children.all(run.size(3, 1)))
    return f"with {_SLOWER * 1e3:g} ms added to every sync four processes make {four / alone:.2f} times the rate of one."


class Children:
    """Processes that wait for a number of seconds on their standard input, and answer with a line of JSON."""

    def __init__(self, url: str, count: int, work: Callable[[str], Awaitable[None]]) -> None:
        self._url, self._count, self._work = url, count, work.__name__.lstrip("_")
        self._running: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Children:
        for _ in range(self._count):
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.child", self._work, self._url, cwd=ROOT,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            self._running.append(child)
        for child in self._running:
            await self._line(child)
        return self

    async def all(self, seconds: float) -> list[tuple[int, float]]:
        return await self.some(self._count, seconds)

    async def some(self, count: int, seconds: float) -> list[tuple[int, float]]:
        for child in self._running[:count]:
            assert child.stdin
            child.stdin.write(f"{seconds}\n".encode())
        return [tuple(json.loads(await self._line(child))) for child in self._running[:count]]

    async def _line(self, child: asyncio.subprocess.Process) -> bytes:
        assert child.stdout
        line = await child.stdout.readline()
        if not line:
            raise RuntimeError("a process of the benchmark has died; what it said stands above")
        return line

    async def __aexit__(self, *_: object) -> None:
        for child in self._running:
            assert child.stdin
            child.stdin.close()
        for child in self._running:
            await child.wait()


async def _appending_slowly(url: str) -> None:
    disk = _SlowDisk()
    await _appending(url, disk.name)


async def _appending(url: str, vfs: str | None = None) -> None:
    """What each of the processes does: append for so many seconds, answer how many it made and how long the worst took."""
    async with await journal.open(url, vfs=vfs) as ours:
        agent = await Agent.begin(ours)
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            count, worst = 0, 0.0
            until = perf_counter() + float(line)
            while (began := perf_counter()) < until:
                if not count % 60:
                    agent.prepare(60)
                    began = perf_counter()
                await agent.append()
                worst = max(worst, perf_counter() - began)
                count += 1
            print(json.dumps([count, worst]), flush=True)


WORK = {"appending": _appending, "appending_slowly": _appending_slowly}
