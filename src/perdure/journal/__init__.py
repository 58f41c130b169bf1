"""The journal: append, read, follow, own.

`append` is the only verb that adds a fact, and it returns when the fact would survive a power cut. `follow` is the
only live stream. Whatever else there is to know about a session is folded from what these two give.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import ParamSpec, TypeVar, get_args

from backports import zstd
from msgspec import structs

from perdure.codec import written
from perdure.errors import (
    ConfigError,
    CursorAhead,
    NoStore,
    NotStorable,
    Refused,
    SessionNotFound,
    StoreUnavailable,
)
from perdure.events import AnyFact, Blob, Event, ForkedFrom, SessionCreated
from perdure.journal.clock import Clock, SystemClock
from perdure.journal.files import is_there, shared_folder
from perdure.journal.following import Following
from perdure.journal.names import is_id, new_id, resolve
from perdure.journal.owning import Kind, Owned, Process, take
from perdure.journal.reading import backwards, forked, forwards, stored_session
from perdure.journal.store import (
    NOT_THERE,
    Append,
    Appended,
    BlobRow,
    Kept,
    Listed,
    Page,
    Receiver,
    Store,
    Stored,
    Wanted,
)
from perdure.journal.threads import Reader, Writer
from perdure.views.head import STATES
from perdure.views.title import storable

__all__ = ["Appended", "Journal", "Kept", "Listed", "Owned", "Page", "Wanted", "blob_of", "open"]

log = logging.getLogger("perdure.journal")

P = ParamSpec("P")
R = TypeVar("R")
PAGE = 500
LONG_PAGE = 2000
MOST = 1 << 40
"""More than anybody has; what a database can still count."""
EVERYTHING = Wanted()
LONGEST_KEY = 200
DURABILITIES = ("power", "process")
_DRIVER = 'install Perdure with it: pip install "perdure[postgres]", or ".[postgres]" in a clone'
_NO_ADDRESS = "is no address of a store: use sqlite:///path, postgresql://... or memory:"


def blob_of(content: bytes, media_type: str = "text/plain", name: str = "") -> Blob:
    """The name by which a fact speaks of content that is appended beside it."""
    return Blob(hash=sha256(content).hexdigest(), size=len(content), media_type=media_type, name=name)


class Journal(AbstractAsyncContextManager["Journal"]):
    """All sessions of one store, from within one event loop."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        folder: Path,
        *,
        kind: Kind = "library",
        name: str = "",
        lease: float = 10.0,
    ) -> None:
        self.store = store
        self.clock = clock
        self.process = Process(self, clock, folder, kind, name, lease)
        self._reader = Reader("perdure-reader")
        self._following = Following(lambda session, after: self.read(session, after=after))
        self._writer = Writer(store, self._stored)
        self._closed = False
        self._stop = Flag()
        self._watcher = Thread(target=self._watch, name="perdure-watcher", daemon=True)
        self._watcher.start()

    # Append

    async def create(self, *facts: AnyFact, key: str | None = None) -> str:
        """Begin a session with these facts, and return its id once it is durable. The first is `SessionCreated`,
        whose `session` may be left empty; without any the session has no more than an id."""
        born = facts[0] if facts else SessionCreated(session="")
        if not isinstance(born, SessionCreated):
            raise Refused("(new)", "the first fact of a session is SessionCreated")
        id = born.session or new_id()
        named = structs.replace(born, session=id)
        await self.submit(Append(id, (named, *facts[1:]), key=key, create=True))
        log.info("created", extra={"session": id, "source": named.source})
        return id

    async def append(
        self, session: str, *facts: AnyFact, key: str | None = None, blobs: Sequence[bytes] = ()
    ) -> Appended:
        """Make facts that anyone may append durable, all of them or none, and say where they stand.

        With a `key` this may be called again: the same facts are there once, and the first seq is the answer; other
        facts under the same key raise `AlreadyAppended`. `blobs` are stored in the same transaction.
        """
        return await self.submit(Append(session, facts, key=key, blobs=await self.packed(blobs)))

    def submit(
        self, append: Append, settled: Callable[[bool], None] | None = None
    ) -> asyncio.Future[Appended]:
        """Hand in an append; the answer comes when it is durable, or has been refused."""
        _prepare(append)
        if append.key is None and self.store.answers_may_be_lost and not append.number:
            # Asked again under this key, should the answer be lost on its way.
            append = replace(append, key=f"once-{token_hex(8)}")
        return self._writer.append(append, settled)

    async def fork(self, parent: str, *, at: int | None = None, title: str = "", session: str = "") -> str:
        """A new session that goes on from `parent` at a place where nothing is open, and shares its past.

        With an id of its own, `session`, one whose answer was lost is found again: asked twice, it is there already.
        """
        head = (await self.head(parent)).upto
        if at is not None and not 0 < at <= head:
            raise Refused(parent, f"there is nothing at {at} to go on from")
        fork = await self._reader(forked, self.store, parent, at)
        id = session or new_id()
        fact = ForkedFrom(session=id, parent=parent, at=fork.at, title=title)
        await self.submit(Append(id, (fact,), create=True, fork=fork))
        log.info("created", extra={"session": id, "parent": parent, "at": fork.at})
        return id

    # Read

    async def read(self, session: str, *, after: int = 0, limit: int = PAGE) -> Page:
        """The first events past `after`."""
        return await self._reader(forwards, self.store, session, max(after, 0), _positive(limit, "limit"))

    async def last(self, session: str, *, before: int | None = None, limit: int = PAGE) -> Page:
        """The last events in front of `before` (or of the end), in ascending order."""
        return await self._reader(backwards, self.store, session, before, _positive(limit, "limit"))

    async def between(self, session: str, after: int, upto: int) -> AsyncIterator[Event]:
        """Every event with after < seq <= upto, read page by page, the next one while this one is being used."""
        page = await self.read(session, after=after, limit=LONG_PAGE)
        while True:
            more = page.more and page.upto < upto
            coming = (
                asyncio.ensure_future(self.read(session, after=page.upto, limit=LONG_PAGE)) if more else None
            )
            try:
                for event in page.events:
                    if event.seq <= upto:
                        yield event
                if coming is None:
                    return
                page = await coming
            finally:
                if coming is not None:
                    coming.cancel()

    def events(self, session: str) -> AsyncIterator[Event]:
        """The whole journal, as far as it goes when its last page is read."""
        return self.between(session, 0, sys.maxsize)

    async def head(self, session: str) -> Listed:
        stored = await self._session(session)
        return Listed(session, stored.head, stored.folded, (stored.folded.updated_at, session))

    async def sessions(self, wanted: Wanted = EVERYTHING) -> list[Listed]:
        """Sessions by last activity, newest first; equal times by id. Filters hide, and `count` says how many."""
        return await self._reader(self.store.sessions, _findable(wanted))

    async def count(self, wanted: Wanted = EVERYTHING) -> int:
        return await self._reader(self.store.count, _findable(wanted))

    async def runnable(self, *, limit: int = 50) -> list[str]:
        """Sessions that owe something now, the longest waiting first."""
        return await self._reader(self.store.runnable, self.clock.wall(), _positive(limit, "limit"))

    async def resolve(self, name: str) -> str:
        """The id of the session that an id, a prefix of six or more characters, or an exact title names."""
        return await self._reader(resolve, name, self.store.beginning_with, self.store.titled)

    async def blob(self, blob: Blob) -> bytes:
        """The content a fact speaks of. Raises `NotStorable` if it is missing or is not what it was."""
        row = await self._reader(self.store.blob, _digest(blob.hash))
        if row is None:
            raise NotStorable(f"blob {blob.hash} is not in {self.store.url}")
        content = await asyncio.to_thread(_unpacked, row)
        if content is None:
            raise NotStorable(f"blob {blob.hash} in {self.store.url} is damaged")
        return content

    # Follow

    async def follow(self, session: str, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield every event past `after`, in order, once, for ever.

        Resuming a browser tab, tailing in a terminal, feeding a replica and waiting in a test are all this one loop
        with a different `after`. A piece may be missing: then the fact that ends its call holds the whole text.
        Raises `CursorAhead` if `after` lies beyond the end: whoever holds such a position must begin anew.
        """
        head = (await self.head(session)).upto
        if after > head:
            raise CursorAhead(session, after, head)
        # Joined first, read second. What is appended between the two has woken the tail already, so the worst case
        # is one empty look and never a missed event.
        tail = self._following.join(session, head)
        try:
            # Said again now that we are listening: of what came between the first look and the joining nobody told.
            self._following.look(session, (await self.head(session)).upto)
            while True:
                news, upto = tail.since(after), tail.upto
                if news is None:
                    page = await self.read(session, after=after)
                    news, upto = page.events, page.upto
                for event in news:
                    yield event
                after = max(after, upto)  # a page just read may lead the tail
                if tail.failed is not None:
                    raise tail.failed
                if after >= tail.upto:
                    await tail.moved()
        finally:
            self._following.leave(session, tail)

    # Own

    async def take(self, session: str) -> Owned:
        """Become the one process that runs this session. Raises `OwnedElsewhere` while another lives that does."""
        from perdure.version import __version__

        return await take(self, self.process, session, __version__)

    # Kept folds and the desk

    async def keep(self, session: str, kept: Kept) -> None:
        """Keep a fold, so that the next one to ask need not begin at 1. It may be thrown away at any time."""
        await self.write(self.store.keep, (await self._session(session)).stretch, kept)

    async def kept(self, session: str, view: str, version: int) -> Kept | None:
        """A kept fold of just this version. Another version's is worth nothing."""
        stored = await self._session(session)
        return await self._reader(self.store.kept, stored.stretch, view, version, stored.head)

    async def desk(self, kind: str, name: str) -> bytes | None:
        """A last value that is not a fact: a draft, a read mark."""
        return await self._reader(self.store.desk, _label(kind), _label(name))

    async def put_on_desk(self, kind: str, name: str, value: bytes | None) -> None:
        await self.write(self.store.put_on_desk, _label(kind), _label(name), value)

    # Plumbing

    async def write(self, call: Callable[P, R], *args: P.args, **_: P.kwargs) -> R:
        """Run one of the store's writing methods between two commits."""
        return await self._writer(call, *args)

    async def read_store(self, call: Callable[P, R], *args: P.args, **_: P.kwargs) -> R:
        """Run one of the store's reading methods."""
        return await self._reader(call, *args)

    async def packed(self, contents: Sequence[bytes]) -> tuple[BlobRow, ...]:
        """Blobs as they are stored, compressed where that helps, outside the writer's thread."""
        if not contents:
            return ()
        for content in contents:
            if not isinstance(content, bytes | bytearray | memoryview):
                raise NotStorable(f"a blob is bytes, not {type(content).__name__}")
        return await asyncio.to_thread(lambda: tuple(_packed(content) for content in contents))

    async def _session(self, session: str) -> Stored:
        return await self._reader(stored_session, self.store, session)

    def _stored(self, append: Append, appended: Appended) -> None:
        if (owned := self.process.sessions.get(append.session)) is not None:
            owned.hear(appended)
        self._following.appended(append.session, appended.head_before, appended.events)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self.store.watch(self._stop, self._following.names, self._following.moved)
            except StoreUnavailable as why:
                # Followers of this process go on being woken by its own appends; the others' come when this does.
                log.error("watching failed", extra={"store": self.store.url, "why": str(why)})
                self._stop.wait(0.25)

    async def close(self) -> None:
        """Finish what was handed in, give up the lease, and let go of the store."""
        if self._closed:
            return
        self._closed = True
        try:
            await (
                self.process.leave()
            )  # a store that cannot be written keeps us from saying good-bye, not from going
        finally:
            await self._following.close()
            await self._writer.close()
            await self._reader.close()
            self._stop.set()
            await asyncio.to_thread(self._watcher.join)
            self.store.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def open(
    url: str,
    *,
    kind: Kind = "library",
    name: str = "",
    durability: str = "power",
    lease: float = 10.0,
    clock: Clock | None = None,
    vfs: str | None = None,
    announce: Callable[[str], None] = print,
    create: bool = True,
) -> Journal:
    """The journal at `sqlite:///path`, `postgresql://...` or `memory:`, laid out or upgraded if need be.

    `durability` is "power" (an acknowledged fact survives a power cut) or "process" (it survives `kill -9`).
    `announce` is told in a sentence what was upgraded and where the backup is. Without `create` nothing is made where
    there is no store, and `NoStore` is raised.
    """
    _one_of("durability", durability, DURABILITIES)
    _one_of("kind", kind, get_args(Kind))
    if not _is_number(lease) or not 0 < lease < math.inf:
        raise ConfigError("lease", f"is a number of seconds above 0, not {lease!r}")
    clock = clock or SystemClock()
    store, folder = await asyncio.to_thread(_opened, url, clock, durability, vfs, announce, create)
    return Journal(store, clock, folder, kind=kind, name=name, lease=lease)


def _opened(
    url: str, clock: Clock, durability: str, vfs: str | None, announce: Callable[[str], None], create: bool
) -> tuple[Store, Path]:
    if not isinstance(url, str):
        raise StoreUnavailable(repr(url), _NO_ADDRESS)
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest.startswith("///") and len(rest) > 3:
        from perdure.journal.sqlite import SqliteStore
        from perdure.journal.unread import refuse_orphan

        path = Path(rest[3:]).expanduser().absolute()
        if not create and not is_there(path):
            refuse_orphan(path)
            raise NoStore(f"sqlite:///{path}", NOT_THERE)
        store = SqliteStore(path, clock, durability=durability, vfs=vfs, announce=announce)
        return store, path.with_name(path.name + ".processes")
    if scheme in ("postgresql", "postgres"):
        try:
            from perdure.journal.postgres import PostgresStore
        except ImportError as missing:
            raise StoreUnavailable("postgresql:", f"needs a driver ({missing}); {_DRIVER}") from missing
        server = PostgresStore(url, clock, durability=durability, announce=announce, create=create)
        return server, shared_folder()
    if url == "memory:":
        from perdure.journal.memory import MemoryStore

        return MemoryStore(clock), shared_folder()
    raise StoreUnavailable(url, _NO_ADDRESS)


def new_sqlite_store(path: Path) -> Receiver:
    """A store in a new file, for what is saved or copied from elsewhere."""
    from perdure.journal.sqlite import SqliteStore

    return SqliteStore(path, SystemClock())


def _prepare(append: Append) -> None:
    if not append.facts:
        raise NotStorable("an append needs at least one fact")
    append.facts, append.written = zip(*map(written, append.facts), strict=True)
    if not is_id(append.session):
        if not append.create:
            raise SessionNotFound(append.session)
        raise NotStorable(
            f"{str(append.session)[:80]!r} is no id: 1 to 64 lower-case letters, digits and hyphens"
        )
    key = append.key
    if key is not None and (not _is_text(key) or not 0 < len(key) <= LONGEST_KEY):
        raise NotStorable(f"a key is 1 to {LONGEST_KEY} characters of text, not {str(key)[:50]!r}")


def _one_of(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(name, f"must be one of {', '.join(known)}, not {value!r}")


def _positive(number: object, name: str) -> int:
    if not isinstance(number, int) or number < 1:
        raise NotStorable(f"{name} must be a whole number of at least 1, not {number!r}")
    return min(number, MOST)


def _findable(wanted: Wanted) -> Wanted:
    """As every store understands it: with the project as the list's column holds it."""
    states, project, after = wanted.states, wanted.project, wanted.after
    if states is not None and not _are_states(states):
        raise NotStorable(f"states are a tuple of {', '.join(STATES)}, not {states!r}")
    if not isinstance(project, str | None):
        raise NotStorable(f"a project is the text of its key, not {project!r}")
    if after is not None and not _is_place(after):
        raise NotStorable(f"after is the place of a row of the list, (time, id), not {after!r}")
    return replace(
        wanted,
        project=None if project is None else storable(project),
        limit=_positive(wanted.limit, "limit"),
    )


def _are_states(states: object) -> bool:
    return isinstance(states, tuple | list) and all(state in STATES for state in states)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _is_place(after: object) -> bool:
    match after:
        case (int(time), str(id)) if isinstance(after, tuple):
            return -(1 << 63) <= time < 1 << 63 and _is_text(id)
    return False


def _is_text(text: object) -> bool:
    """Whether a text column holds it as it is."""
    return isinstance(text, str) and storable(text) == text


def _label(name: str) -> str:
    if not _is_text(name):
        raise NotStorable(f"{name!r} holds characters that a text column does not")
    return name


def _digest(hash: str) -> bytes:
    try:
        return bytes.fromhex(hash)
    except ValueError:
        raise NotStorable(f"{hash[:80]!r} is no hash of a blob") from None


def _unpacked(row: BlobRow) -> bytes | None:
    """The content, or None if it is not what its hash says."""
    try:
        content = zstd.decompress(row.data) if row.packed else row.data
    except zstd.ZstdError:
        return None
    return content if sha256(content).digest() == row.hash else None


def _packed(content: bytes) -> BlobRow:
    smaller = zstd.compress(content, 3)
    packed = len(smaller) < len(content)
    return BlobRow(sha256(content).digest(), len(content), packed, smaller if packed else content)
