"""What one append costs."""

from __future__ import annotations

import asyncio

from bench.bare import BarePostgres, BareSqlite
from bench.figure import Figure, Run, shown
from bench.measure import Hop, Times, alternate
from bench.payload import APPENDS
from bench.sides import Agent, Direct, Rows, fill
from perdure import journal

BLOCK = 3 * APPENDS
WARM = 700
"""Appends before anything is timed, so that both logs have been through a checkpoint. Until then each commit makes
the log's file longer, which costs more than the commit."""


async def synced(run: Run) -> None:
    times = await _sqlite(run, "power", "FULL", blocks=run.size(120, 12))
    ours, direct, bare, _, via, noop = (t.p50 for t in times)
    hop = via - bare
    run.latencies["Perdure, synced"] = times[0].all
    run.latencies["bare driver, synced"] = times[2].all
    run.latencies["bare driver through a thread, synced"] = times[4].all
    run.add(
        Figure(
            "synced append, p50", ours, bare, "s", (ours - hop) / bare, 1.3,
            "1.3 × bare + a hop to the writer", "bare INSERT + UPDATE, one commit, FULL",
            f"One hop is {shown(hop, 's')}: what the same bare transaction takes longer when it is done in a thread "
            f"and awaited (p50 {shown(via, 's')}). A hop with nothing to do takes {shown(noop, 's')}, because neither "
            f"thread has gone to sleep in it. Taken out of ours it leaves {shown(ours - hop, 's')}. "
            f"The same appends committed by the store in the calling thread take {shown(direct, 's')}, "
            f"{direct / bare:.2f} times the bare driver: that is checksum, chain, laws, head and the list's index. "
            f"The sync alone is most of the bare figure on this machine, so what is above it is processor time.",
        )
    )  # fmt: skip


async def unsynced(run: Run) -> None:
    times = await _sqlite(run, "process", "NORMAL", blocks=run.size(160, 24))
    ours, direct, bare, insert, via, noop = (t.p50 for t in times)
    run.add(
        Figure(
            "unsynced append, p50", ours, insert, "s", ours / insert, 5, "5 × bare", "bare INSERT, commit",
            f"A bare INSERT and commit takes {shown(insert, 's')}, and with a head row beside it {shown(bare, 's')}. "
            f"The latter done in a thread and awaited takes {shown(via, 's')}, which is {via / insert:.1f} times the "
            f"bare INSERT before Perdure has done anything; an empty hop takes {shown(noop, 's')}. Committed by the "
            f"store in the calling thread, our append takes {shown(direct, 's')}: {direct / insert:.1f} times.",
        )
    )  # fmt: skip


