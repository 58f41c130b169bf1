"""What a store of journals is made of, and what each of the three materials has to offer.

A store is plain, blocking code over one database: it keeps rows and answers questions about them. What may be
appended (`admit`), how appends share a commit (`Journal`) and how readers follow is the same for all of them and
stands elsewhere, so that a material cannot have an opinion about it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from typing import NamedTuple, Protocol

from perdure.events import AnyFact, Event
from perdure.views.head import Head

NOT_THERE = "there is no store yet"

Lineage = tuple[tuple[int, int], ...]
"""The stretches a fork continues, oldest first, each with the last seq it takes from it."""


@dataclass(slots=True)
class Stored:
    """One session as its row says. `stretch` takes its appends; `lineage` is what it shares with its ancestors."""

    stretch: int
    id: str
    lineage: Lineage
    head: int
    chain: bytes
    batch: int
    batch_seq: int
    folded: Head


def walk(stored: Stored) -> tuple[tuple[int, int], ...]:
    """All its stretches, oldest first, each with the last seq that is the session's."""
    return (*stored.lineage, (stored.stretch, stored.head))


@dataclass(frozen=True, slots=True)
class PageOfEvents:
    """Some events in order. `more`: there are others beyond, on the side one was reading towards."""

    events: list[Event]
    more: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Some events of a session in order, and how far they go: there is nothing between the last one and `upto`."""

    events: list[Event]
    upto: int
    more: bool


@dataclass(frozen=True, slots=True)
class BlobRow:
    hash: bytes
    size: int
    packed: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a new session leaves its parent."""

    lineage: Lineage
    at: int
    chain: bytes
    folded: Head


@dataclass(slots=True)
class Append:
    """Facts that become true together, or not at all."""

    session: str
    facts: tuple[AnyFact, ...]
    written: tuple[bytes, ...] = ()
    """The facts' JSON, if it was made before they were handed to the writer, to keep its thread free."""
    epoch: int = 0
    number: int = 0
    """The owner's own count of its appends, so that one whose answer was lost can be asked for again."""
    key: str | None = None
    blobs: tuple[BlobRow, ...] = ()
    create: bool = False
    fork: Fork | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """Where the facts stand. `events` is empty if they were there already (`repeated`)."""

    first: int
    last: int
    head_before: int
    events: tuple[Event, ...] = ()
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """One row of the list of sessions."""

    id: str
    upto: int
    head: Head
    place: tuple[int, str]
    """Where it stands in the list; `Wanted.after` takes it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions a list shows, and from where on. `after` is the place of the last row already seen."""

    states: tuple[str, ...] | None = None
    project: str | None = None
    after: tuple[int, str] | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process that runs sessions: its lease is one row with one renewal."""

    id: str
    about: str
    host: str
    boot: str
    lock: str
    expired: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """A fold that was kept so that nobody has to begin from 1."""

    view: str
    version: int
    upto: int
    state: bytes


class RawEvent(NamedTuple):
    """An event's row as stored, for whoever moves rows without reading them."""

    stretch: int
    seq: int
    data: bytes
    checksum: int
    seal: bytes | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something about the database itself. `lasting`: content is damaged; otherwise it is only worth knowing."""

    what: str
    lasting: bool = True


class Store(Protocol):
    """One database that holds sessions. Writing methods are called by one thread, reading ones by another."""

    url: str
    answers_may_be_lost: bool
    """A commit may take effect although its answer never arrives (a server behind a network)."""

    def commit(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        """Admit these in order and store what was admitted, in one durable transaction."""

    def session(self, id: str) -> Stored | None: ...
    def events(self, stretch: int, after: int, upto: int, limit: int, backwards: bool) -> PageOfEvents:
        """The first events with after < seq <= upto, or the last ones if `backwards`; ascending all the same.
        One that cannot be read is `Unreadable` in its place."""

    def seals(
        self, stretch: int, after: int, upto: int, limit: int
    ) -> list[tuple[int, bytes, int, bytes | None]]:
        """(seq, data, checksum, seal) as stored, for whoever checks the chain or copies rows."""

    def sessions(self, wanted: Wanted) -> list[Listed]: ...
    def count(self, wanted: Wanted) -> int: ...
    def ids(self, after: str, limit: int) -> list[str]:
        """Session ids past `after`, in order of id: the way to visit every session once."""

    def beginning_with(self, prefix: str, limit: int) -> list[str]: ...
    def titled(self, title: str, limit: int) -> list[str]: ...
    def runnable(self, now: int, limit: int) -> list[str]: ...
    def heads(self, ids: Collection[str]) -> Mapping[str, int]: ...
    def blob(self, hash: bytes) -> BlobRow | None: ...
    def kept(self, stretch: int, view: str, version: int, upto: int) -> Kept | None:
        """The newest kept fold of this view and version that does not go beyond `upto`."""

    def all_kept(self, stretch: int) -> list[Kept]: ...
    def keep(self, stretch: int, kept: Kept) -> None:
        """Keep this fold in place of every other one of its view."""

    def forget(self, stretch: int, kept: Kept) -> None: ...
    def process(self, id: str) -> ProcessRow | None: ...
    def renew(self, process: ProcessRow, ttl: float) -> None: ...
    def retire(self, process: str) -> None: ...
    def desk(self, kind: str, name: str) -> bytes | None: ...
    def put_on_desk(self, kind: str, name: str, value: bytes | None) -> None: ...
    def drop(self, stretch: int, seqs: Sequence[int]) -> None:
        """Remove pieces. Facts are never removed: a seq of a fact is passed over."""

    def keys(self, stretch: int) -> dict[str, int]: ...
    def rederive(self, stored: Stored, keys: Mapping[str, int]) -> bool:
        """Put a refolded head, and these keys, in place of wrong ones; False if the session has moved on meanwhile."""

    def is_listed(self, stored: Stored) -> bool:
        """Whether the columns that lists are made by say what this head says. True if the session has moved on."""

    def check(self) -> list[Trouble]:
        """What is wrong with the store as a whole, below the level of sessions."""

    def strays(self) -> list[tuple[int, int]]:
        """(stretch, how many) of events that no session's row reaches. A question for each stretch, not each event."""

    def missing_indexes(self) -> list[str]:
        """Those that are not there, or are not what they should be. They are derived: `make_index` makes one."""

    def make_index(self, name: str) -> None: ...

    def copy_to(self, target: Path) -> None:
        """A consistent copy of everything, as an SQLite store in one file, while others go on writing."""

    def watch(
        self,
        stop: Flag,
        followed: Callable[[], Collection[str]],
        moved: Callable[[Mapping[str, int]], None],
    ) -> None:
        """Until `stop`: tell which of the followed sessions other processes have moved, soon after they have."""

    def close(self) -> None: ...


class Receiver(Store, Protocol):
    """A store that takes rows as they are, from a damaged one or from another kind of database."""

    def receive(self, events: Iterable[RawEvent], blobs: Iterable[BlobRow]) -> list[RawEvent]:
        """Store rows as they are, and give back those whose place holds another row already."""

    def replace(self, event: RawEvent) -> None: ...
    def remove(self, stretch: int, seq: int) -> None: ...
    def drop_other_blobs(self, named: Collection[bytes]) -> None: ...
    def receive_session(self, stored: Stored, keys: Mapping[str, int]) -> None: ...
    def stretches(self) -> list[tuple[int, int, int]]:
        """(stretch, first seq, last seq) of whatever events there are, whoever they belong to."""

    def end_of(self, stretch: int) -> tuple[int, bytes]:
        """The last seq of a stretch and the last link in it; 0 and nothing if it has no events."""
