"""Following: watch first, then read; one read serves everyone who follows the same session.

A `Tail` holds the last few events of a session that somebody follows. What this process appends goes into it as
soon as it is durable; when others have appended, one read fetches it. Whoever falls behind the tail reads pages of
his own, as fast as he can take them: a slow follower costs a position, not a queue.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence

from perdure.events import Event
from perdure.journal.store import Page

KEEP = 512
"""Events a tail holds. Further back the store is as fast."""


class Tail:
    """The end of one followed session, shared by its followers in this process."""

    def __init__(self, upto: int) -> None:
        self.followers = 0
        self.upto = upto
        self._from = upto
        self._events: list[Event] = []
        self._seqs: list[int] = []
        self._moved = asyncio.Event()
        self.behind = upto
        """The newest seq anyone told us of."""
        self.failed: BaseException | None = None
        self.reading: asyncio.Task[None] | None = None

    def since(self, after: int) -> Sequence[Event] | None:
        """What came after `after`; None if it lies before what the tail remembers."""
        if after < self._from:
            return None
        return self._events[bisect_right(self._seqs, after) :]

    def add(self, events: Sequence[Event], upto: int) -> None:
        """`events` are all there is between the end of the tail and `upto`."""
        self._events += events
        self._seqs += [event.seq for event in events]
        if len(self._events) > 2 * KEEP:
            self._from = self._seqs[-KEEP - 1]
            del self._events[:-KEEP], self._seqs[:-KEEP]
        self.upto = upto
        self.behind = max(self.behind, upto)
        self.wake()

    def wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def moved(self) -> None:
        # Taken hold of before it is awaited: a wake between the two is then not missed.
        await self._moved.wait()


class Following:
    """All the tails of a process. Only sessions that someone follows are watched."""

    def __init__(self, read: Callable[[str, int], Awaitable[Page]]) -> None:
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._tails: dict[str, Tail] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._closed = False

    def names(self) -> list[str]:
        """Whom to watch. Called by the watching thread."""
        return list(self._tails)

    def join(self, session: str, upto: int) -> Tail:
        tail = self._tails.get(session)
        if tail is None:
            tail = self._tails[session] = Tail(upto)
        tail.followers += 1
        self.look(session, upto)
        return tail

    def leave(self, session: str, tail: Tail) -> None:
        tail.followers -= 1
        if not tail.followers and self._tails.get(session) is tail:
            del self._tails[session]

    def appended(self, session: str, head_before: int, events: Sequence[Event]) -> None:
        """This process made these durable."""
        tail = self._tails.get(session)
        if tail is None or not events:
            return
        if tail.upto == head_before and tail.reading is None:
            tail.add(events, events[-1].seq)
        else:
            self.look(session, events[-1].seq)

    def moved(self, heads: Mapping[str, int]) -> None:
        """Someone else made these sessions longer. May be called from any thread."""
        if not self._closed:
            self._loop.call_soon_threadsafe(self._look_at, heads)

    def _look_at(self, heads: Mapping[str, int]) -> None:
        for session, head in heads.items():
            self.look(session, head)

    def look(self, session: str, head: int) -> None:
        """The session is said to be this long: read what its tail does not hold yet."""
        tail = self._tails.get(session)
        if tail is None or head <= tail.upto:
            return
        tail.behind = max(tail.behind, head)
        # Known to the tail and not by the session's name: one that was left may still be reading, and what it reads
        # is of no use to the one that took its place.
        if tail.reading is None and not self._closed:
            tail.reading = self._loop.create_task(self._catch_up(session, tail))
            self._reading.add(tail.reading)
            tail.reading.add_done_callback(self._reading.discard)

    async def _catch_up(self, session: str, tail: Tail) -> None:
        try:
            while tail.followers and tail.upto < tail.behind and not self._closed:
                page = await self._read(session, tail.upto)
                tail.add(page.events, page.upto)
        except Exception as why:
            # Told to every follower, each of whom raises it: nobody waits for what will not come.
            tail.failed = why
            if self._tails.get(session) is tail:
                del self._tails[session]
            tail.wake()
        finally:
            tail.reading = None

    async def close(self) -> None:
        self._closed = True
        for tail in self._tails.values():
            tail.failed = tail.failed or asyncio.CancelledError()
            tail.wake()
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