async def _sqlite(run: Run, durability: str, synchronous: str, blocks: int) -> list[Times]:
    """Ours, ours in the calling thread, bare, bare INSERT alone, bare through a thread, an empty hop."""
    folder = run.folder / durability
    folder.mkdir()
    bare = BareSqlite(folder / "bare.db", synchronous)
    alone = BareSqlite(folder / "alone.db", synchronous)
    away = BareSqlite(folder / "away.db", synchronous)
    hop = Hop()
    rows = [Rows() for _ in range(3)]
    # Each in a file of its own, so that the appends of one do not lengthen the log of another.
    async with (
        await journal.open(f"sqlite:///{folder}/ours.db", durability=durability) as ours,
        await journal.open(f"sqlite:///{folder}/direct.db", durability=durability) as by_hand,
    ):
        agent, direct = await Agent.begin(ours), await Direct.begin(by_hand)

        def prepare(size: int) -> None:
            agent.prepare(size)
            direct.prepare(size)
            for side in rows:
                side.prepare(size)

        def through() -> asyncio.Future[None]:
            these = rows[2].next()
            return hop(lambda: away.append(these))

        sides = [
            agent.append, direct.append, rows[0].into(bare.append), rows[1].into(alone.insert), through,
            lambda: hop(lambda: None),
        ]  # fmt: skip
        await alternate(sides, blocks=WARM // BLOCK, size=BLOCK, before=prepare)
        times = await alternate(sides, blocks=blocks, size=BLOCK, before=prepare)
    hop.close()
    for each in (bare, alone, away):
        each.close()
    return times


async def postgres(run: Run, url: str) -> None:
    bare, away, piped, waking = (BarePostgres(url, table) for table in ("bare", "away", "piped", "waking"))
    hop = Hop()
    rows = [Rows() for _ in range(4)]
    async with await journal.open(url) as ours:
        agent, direct = await Agent.begin(ours), await Direct.begin(ours)

        def prepare(size: int) -> None:
            agent.prepare(size)
            direct.prepare(size)
            for side in rows:
                side.prepare(size)

        def through() -> asyncio.Future[None]:
            these = rows[1].next()
            return hop(lambda: away.append(these))

        sides = [
            agent.append, direct.append, rows[0].into(bare.append), through, rows[2].into(piped.pipelined),
            rows[3].into(waking.notifying),
        ]  # fmt: skip
        times = await alternate(sides, blocks=run.size(80, 10), size=BLOCK, before=prepare)
    hop.close()
    for each in (bare, away, piped, waking):
        each.close()
    took, stored, raw, via, pipelined, notified = (t.p50 for t in times)
    run.latencies["Perdure, PostgreSQL"] = times[0].all
    run.latencies["bare driver, PostgreSQL"] = times[2].all
    run.add(
        Figure(
            "PostgreSQL append, p50", took, raw, "s", took / raw, 1.5, "1.5 × bare",
            "bare psycopg INSERT + UPDATE, one commit",
            f"Committed in the calling thread ours takes {shown(stored, 's')} ({stored / raw:.2f} times). The bare "
            f"transaction takes {shown(via, 's')} when it is done in a thread and awaited, and {shown(notified, 's')} "
            f"({notified / raw:.2f} times) if it also wakes those who follow: a NOTIFY is a round trip, and the server lets only "
            "one transaction that holds one commit at a time. Ours wakes in every commit, and locks and reads the session's row "
            "before it writes, because another process may have moved it. Statements are sent together already; in the bare "
            f"driver that gains nothing ({shown(pipelined, 's')}), for psycopg's pipeline costs more processor time than the "
            "round trips over a local socket that it saves.",
        )
    )  # fmt: skip


async def by_length(run: Run) -> None:
    """Whether an append is slower because much has happened before. Unsynced, where nothing hides it."""
    lengths = [10, 1_000, 100_000] if not run.quick else [10, 1_000, 10_000]
    if not run.quick:
        lengths[1:1] = [100]
        lengths[3:3] = [10_000]
    folder = run.folder / "length"
    folder.mkdir()
    async with await journal.open(f"sqlite:///{folder}/ours.db", durability="process") as ours:
        agents = []
        for length in lengths[1:]:
            owned = await ours.take(await ours.create())
            upto = await ours.write(
                lambda o=owned, n=length: fill(ours, o.session, n, epoch=o.epoch, head=o.upto)  # type: ignore[misc]
            )
            owned.upto = upto
            agents.append(Agent(ours, owned))
        agents.insert(0, await _short(ours))
        times = [Times() for _ in lengths]
        for number in range(run.size(120, 30) + 1):
            agents[0] = await _short(ours)
            for agent in agents:
                agent.prepare(BLOCK)
            taken = await alternate(
                [agent.append for agent in agents], blocks=1, size=APPENDS, warm=number == 0
            )
            for all_of_it, block in zip(times, taken, strict=True):
                all_of_it.blocks += block.blocks
    medians = [t.p50 for t in times]
    run.by_length["Perdure"] = list(zip(map(float, lengths), medians, strict=True))
    run.add(
        Figure(
            f"append p50 at {lengths[-1]:,} events against at 10", medians[-1], medians[0], "s",
            medians[-1] / medians[0], 1.1, "1.1 × at 10", "at 10 events",
            "Unsynced, in one store, in turns. "
            + ", ".join(f"{length:,} events: {shown(m, 's')}" for length, m in zip(lengths, medians, strict=True)),
        )
    )  # fmt: skip


async def _short(ours: journal.Journal) -> Agent:
    """An agent whose session has nine events: the owner's taking, and a turn."""
    agent = await Agent.begin(ours)
    await agent.append_many(APPENDS)
    return agent
