"""What following costs and what it survives. What a thousand followers ask of SQLite itself is counted in `test_growth`."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from perdure import journal
from perdure.events import RecordImported
from perdure.journal import Journal
from perdure.journal.admit import Batch
from perdure.journal.clock import SystemClock
from perdure.journal.following import KEEP
from perdure.journal.link import Link
from perdure.journal.pipe import Question
from perdure.journal.postgres import PostgresStore, _Watch
from perdure.journal.store import Store
from perdure.journal.threads import MOST
from perdure.testing.contract.telling import PATIENCE, begun, following, heard, said, texts, until
from perdure.testing.journals import whole
from tests.kill.template import Template
from tests.laws.stores import MATERIALS, connections
from tests.postgres import fresh_database
from tests.rooms.test_growth import FOLLOWERS, all_have, followers, record

pytestmark = pytest.mark.anyio


class Counting:
    """A store, and how often each of its methods was called."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)

        def call(*args: object) -> Any:
            self.calls[name] += 1
            return found(*args)

        return call if callable(found) else found


Opened = tuple[Journal, Journal, Counter[str]]


@asynccontextmanager
async def open_twice(material: str, home: Path) -> AsyncIterator[Opened]:
    """Our journal, another one's over the same store, and what ours asks of it."""
    clock = SystemClock()
    connect = connections(material, home, clock)
    counting: Any = Counting(connect())
    async with (
        Journal(counting, clock, home / "processes") as ours,
        Journal(connect(), clock, home / "processes") as other,
    ):
        yield ours, other, counting.calls


@pytest.fixture(params=MATERIALS)
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_twice(request.param, tmp_path) as opened:
        yield opened


@asynccontextmanager
async def held_up(run: Callable[..., Any]) -> AsyncIterator[None]:
    """The thread that writes, or the one that reads, does nothing meanwhile."""
    standing, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        standing.set()
        assert go_on.wait(PATIENCE)

    waiting = asyncio.ensure_future(run(stand))
    try:
        assert await asyncio.to_thread(standing.wait, PATIENCE)
        yield
    finally:
        go_on.set()
        await waiting


# What it costs


async def test_a_thousand_followers_cost_one_read_an_event_and_neither_descriptors_nor_threads(
    opened: Opened,
) -> None:
    ours, other, calls = opened
    events, process = 10, psutil.Process()
    session = await other.create()
    async with followers(ours, session, 1):
        before = process.num_fds(), process.num_threads()
    async with followers(ours, session, FOLLOWERS) as arrived:
        assert (process.num_fds(), process.num_threads()) == before
        calls.clear()
        for number in range(events):
            await other.append(session, record())
            await all_have(arrived, number + 2)
        reads, rows = calls["events"], calls["session"]
    assert arrived == [events + 1] * FOLLOWERS
    assert events <= reads <= events * 1.2
    assert rows <= events * 1.2
    assert not calls.keys() - {"events", "session"}


async def test_appends_that_wait_together_share_their_commits(opened: Opened) -> None:
    ours, _, calls = opened
    sessions = [await ours.create() for _ in range(8)]
    calls.clear()
    async with held_up(ours.write):
        appends = [
            asyncio.create_task(ours.append(sessions[n % 8], said(str(n)))) for n in range(2 * MOST - 1)
        ]
        await asyncio.sleep(0)  # now each of them has been handed in
    await asyncio.gather(*appends)
    assert calls["commit"] == 2
    for n, session in enumerate(sessions):
        assert texts(await whole(ours, session)) == [str(number) for number in range(n, 2 * MOST - 1, 8)]


async def test_a_follower_that_does_not_read_costs_a_position_and_misses_nothing(tmp_path: Path) -> None:
    size, together, appends = 3000, 50, 48
    async with open_twice("sqlite", tmp_path) as (ours, other, _):
        session = await ours.create()
        async with asyncio.timeout(6 * PATIENCE), aclosing(following(ours, session, 0)) as events:
            got = [(await anext(events)).seq]
            tracemalloc.start()
            try:
                for number in range(appends):
                    facts = [
                        RecordImported(source="test", data=f"{number} {n} " + "x" * size)
                        for n in range(together)
                    ]
                    # By this process and by another one: the tail grows in two ways.
                    await (ours, other)[number % 2].append(session, *facts)
                    del facts
                await until(lambda: seen_all(ours, session))
                gc.collect()
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            got += [(await anext(events)).seq for _ in range(together * appends)]
            await other.append(session, record())
            got.append((await anext(events)).seq)
    assert got == list(range(1, together * appends + 3))
    # The tail, and what the threads that write held last: the facts of an append and what is stored of them.
    assert held < (2 * KEEP + 6 * together) * size * 1.1 < together * appends * size / 1.5


