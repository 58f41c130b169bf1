"""What the children of these tests do. Each is called in a process of its own, forked from `template`."""

import asyncio
import os
import signal
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import apsw

from perdure import journal
from perdure.errors import OwnedElsewhere, PerdureError
from perdure.events import ModelCalled, RecordImported, TurnEnded, TurnStarted
from perdure.journal import Journal
from perdure.journal.clock import SystemClock
from perdure.journal.postgres import PostgresStore
from perdure.journal.sqlite import SqliteStore
from tests.kill.lives import Life, digest, message
from tests.kill.template import Mouth

FILE_POINTS = ("write", "half a write", "sync", "after a sync", "truncate")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fate:
    """Kills this process when it comes to a named point for the n-th time."""

    def __init__(self, point: str, times: int) -> None:
        self.point, self._left = point, times

    def comes(self, point: str) -> bool:
        self._left -= point == self.point
        return point == self.point and self._left <= 0

    def at(self, point: str) -> None:
        if self.comes(point):
            die()


class MortalFiles(apsw.VFS):
    """The default VFS, in which a process may die at any write and any sync of the database and its log."""

    def __init__(self, fate: Fate) -> None:
        self.name, self._fate = f"mortal-{os.getpid()}", fate
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _MortalFile(self._fate, name, flags)


