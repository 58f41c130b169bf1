"""Reading what is there, when there is much of it."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import apsw
import msgspec

from bench.figure import Figure, Run, shown
from bench.measure import Side, Times, alternate
from bench.payload import FACTS
from bench.sides import fill, handed_in
from perdure import events as e
from perdure import journal
from perdure.events import Event, MessageSent, SessionCreated, Text
from perdure.journal.names import new_id
from perdure.journal.sqlite import SqliteStore
from perdure.journal.store import Append, RawEvent

ROOT = Path(__file__).parents[1]
_HALF = 1 << 32


async def long_session(run: Run) -> None:
    """All that is asked of one session of 100,000 events."""
    path, length = run.folder / "long.db", run.size(100_000, 20_000)
    async with await journal.open(f"sqlite:///{path}", durability="process") as ours:
        owned = await ours.take(await ours.create(SessionCreated(session="", title="A long session")))
        head = await ours.write(lambda: fill(ours, owned.session, length, epoch=owned.epoch, head=owned.upto))
        short = await ours.take(await ours.create())
        await ours.write(lambda: fill(ours, short.session, 10_000, epoch=short.epoch, head=short.upto))
    async with await journal.open(f"sqlite:///{path}") as ours:
        raw = _raw(path)
        await _last(run, ours, raw, owned.session, head)
        await _all(run, ours, raw, short.session)
        raw.close()
        for name, at in (("at the end", head), ("in the middle", 2 + head // FACTS // 2 * FACTS)):
            await _fork(run, ours, path, owned.session, at, name, head)


async def _last(run: Run, ours: journal.Journal, raw: apsw.Connection, session: str, head: int) -> None:
    low = _stretch(ours, session) * _HALF

    def theirs() -> None:
        sql = "SELECT data FROM perdure_events WHERE id > ? AND id <= ? ORDER BY id DESC LIMIT 50"
        raw.execute(sql, (low, low + head)).fetchall()

    took, peer = await alternate(
        [lambda: ours.last(session, limit=50), theirs], blocks=run.size(30, 10), size=10
    )
    run.add(
        Figure(
            f"last 50 events of {head:,}", took.p50, peer.p50, "s", took.p50, 0.002, "2 ms", "the rows alone, not decoded"
        )
    )  # fmt: skip


async def _all(run: Run, ours: journal.Journal, raw: apsw.Connection, session: str) -> None:
    """10,000 events, against fetching their rows and decoding them with the fastest decoder there is."""
    import orjson

    low = _stretch(ours, session) * _HALF
    decode = msgspec.json.Decoder(Event).decode

    def rows() -> apsw.Cursor:
        sql = "SELECT data FROM perdure_events WHERE id > ? AND id < ? ORDER BY id"
        return raw.execute(sql, (low, low + _HALF))

    async def streamed() -> list[Event]:
        return [event async for event in ours.events(session)]

    async def paged() -> list[Event]:
        events: list[Event] = []
        more = True
        while more:
            page = await ours.read(session, after=events[-1].seq if events else 0, limit=20_000)
            events += page.events
            more = page.more
        return events

    def typed() -> None:
        held.append([decode(row[0]) for row in rows()])
        held.clear()

    def dicts() -> None:
        held.append([orjson.loads(row[0]) for row in rows()])
        held.clear()

    def fetched() -> None:
        for _ in rows():
            pass

    held: list[list[Any]] = []
    sides: list[Side] = [streamed, paged, typed, dicts, fetched]
    times = await alternate(sides, blocks=run.size(20, 6), size=1)
    in_one, in_pages, by_msgspec, by_orjson, only_fetched = (t.p50 for t in times)
    decoded = times[2] if by_msgspec < by_orjson else times[3]
    fastest = decoded.p50
    peer = f"fetch + {'msgspec' if fastest == by_msgspec else 'orjson'}"
    note = (
        f"Fetching alone takes {shown(only_fetched, 's')}; with msgspec into our types {shown(by_msgspec, 's')}, with "
        f"orjson into dicts {shown(by_orjson, 's')}."
    )
    run.add(
        Figure(
            "reading 10,000 events, in large pages", in_pages, fastest, "s", _paired(times[1], decoded), 1.2,
            "1.2 × fetch + fastest decoder", peer, note,
        ),
        Figure(
            "reading 10,000 events, one by one", in_one, fastest, "s", _paired(times[0], decoded), 1.2,
            "1.2 × fetch + fastest decoder", peer,
            f"{note} `events()` reads smaller pages and hands every event through `async for`, in a loop that has "
            f"other things to do as well; `read(limit=20_000)` takes {shown(in_pages, 's')}.",
        ),
    )  # fmt: skip
    payload = sum(len(row[0]) for row in rows())
    gc.collect()
    tracemalloc.start()
    events = await paged()
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(events) >= 10_000
    del events
    gc.collect()
    tracemalloc.start()
    as_dicts = [orjson.loads(row[0]) for row in rows()]
    theirs, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del as_dicts
    run.add(
        Figure(
            "10,000 events in memory", peak, theirs, "B", peak / payload, 1.9, "1.9 × the payload", "orjson's dicts",
            f"The payload is {shown(payload, 'B')} of stored JSON. Counted by tracemalloc at its peak, which is exact for "
            f"what Python allocates and the same in every run, where the process's resident size also shows what earlier "
            f"measurements left behind. Held afterwards: {shown(size, 'B')}.",
        )
    )  # fmt: skip


def _raw(path: Path) -> apsw.Connection:
    """With the cache that our own connections have."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA cache_size = -16000")
    return db


def _paired(ours: Times, theirs: Times) -> float:
    """The median of what each round says."""
    return median(median(a) / median(b) for a, b in zip(ours.blocks, theirs.blocks, strict=True))


