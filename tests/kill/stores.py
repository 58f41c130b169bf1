"""A store with everything in it that can be in one, and what it held before anything happened to it."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import apsw

from perdure import journal
from perdure.events import (
    Event,
    ModelCalled,
    ModelReplied,
    ModelSpoke,
    RecordErased,
    RecordImported,
    SessionCreated,
    SessionPinned,
    SessionTrashed,
    TurnStarted,
)
from perdure.journal import Journal, Kept
from perdure.journal.clock import SystemClock
from perdure.journal.rows import checksum, link_of
from perdure.journal.sqlite import SqliteStore
from perdure.journal.store import RawEvent
from tests.kill.lives import Life, message
from tests.kill.places import Places, Span, places

STRETCH = 32
SECRET = "the number of the account is 55-0000"
"""What was erased, and must not be seen again."""

Raw = tuple[bytes, int, bytes | None]


@dataclass
class Before:
    """The files of a store while it was whole, and what it said."""

    main: bytes
    wal: bytes
    events: dict[str, list[Event]] = field(default_factory=dict)
    """Of each session, its own and those it shares."""
    rows: dict[int, Raw] = field(default_factory=dict)
    """What each row of the events' table held."""
    session_of: dict[int, str] = field(default_factory=dict)
    """Whose own stretch this is."""
    older: dict[int, int] = field(default_factory=dict)
    """Where each stretch ends in the file without its log."""
    places: Places = field(default_factory=lambda: Places(0, {}))
    copies: dict[int, list[list[Span]]] = field(default_factory=dict)
    """Where each row lies: in the newest page, and as long as that is in the log, in the file's own page as well."""

    def write_to(self, folder: Path, name: str = "perdure.db") -> Path:
        (folder / name).write_bytes(self.main)
        if self.wal:
            (folder / f"{name}-wal").write_bytes(self.wal)
        return folder / name

    def bytes_at(self, span: Span) -> bytes:
        return (self.main if span.file == "main" else self.wal)[span.at : span.at + span.length]

    def own(self, stretch: int) -> dict[int, Event]:
        """The events that stand in this stretch."""
        return {
            e.seq: e for e in self.events[self.session_of[stretch]] if stretch << STRETCH | e.seq in self.rows
        }


async def lived(folder: Path, seed: int, *, closed: bool = False) -> Before:
    """A store whose sessions went through everything; `closed` properly, or left as a kill leaves it."""
    path, clock = folder / "lived.db", SystemClock()
    store = SqliteStore(path, clock, durability="process", checkpoint_pages=100)
    others = apsw.Connection(str(path))  # a program that keeps tables of its own in the same file
    others.execute("CREATE TABLE mine AS SELECT randomblob(60000) AS one")
    others.execute("CREATE TABLE kept AS SELECT 'mine' AS one")
    async with Journal(store, clock, folder / "processes") as running:
        await _live(running, Random(seed))
        others.execute("DROP TABLE mine")
        others.close()
        if not closed:
            before = Before(path.read_bytes(), Path(f"{path}-wal").read_bytes())
    if closed:
        before = Before(path.read_bytes(), b"")
    for file in folder.glob("lived.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    await _remember(before, folder)
    return before


async def _live(running: Journal, chance: Random) -> None:
    life = Life(running, chance, "life", lambda _: None, longest=6000)
    first = await running.create(SessionCreated("", title="first"))
    owned = await running.take(first)
    talkative = await life.create()
    for _ in range(3):
        await life.turn(owned)
        for _ in range(6):
            await life.talk(talkative)
    await _drop_pieces(running, first)
    secret = await life.append(talkative, RecordImported(source="mail", data=SECRET))
    fork = await running.fork(first, title="fork")
    await life.talk(fork)
    await life.turn(owned)
    forks_fork = await running.fork(fork)
    await life.talk(forks_fork)
    for _ in range(140):  # so many small ones that a head is kept on the way
        await life.append(talkative, SessionPinned(chance.random() < 0.5), key=life._key())
    await _erase(running, talkative, secret)
    trashed = await life.create()
    await life.append(trashed, SessionTrashed(reason="old"))
    await _leave_open(life, await life.create())
    for number in range(20):  # so that one page does not hold the list
        small = await running.create(SessionCreated("", title=f"{number} " + life.words(150)))
        await life.append(small, message(chance.randbytes(3000 * (number % 6)).hex()))
    for session in (talkative, first, fork, talkative):
        await life.talk(session)
    await running.keep(first, Kept("mine", 1, 3, b"kept"))
    await running.put_on_desk("draft", first, b"to be continued")
    await owned.release()


async def _drop_pieces(running: Journal, session: str) -> None:
    events = [event async for event in running.events(session)]
    calls = [e.fact.call for e in events if isinstance(e.fact, ModelReplied) and e.fact.pieces]
    if not calls:
        return  # chance gave no model anything to say in pieces
    pieces = [e.seq for e in events if isinstance(e.fact, ModelSpoke) and e.fact.call == calls[0]]
    stored = await running.read_store(running.store.session, session)
    assert stored is not None
    assert pieces
    await running.write(running.store.drop, stored.stretch, pieces)


async def _erase(running: Journal, session: str, record: int) -> None:
    """What the command that erases will do, when there is one."""
    store = running.store
    assert isinstance(store, SqliteStore)
    stored = await running.read_store(store.session, session)
    assert stored is not None
    [(_, _, _, seal)] = await running.read_store(store.seals, stored.stretch, record - 1, record, 1)
    link = link_of(seal or b"")
    await running.write(store.replace, RawEvent(stored.stretch, record, b"", checksum(b""), link))
    await running.append(session, RecordErased(record=record, hash=link.hex(), reason="secret"))


async def _leave_open(life: Life, session: str) -> None:
    """An owner that was killed in the middle of an answer."""
    asked = await life.append(session, message("are you there?"))
    owned = await life.journal.take(session)
    turn = await life.own(owned, TurnStarted(takes=(asked,)))
    call = await life.own(owned, ModelCalled(turn=turn))
    for number in range(1, 5):
        await life.own(owned, ModelSpoke(call=call, number=number, text=f"word {number} "))


async def _remember(before: Before, folder: Path) -> None:
    path = before.write_to(folder, "remembered.db")
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    roots = dict(db.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0"))
    before.rows = {i: (d, c, s) for i, d, c, s in db.execute("SELECT * FROM perdure_events")}
    before.session_of = dict(db.execute("SELECT stretch, id FROM perdure_sessions"))
    db.close()
    alone = path.with_name("remembered.db.alone")
    alone.write_bytes(before.main)
    db = apsw.Connection(f"file:{alone}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    before.older = dict(db.execute("SELECT stretch, head FROM perdure_sessions"))
    db.close()
    before.places = places(before.main, before.wal, roots)
    older = places(before.main, b"", roots).rows["perdure_events"]
    for rowid, spans in before.places.rows["perdure_events"].items():
        before.copies[rowid] = [spans]
        old = older.get(rowid, spans)
        if old != spans and [before.bytes_at(s) for s in old] == [before.bytes_at(s) for s in spans]:
            before.copies[rowid].append(old)
    async with await journal.open(f"sqlite:///{path}") as opened:
        for session in before.session_of.values():
            before.events[session] = [event async for event in opened.events(session)]
    for file in folder.glob("remembered.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