class _MortalFile(apsw.VFSFile):
    def __init__(self, fate: Fate, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._fate = fate
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._fate.at("write")
        if self._fate.comes("half a write"):
            super().xWrite(data[: len(data) // 2], offset)
            die()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._fate.at("sync")
        super().xSync(flags)
        self._fate.at("after a sync")

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._fate.at("truncate")
        super().xTruncate(size)


def mortal_journal(url: str, fate: Fate, **options: Any) -> Journal:
    """The journal at `url`, whose process dies where `fate` says. Its log is small, so that it is often checkpointed."""
    clock = SystemClock()
    kind: Any = PostgresStore if url.startswith("postgres") else SqliteStore

    class Mortal(kind):  # type: ignore[misc]
        def commit(self, appends: Any) -> Any:
            fate.at("before a commit")
            outcomes = super().commit(appends)
            fate.at("after a commit")
            return outcomes

    if kind is PostgresStore:
        return Journal(Mortal(url, clock), clock, Path(options["processes"]), kind="worker")
    files = MortalFiles(fate) if fate.point in FILE_POINTS else None
    store = Mortal(Path(url.removeprefix("sqlite:///")), clock, vfs=files and files.name, checkpoint_pages=40)
    store.files = files  # a VFS that nobody holds is gone
    return Journal(store, clock, Path(options["processes"]), kind="worker")


async def live(
    mouth: Mouth, url: str, processes: str, seed: int, sessions: list[str], point: str, times: int, steps: int
) -> None:
    """Four lives at once, new sessions and given ones, and a goodbye after so many steps if nothing comes between."""
    chance = Random(seed)
    mouth.say("begun")
    running = mortal_journal(url, Fate(point, times), processes=processes)
    async with running:
        mouth.say("open")
        lives = [Life(running, Random(chance.random()), f"{seed}-{n}", mouth.say) for n in range(4)]
        shares = [sessions[n::4] for n in range(4)]
        await asyncio.gather(*(_one_life(*pair, steps) for pair in zip(lives, shares, strict=True)))
    mouth.say("closed")


async def _one_life(life: Life, sessions: list[str], steps: int) -> None:
    owned = {}
    for _ in range(steps):
        if not sessions or life.chance.random() < 0.1:
            sessions.append(await life.create())
        session = life.chance.choice(sessions)
        if life.chance.random() < 0.5:
            await life.talk(session)
            continue
        if session not in owned:
            # The owner before was killed with the process it ran in: nothing is to be waited for.
            owned[session] = await life.journal.take(session)
            await life.tidy(owned[session])
        await life.turn(owned[session])


async def idle(mouth: Mouth, url: str, processes: str, session: str) -> None:
    """Own a session, and wait for a word that never comes."""
    async with mortal_journal(url, Fate("", 0), processes=processes) as running:
        owned = await running.take(session)
        mouth.say(owned.epoch)
        await asyncio.to_thread(mouth.wait)


async def contend(mouth: Mouth, url: str, name: str, seed: int, sessions: list[str], at_once: int) -> None:
    """Append to whichever of these sessions until told to stop. Nothing may be refused."""
    chance = Random(seed)
    slowest = 0.0
    async with await journal.open(url) as running:
        mouth.say("open")
        mouth.wait()

        async def one(which: int) -> None:
            nonlocal slowest
            number = 0
            while not mouth.was_told():
                number += 1
                session = chance.choice(sessions)
                # Not a message: thousands of them would wait for an answer, and what waits is in the session's head.
                fact = RecordImported(
                    source=name, data=f"{name} {which} {number} " + "x" * chance.randrange(400)
                )
                key = f"{name}-{which}-{number}" if number % 2 else None
                begun = time.monotonic()
                done = await running.append(session, fact, key=key)
                slowest = max(slowest, time.monotonic() - begun)
                mouth.say((session, done.first, key, [digest(fact)]))

        await asyncio.gather(*(one(which) for which in range(at_once)))
    mouth.say({"slowest": slowest})


async def read_on_and_off(mouth: Mouth, path: str, seconds: float) -> None:
    """Another program, with another SQLite, that keeps an old state open for a while, again and again."""
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    db.execute("SELECT count(*) FROM perdure_sessions").fetchone()
    mouth.say("open")
    rounds = 0
    while not mouth.was_told():
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM perdure_events").fetchone()
        await asyncio.sleep(seconds)
        db.execute("COMMIT")
        rounds += 1
    db.close()
    mouth.say({"rounds": rounds})


async def write_on_and_off(mouth: Mouth, path: str, seconds: float) -> None:
    """Another program that has a table of its own in the file, and takes its time in the middle of writing."""
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    db.execute("CREATE TABLE IF NOT EXISTS notes (text)")
    mouth.say("open")
    rounds = 0
    while not mouth.was_told():
        with suppress(sqlite3.OperationalError):  # it may be told that the database is locked; ours may not
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO notes VALUES ('mine')")
            await asyncio.sleep(seconds)
            db.execute("COMMIT")
            rounds += 1
        await asyncio.sleep(seconds)
    db.close()
    mouth.say({"rounds": rounds})


async def read_and_hold(mouth: Mouth, path: str) -> None:
    """Another program that reads once and keeps its transaction open until it is told to let go."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM perdure_sessions").fetchone()
    mouth.say("reading")
    mouth.wait()
    db.close()
    mouth.say("gone")


async def own_and_pause(mouth: Mouth, url: str, session: str, lease: float) -> None:
    """Own a session, stand still where nothing is under way, and go on as if nothing had happened."""
    async with await journal.open(url, kind="worker", name="sleepy", lease=lease) as running:
        owned = await running.take(session)
        asked = (await running.append(session, message("work"))).first
        turn = (await owned.append(TurnStarted(takes=(asked,))))[-1].seq
        mouth.say({"epoch": owned.epoch, "turn": turn, "may_act": owned.may_act()})

        def stand_still() -> bool:
            # In the writer's thread, between two of its commits: no lock of the store is held meanwhile.
            os.kill(os.getpid(), signal.SIGSTOP)
            return True

        await running.write(stand_still)
        outcomes = []
        for _ in range(2):
            try:
                await owned.append(ModelCalled(turn=turn))
                outcomes.append("appended")
            except PerdureError as refused:
                outcomes.append(type(refused).__name__)
        # Another lease begins, and not one under which the old owner may go on.
        await running.process.introduce()
        mouth.say({"outcomes": outcomes, "may_act": owned.may_act(), "leased": running.process.holds_lease()})
        mouth.wait()


async def take(mouth: Mouth, url: str, session: str) -> None:
    """Take a session as soon as it can be had, say where that stands, and go on with it when told to."""
    async with await journal.open(url, kind="worker", name="other") as running:
        mouth.say("open")
        refused = False
        while True:
            try:
                owned = await running.take(session)
                break
            except OwnedElsewhere:
                if not refused:
                    mouth.say("refused")
                refused = True
                await asyncio.sleep(0.01)
        mouth.say({"epoch": owned.epoch, "seq": owned.upto})
        mouth.wait()
        turn = (await running.head(session)).head.standing.turn
        appended = await owned.append(TurnEnded(turn=turn, outcome="interrupted"))
        mouth.say([event.seq for event in appended])
        mouth.wait()
