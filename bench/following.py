"""From an append to whoever follows."""

from __future__ import annotations

import asyncio
import json
import sys
from array import array
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

from bench.bare import BareSqlite
from bench.figure import Figure, Run, shown
from bench.measure import Hop, quantile
from bench.sides import Agent, Rows
from perdure import journal
from perdure.events import RecordImported

ROOT = Path(__file__).parents[1]


async def same_process(run: Run) -> None:
    """From the call of append to the follower's hands, the sync included. The peer is a bare transaction in a thread
    and an event that wakes a task."""
    folder = run.folder / "follow"
    folder.mkdir()
    bare, rows, hop = BareSqlite(folder / "bare.db", "FULL"), Rows(), Hop()
    seen: dict[int, float] = {}
    async with await journal.open(f"sqlite:///{folder}/ours.db") as ours:
        agent = await Agent.begin(ours)
        await agent.append_many(60)

        async def follower() -> None:
            async for event in ours.follow(agent.session, after=agent.owned.upto):
                seen[event.seq] = perf_counter()

        following = asyncio.create_task(follower())
        await asyncio.sleep(0.05)
        took: list[float] = []
        peer: list[float] = []
        for _ in range(run.size(600, 100)):
            agent.prepare(1)
            began = perf_counter()
            last = await agent.append_next()
            while last not in seen:  # noqa: ASYNC110 (an event to wait for would itself take its time)
                await asyncio.sleep(0)
            took.append(seen[last] - began)
            peer.append(await _bare_follower(bare, rows, hop))
        following.cancel()
    hop.close()
    bare.close()
    run.latencies["follower, same process"] = took
    run.add(
        Figure(
            "append to follower, same process, p50", median(took), median(peer), "s", median(took), 0.001, "1 ms",
            "bare commit in a thread, then a wake",
            f"p99 {shown(quantile(took, 0.99), 's')}. From the call of append, so the sync is in it.",
        )
    )  # fmt: skip


async def _bare_follower(bare: BareSqlite, rows: Rows, hop: Hop) -> float:
    rows.prepare(1)
    these, woken = rows.next(), asyncio.Event()

    async def follower() -> float:
        await woken.wait()
        return perf_counter()

    following = asyncio.create_task(follower())
    await asyncio.sleep(0)
    began = perf_counter()
    await hop(lambda: bare.append(these))
    woken.set()
    return await following - began


async def other_process(run: Run, url: str, name: str, bound: float) -> None:
    """From the call of append in this process to the follower's hands in another, by the clock both share."""
    async with await journal.open(url) as ours:
        agent = await Agent.begin(ours)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.child", "follow", f"{url} {agent.session}", cwd=ROOT,
            stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout
        assert child.stdin
        await child.stdout.readline()
        began: dict[int, float] = {}
        commits: list[float] = []
        chance = Random(5)
        for _ in range(run.size(500, 100)):
            agent.prepare(1)
            at = perf_counter()
            began[await agent.append_next()] = at
            commits.append(perf_counter() - at)
            # At no rhythm, so that a poller is met at every moment of its rest.
            await asyncio.sleep(chance.uniform(0.005, 0.03))
        await asyncio.sleep(0.6)
        child.stdin.write(b"enough\n")
        seen = {int(seq): at for seq, at in json.loads(await child.stdout.readline())}
        child.stdin.close()
        await child.wait()
    took = [seen[seq] - at for seq, at in began.items()]
    run.latencies[f"follower, other process, {name}"] = took
    run.add(
        Figure(
            f"append to follower, other process, {name}, p50", median(took), None, "s", median(took), bound,
            f"{bound * 1e3:g} ms", "",
            f"p99 {shown(quantile(took, 0.99), 's')}. The append alone takes {shown(median(commits), 's')}.",
        )
    )  # fmt: skip


async def _follow(arguments: str) -> None:
    """Follow one session until told, then say when each event arrived."""
    url, session = arguments.rsplit(" ", 1)
    seen: list[tuple[int, float]] = []
    async with await journal.open(url) as ours:

        async def follower() -> None:
            async for event in ours.follow(session, after=(await ours.head(session)).upto):
                seen.append((event.seq, perf_counter()))

        following = asyncio.create_task(follower())
        await asyncio.sleep(0.2)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        following.cancel()
        print(json.dumps(seen), flush=True)


async def thousand(run: Run) -> None:
    """A thousand followers of one session, a hundred events a second: how late is the latest of them?"""
    followers, seconds = 1000, run.size(10, 3)
    late = array("d")
    began: dict[int, float] = {}
    async with await journal.open(f"sqlite:///{run.folder}/thousand.db") as ours:
        agent = await Agent.begin(ours)

        async def follower() -> None:
            async for event in ours.follow(agent.session, after=agent.owned.upto):
                late.append(perf_counter() - began[event.seq])

        tasks = [asyncio.create_task(follower()) for _ in range(followers)]
        await asyncio.sleep(1)
        start, seq, skipped = perf_counter(), agent.owned.upto, 0
        for number in range(seconds * 100):
            wait = start + number / 100 - perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            else:
                skipped += 1
            # Known beforehand: nobody else appends here, and a follower may be quicker than our own await.
            seq += 1
            began[seq] = perf_counter()
            await ours.append(agent.session, RecordImported(source="bench", data="x" * 200))
        rate = seconds * 100 / (perf_counter() - start)
        for _ in range(200):
            if len(late) == followers * seconds * 100:
                break
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
    if len(late) != followers * seconds * 100:
        raise RuntimeError(f"{followers * seconds * 100 - len(late)} events were not delivered")
    ordered = sorted(late)
    run.latencies["1,000 followers, same process"] = ordered[:: max(1, len(ordered) // 20_000)]
    run.add(
        Figure(
            "1,000 followers at 100 events/s, p99", quantile(ordered, 0.99), None, "s", quantile(ordered, 0.99), 0.1,
            "100 ms", "",
            f"p50 {shown(quantile(ordered, 0.5), 's')}, worst {shown(ordered[-1], 's')}; {rate:.0f} events/s were "
            f"appended, {len(ordered):,} delivered. Appender and followers share one event loop.",
        )
    )  # fmt: skip


WORK = {"follow": _follow}
