"""What does not grow: counted, not timed, so that it holds on a busy machine too."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import apsw
import pytest

from bench.payload import APPENDS, FACTS
from bench.sides import Agent, fill
from perdure import journal
from perdure.events import RecordImported
from perdure.journal.admit import KEEP_EVERY

pytestmark = pytest.mark.anyio

FOLLOWERS = 1000
NO_RENEWAL = 3600.0
"""A lease so long that renewing it does not come between what is counted."""


class Counted:
    """What SQLite was asked over the connections that were made while this was listening."""

    def __init__(self) -> None:
        self.statements: Counter[str] = Counter()
        self.steps = 0
        """Of SQLite's virtual machine. A statement that visits rows it does not need takes some for each."""

    def listen(self, db: apsw.Connection) -> None:
        db.set_exec_trace(self._asked)
        db.set_progress_handler(self._stepped, 1)

    def _asked(self, _cursor: apsw.Cursor, sql: str, _values: object) -> bool:
        self.statements[sql] += 1
        return True

    def _stepped(self) -> bool:
        self.steps += 1
        return False

    def reads_of_events(self) -> int:
        return sum(
            n for sql, n in self.statements.items() if sql.startswith("SELECT") and "perdure_events" in sql
        )

    def clear(self) -> None:
        self.statements.clear()
        self.steps = 0


@contextmanager
def listening() -> Iterator[Counted]:
    counted = Counted()
    hook = counted.listen
    apsw.connection_hooks.append(hook)
    try:
        yield counted
    finally:
        apsw.connection_hooks.remove(hook)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


async def lengthened(ours: journal.Journal, agent: Agent, upto: int) -> Agent:
    """The agent once its session has about so many events. It must have ended its turn."""
    owned = agent.owned
    owned.upto = await ours.write(lambda: fill(ours, owned.session, upto, epoch=owned.epoch, head=owned.upto))
    return Agent(ours, owned)


async def test_an_append_asks_no_more_of_a_long_session_than_of_a_short_one(path: Path) -> None:
    with listening() as counted:
        async with await journal.open(f"sqlite:///{path}", durability="process", lease=NO_RENEWAL) as ours:
            agent = await Agent.begin(ours)

            async def asked() -> tuple[Counter[str], int]:
                counted.clear()
                # So many turns that just as many heads fall due to be kept, wherever one begins to count.
                await agent.append_many(KEEP_EVERY * APPENDS)
                return Counter(counted.statements), counted.steps

            early, early_steps = await asked()
            agent = await lengthened(ours, agent, 20_000)
            late, late_steps = await asked()
    assert early.total() > KEEP_EVERY * APPENDS
    # Not the same ones: now and then something is due by the clock, or to be read again because of the fixture.
    assert late.total() <= early.total() * 1.02
    assert late_steps <= early_steps * 1.05


async def test_a_commit_of_many_appends_is_one_transaction(path: Path) -> None:
    with listening() as counted:
        async with await journal.open(f"sqlite:///{path}", lease=NO_RENEWAL) as ours:
            sessions = [await ours.create() for _ in range(8)]
            counted.clear()
            # The writer takes the first at once; what comes while it syncs goes into the next commit together.
            await asyncio.gather(*(ours.append(session, record()) for session in sessions))
    assert counted.statements["COMMIT"] <= 3


@asynccontextmanager
async def followers(ours: journal.Journal, session: str, count: int) -> AsyncIterator[list[int]]:
    """So many followers of a session that has one event, all of whom have it; how many events each has."""
    arrived = [0] * count

    async def follow(number: int) -> None:
        async for _ in ours.follow(session):
            arrived[number] += 1

    tasks = [asyncio.create_task(follow(number)) for number in range(count)]
    try:
        await all_have(arrived, 1)
        yield arrived
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def all_have(arrived: list[int], events: int) -> None:
    async with asyncio.timeout(60):
        while min(arrived) < events:  # noqa: ASYNC110 (an event would have to be set by the last of a thousand)
            await asyncio.sleep(0.005)


async def test_a_thousand_followers_cost_one_read_for_each_event_of_another_process(path: Path) -> None:
    events = 20
    async with await journal.open(f"sqlite:///{path}", durability="process") as other:
        session = await other.create()
        with listening() as counted:
            async with (
                await journal.open(f"sqlite:///{path}") as ours,
                followers(ours, session, FOLLOWERS) as arrived,
            ):
                counted.clear()
                for number in range(events):
                    await other.append(session, record())
                    await all_have(arrived, number + 2)
                reads = counted.reads_of_events()
    assert arrived == [events + 1] * FOLLOWERS
    assert reads <= events * 1.2


async def test_followers_of_what_this_process_appends_read_nothing(path: Path) -> None:
    events = 20
    with listening() as counted:
        async with await journal.open(f"sqlite:///{path}", durability="process") as ours:
            session = await ours.create()
            async with followers(ours, session, FOLLOWERS) as arrived:
                counted.clear()
                for number in range(events):
                    await ours.append(session, record())
                    await all_have(arrived, number + 2)
                reads = counted.reads_of_events()
    assert arrived == [events + 1] * FOLLOWERS
    assert reads <= 1


async def test_followers_need_neither_descriptors_nor_threads(path: Path) -> None:
    async with await journal.open(f"sqlite:///{path}") as ours:
        session = await ours.create()
        async with followers(ours, session, 1):
            before = descriptors(), threading.active_count()
        async with followers(ours, session, FOLLOWERS):
            assert (descriptors(), threading.active_count()) == before


@pytest.mark.parametrize("place", ["at the end", "in the middle"])
async def test_a_fork_writes_as_little_of_a_long_session_as_of_a_short_one(path: Path, place: str) -> None:
    forks = 40
    grown = []
    async with await journal.open(f"sqlite:///{path}", durability="process") as ours:
        agent = await Agent.begin(ours)
        for length in (10 * FACTS, 10_000):
            agent = await lengthened(ours, agent, length)
            turns = (agent.owned.upto - 2) // FACTS
            at = 2 + FACTS * (turns if place == "at the end" else turns // 2)
            rows, size = stored(path)
            for _ in range(forks):
                await ours.fork(agent.session, at=at)
            more_rows, larger = stored(path)
            assert more_rows - rows == forks  # each has its own first fact, and nothing of its parent's
            grown.append((larger - size) / forks)
    assert max(grown) < 8192
    assert grown[1] <= grown[0] + 8192 * 4 / forks  # a page or two more or less


def stored(path: Path) -> tuple[int, int]:
    """How many events there are, and the bytes of the database with what is in its log."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        values = ("SELECT count(*) FROM perdure_events", "PRAGMA page_count", "PRAGMA page_size")
        rows, pages, size = (int(db.execute(sql).get) for sql in values)
        return rows, pages * size
    finally:
        db.close()


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def record() -> RecordImported:
    return RecordImported(source="test", data="something that happened elsewhere")
