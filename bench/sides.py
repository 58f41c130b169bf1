"""Both sides of a comparison: an agent that appends through Perdure, and one that inserts the same bytes itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from bench.payload import FACTS, Step, steps
from perdure.codec import encode, written
from perdure.events import Event
from perdure.journal import Journal, Owned
from perdure.journal.store import Append, Appended

NOW = 1_790_000_000_000_000
"""A time of the usual length, for bytes that are made beforehand."""


class Agent:
    """Appends one turn after the other to a session of its own. What it appends is made beforehand, by `prepare`."""

    def __init__(self, journal: Journal, owned: Owned) -> None:
        self.journal = journal
        self.owned = owned
        self.session = owned.session
        self._steps = steps(owned.upto)
        self._ready: deque[Step] = deque()

    @classmethod
    async def begin(cls, journal: Journal) -> Agent:
        return cls(journal, await journal.take(await journal.create()))

    def prepare(self, count: int) -> None:
        while len(self._ready) < count:
            self._ready.append(next(self._steps))

    def append(self) -> Awaitable[object]:
        facts, by_owner = self._ready.popleft()
        return self.owned.append(*facts) if by_owner else self.journal.append(self.session, *facts)

    async def append_next(self) -> int:
        """One append; the answer is the seq of its last fact."""
        self.prepare(1)
        answer = await self.append()
        return answer.last if isinstance(answer, Appended) else self.owned.upto

    async def append_many(self, count: int) -> None:
        self.prepare(count)
        for _ in range(count):
            await self.append()


def handed_in(append: Append) -> Append:
    """The append as the journal hands it to its store: with its facts written."""
    append.facts, append.written = zip(*map(written, append.facts), strict=True)
    return append


class Direct:
    """The same appends, committed by the store in the calling thread: what is left without an event loop."""

    def __init__(self, journal: Journal, session: str, epoch: int, upto: int) -> None:
        self._commit = journal.store.commit
        self._session = session
        self._epoch = epoch
        self._steps = steps(upto)
        self._ready: deque[Append] = deque()

    @classmethod
    async def begin(cls, journal: Journal) -> Direct:
        owned = await journal.take(await journal.create())
        return cls(journal, owned.session, owned.epoch, owned.upto)

    def prepare(self, count: int) -> None:
        while len(self._ready) < count:
            facts, by_owner = next(self._steps)
            self._ready.append(Append(self._session, facts, epoch=self._epoch if by_owner else 0))

    def append(self) -> None:
        refused = self._commit([handed_in(self._ready.popleft())])[0]
        if isinstance(refused, Exception):
            raise refused


class Bare(Protocol):
    def append(self, rows: list[bytes]) -> None: ...


class Rows:
    """The same bytes for the raw driver, as many rows to a commit."""

    def __init__(self) -> None:
        self._rows = _rows()
        self._ready: deque[list[bytes]] = deque()

    def prepare(self, count: int) -> None:
        while len(self._ready) < count:
            self._ready.append(next(self._rows))

    def into(self, write: Callable[[list[bytes]], None]) -> Callable[[], None]:
        return lambda: write(self._ready.popleft())

    def next(self) -> list[bytes]:
        return self._ready.popleft()


def _rows() -> Iterator[list[bytes]]:
    seq = 2
    for facts, by_owner in steps(seq):
        yield [encode(Event(seq + n, NOW, int(by_owner), None, fact)) for n, fact in enumerate(facts, 1)]
        seq += len(facts)


def fill(journal: Journal, session: str, upto: int, *, epoch: int, head: int) -> int:
    """Append whole turns through the store until the session has about `upto` events; the answer is its head.

    Called in the writer's thread, in large batches: it is a fixture, and nobody waits for its parts.
    """
    turns = steps(head)
    while head < upto:
        batch: list[Append] = []
        while head < upto and len(batch) < 1200:
            for facts, by_owner in (next(turns) for _ in range(6)):
                batch.append(handed_in(Append(session, facts, epoch=epoch if by_owner else 0)))
            head += FACTS
        for outcome in journal.store.commit(batch):
            if isinstance(outcome, Exception):
                raise outcome
    return head