def _stretch(ours: journal.Journal, session: str) -> int:
    stored = ours.store.session(session)
    assert stored
    return stored.stretch


async def _fork(
    run: Run, ours: journal.Journal, path: Path, session: str, at: int, name: str, head: int
) -> None:
    count = run.size(200, 50)
    took: list[float] = []
    before = _size(path)
    for _ in range(count):
        began = perf_counter()
        await ours.fork(session, at=at)
        took.append(perf_counter() - began)
    each = (_size(path) - before) / count
    run.add(
        Figure(
            f"fork of a session of {head:,} events, {name}, p50", median(took), None, "s", median(took), 0.002, "2 ms", "",
            "With the commit of its first fact, synced.",
        ),
        Figure(
            f"fork of a session of {head:,} events, {name}, size", each, None, "B", each, 8192, "8 kB", "",
            f"What the file grew by, divided by {count} forks: rows, indexes and slack.",
        ),
    )  # fmt: skip


def _size(path: Path) -> int:
    """Of the database and what is in its log, without either's slack at the end."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    pages, size = (int(db.execute(f"PRAGMA {what}").fetchone()[0]) for what in ("page_count", "page_size"))  # type: ignore[index]
    db.close()
    return pages * size


async def many_sessions(run: Run) -> tuple[Path, int]:
    """The list of 100,000 sessions. The store stays, for the commands that list it."""
    path, count = run.folder / "many.db", run.size(100_000, 10_000)
    chance = Random(3)
    async with await journal.open(f"sqlite:///{path}", durability="process") as ours:
        for start in range(0, count, 1000):
            batch = []
            for number in range(start, min(start + 1000, count)):
                id = new_id()
                born = SessionCreated(
                    session=id, workspace="/home/someone/project", project_key=f"p{number % 50}"
                )
                asked = MessageSent(
                    parts=(Text(f"Please look into number {chance.randrange(10**9)} for me"),)
                )
                batch.append(handed_in(Append(id, (born, asked), create=True)))
            await ours.write(ours.store.commit, batch)
    async with await journal.open(f"sqlite:///{path}") as ours:
        raw = _raw(path)

        def theirs() -> None:
            sql = "SELECT id, head, folded FROM perdure_sessions ORDER BY updated_at DESC, id DESC LIMIT 50"
            raw.execute(sql).fetchall()

        took, peer = await alternate([ours.sessions, theirs], blocks=run.size(40, 10), size=10)
        raw.close()
    run.add(
        Figure(
            f"newest 50 of {count:,} sessions", took.p50, peer.p50, "s", took.p50, 0.001, "1 ms",
            "the rows alone, not decoded",
        )
    )  # fmt: skip
    return path, count


async def opening(run: Run) -> None:
    """Opening a store of 1 GB: after it was closed, and after its process was killed with a full log."""
    path, size = run.folder / "large.db", run.size(1 << 30, 100 << 20)
    await asyncio.to_thread(_make_large, path, size)

    async def ours() -> float:
        began = perf_counter()
        opened = await journal.open(f"sqlite:///{path}")
        took = perf_counter() - began
        await opened.close()
        return took

    def bare() -> float:
        began = perf_counter()
        db = apsw.Connection(str(path))
        db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        took = perf_counter() - began
        db.close()
        return took

    await ours()
    warm, cold, theirs, killed = [], [], [], []
    for _ in range(run.size(15, 5)):
        warm.append(await ours())
        theirs.append(bare())
        _forget(path)
        cold.append(await ours())
    for _ in range(run.size(5, 2)):
        await asyncio.to_thread(_write_and_die, path)
        log = path.with_name(path.name + "-wal").stat().st_size
        killed.append(await ours())
    real = path.stat().st_size
    run.add(
        Figure(
            f"opening a store of {shown(real, 'B')}", median(warm), median(theirs), "s", median(warm), 0.05, "50 ms",
            "opening with the raw driver",
            f"With none of the file in the system's cache: {shown(median(cold), 's')}. After its process was killed and left "
            f"a log of {shown(log, 'B')}, which SQLite has to read: {shown(median(killed), 's')}.",
        )
    )  # fmt: skip


def _make_large(path: Path, size: int) -> None:
    """Whole sessions with real rows: one is made through the front door and copied under other names."""
    from perdure.journal.clock import SystemClock

    length = 20_000

    async def first() -> str:
        async with await journal.open(f"sqlite:///{path}", durability="process") as ours:
            owned = await ours.take(await ours.create())
            await ours.write(lambda: fill(ours, owned.session, length, epoch=owned.epoch, head=owned.upto))
            return owned.session

    session = asyncio.run(first())
    store = SqliteStore(path, SystemClock(), durability="process")
    stored = store.session(session)
    assert stored
    rows = store.seals(stored.stretch, 0, stored.head, stored.head)
    stretch = stored.stretch
    while path.stat().st_size < size:
        stretch += 1
        store.receive((RawEvent(stretch, *row) for row in rows), ())
        stored.id, stored.stretch = new_id(), stretch
        store.receive_session(stored, {})
    store.close()


def _write_and_die(path: Path) -> None:
    subprocess.run([sys.executable, "-m", "bench.child", "die", str(path)], cwd=ROOT, check=False)


async def _die(path: str) -> None:
    """Write 12 MB and be gone without closing anything."""
    ours = await journal.open(f"sqlite:///{path}", durability="process")
    session = await ours.create()
    for _ in range(200):
        await ours.append(session, e.RecordImported(source="bench", data=os.urandom(30_000).hex()))
    os._exit(9)


def _forget(path: Path) -> None:
    """Let the system drop what it has cached of this file, and of no other."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


WORK = {"die": _die}