async def seen_all(ours: Journal, session: str) -> bool:
    """Whether the tail that this session's followers share has come to its end."""
    return ours._following._tails[session].upto == (await ours.head(session)).upto


# What it survives


async def test_a_follower_that_is_cancelled_while_the_store_is_read_leaves_nothing_behind(
    opened: Opened,
) -> None:
    ours, other, _ = opened
    session = await begun(other, 3)
    before = asyncio.all_tasks()
    for caught_up in (0, 4):  # in its first page, or in what another process has just appended
        joined = asyncio.Event()
        follower = asyncio.create_task(heard(ours, session, 99, joined=joined))
        if caught_up:
            await joined.wait()
            await until(lambda: seen_all(ours, session))
        async with held_up(ours.read_store):
            await other.append(session, said("more"))
            await asyncio.sleep(0.02 if caught_up else 0)
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
        await until(lambda: nothing_left(ours, before))
    got = await heard(ours, session, 6)
    assert got == await whole(other, session)
    assert await nothing_left(ours, before)


async def nothing_left(ours: Journal, before: set[asyncio.Task[Any]]) -> bool:
    following = ours._following
    return asyncio.all_tasks() == before and not following.names() and not following._reading


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with Template() as template:
        yield template


@pytest.mark.parametrize("material", ["sqlite", "postgres"])
async def test_what_another_process_appends_arrives_once_and_in_order(
    material: str, template: Template, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'perdure.db'}" if material == "sqlite" else fresh_database()
    async with await journal.open(url) as ours:
        session = await ours.create()
        child = template.start("contend", url=url, name="other", seed=1, sessions=[session], at_once=3)
        assert child.hear() == "open"
        got: list[int] = []

        async def follow() -> None:
            async for event in ours.follow(session):
                got.append(event.seq)

        follower = asyncio.create_task(follow())
        child.tell()
        await asyncio.sleep(0.3)
        child.tell("stop")
        acks = [value for value in await asyncio.to_thread(child.end) if isinstance(value, list)]
        await until(lambda: have(got, len(acks) + 1))
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
    assert acks
    assert got == list(range(1, len(acks) + 2))


async def have(got: list[int], count: int) -> bool:
    return len(got) >= count


class Silent(PostgresStore):
    """One whose wakes are lost."""

    def _writes(self, batch: Batch) -> Iterator[Question]:
        return (question for question in super()._writes(batch) if "pg_notify" not in question[0])


async def test_postgres_tells_of_an_append_in_its_transaction(tmp_path: Path) -> None:
    url, clock = fresh_database(), SystemClock()
    async with (
        Journal(PostgresStore(url, clock), clock, tmp_path) as loud,
        Journal(Silent(url, clock), clock, tmp_path) as silent,
    ):
        session = await loud.create()
        moved: list[Mapping[str, int]] = []
        watch, link = _Watch(lambda: [session], moved.append, lambda: 0), Link(url, "power", 5.0)
        link.run(watch.look)
        assert moved == [{session: 1}]
        watch._due = math.inf  # from here on it looks when it is woken, and only then
        await silent.append(session, said())
        link.run(watch.look)
        assert len(moved) == 1
        await loud.append(session, said())
        async with asyncio.timeout(PATIENCE):
            while len(moved) == 1:
                await asyncio.to_thread(link.run, watch.look)
        assert moved[1:] == [{session: 3}]
        link.close()


async def test_on_postgres_an_append_whose_wake_was_lost_is_seen_all_the_same(tmp_path: Path) -> None:
    url, clock = fresh_database(), SystemClock()
    store = PostgresStore(url, clock)
    async with (
        Journal(store, clock, tmp_path) as ours,
        Journal(Silent(url, clock), clock, tmp_path) as silent,
        await journal.open(url) as other,
    ):
        session = await ours.create()
        async with asyncio.timeout(PATIENCE), aclosing(following(ours, session, 0)) as events:
            assert (await anext(events)).seq == 1
            await other.append(session, said("with a wake"))  # when it is here, the first look is over
            assert (await anext(events)).seq == 2
            await silent.append(session, said("without a wake"))
            assert (await anext(events)).seq == 3
            for number in range(5):
                # Whoever listens has lost its connection, and has no other one yet.
                with psycopg.connect(url, autocommit=True) as db:
                    [ended] = db.execute("SELECT pg_terminate_backend(%s, 1000)", [store._watching.pid])
                assert ended == (True,)
                await other.append(session, said(f"while nobody listened {number}"))
                assert (await anext(events)).seq == 4 + number
