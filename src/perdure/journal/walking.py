"""Events of a stretch in their order, and around what is damaged.

A page of the file that cannot be read would hide every event behind it, and one that lies where another should makes
SQLite answer out of order or too little, without an error. So what a walk finds is looked over, which costs next to
nothing where all is well. Otherwise the range is halved until what is intact has been read around the damage, and what
a walk passes over is asked for by its number.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, itemgetter, lt
from typing import Any, Generic, TypeVar

import apsw

from perdure.events import Event, Unreadable
from perdure.journal.rows import event_in
from perdure.journal.speaking import Speaking
from perdure.journal.store import PageOfEvents

DAMAGE = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.NoMemError,
    apsw.TooBigError,
    UnicodeDecodeError,
    ValueError,
    TypeError,
)
"""What reading a damaged page may come to: SQLite notices, or hands out values that cannot be."""
STRETCH = 32
"""An event's id is the number of its stretch, shifted by so many bits, and its seq."""
FAR = 200
"""Behind the last event that a walk finds: more than the rows of a page or two."""
PAGE_BYTES = 4 << 20
RAW_EVENT = "SELECT data, checksum, seal FROM perdure_events WHERE id = ?"

Seal = tuple[int, bytes, int, bytes | None]
"""seq, data, checksum and seal, as stored."""
T = TypeVar("T")


def events(
    db: apsw.Connection,
    speaking: Speaking,
    stretch: int,
    after: int,
    upto: int,
    limit: int,
    backwards: bool = False,
) -> PageOfEvents:
    """As `Store.events`. An event is expected at `upto`: a walk that ends before it is not believed."""
    walk = _Walk(db, speaking, _EVENTS, stretch, backwards)
    return PageOfEvents(*walk.page(after, upto, limit))


def seals(
    db: apsw.Connection, speaking: Speaking, stretch: int, after: int, upto: int, limit: int
) -> list[Seal]:
    """As `Store.seals`."""
    return _Walk(db, speaking, _SEALS, stretch).page(after, upto, limit)[0]


def refuse_disorder(places: list[Any]) -> None:
    """A page that lies where another should makes SQLite answer out of order, without an error; whoever goes on from
    the last row of such an answer would never come to an end."""
    if not all(map(lt, places, places[1:])):
        raise ValueError("rows that are not in order")


@dataclass(frozen=True, slots=True)
class _Form(Generic[T]):
    """What is made of a row."""

    columns: str
    taken: Callable[[apsw.Cursor, int, int], tuple[list[T], bool]]
    """What so many of these rows hold, whose ids are counted from a base, and whether there are more."""
    read: Callable[..., T]
    """What a row holds that was asked for by its number."""
    lost: Callable[[int], T]
    """What stands for one that cannot be read."""
    seq: Callable[[T], int]
    ends: bool
    """What is to be read ends with a row, unless there is damage."""


class _Walk(Generic[T]):
    """One way through a stretch, forwards or backwards. What it gives back is ascending all the same."""

    __slots__ = ("_backwards", "_base", "_db", "_form", "_speaking")

    def __init__(
        self,
        db: apsw.Connection,
        speaking: Speaking,
        form: _Form[T],
        stretch: int,
        backwards: bool = False,
    ) -> None:
        self._db, self._speaking, self._form = db, speaking, form
        self._base, self._backwards = stretch << STRETCH, backwards

    def page(self, after: int, upto: int, limit: int) -> tuple[list[T], bool]:
        if after >= upto:
            return [], False
        found, more = self._walked(after, upto, limit)
        low, high = self._left(found, after, upto)
        # A walk that ends too early has been led astray by a page, or not all is there; who asks by number may still
        # find the rest.
        while low < high and not more and (seq := self._missed(low, high)):
            if len(found) >= limit:
                return found, True
            found = self._joined(found, self._single(seq))
            low, high = self._beyond(seq, low, high)
            rest, more = self._walked(low, high, limit - len(found))
            found = self._joined(found, rest)
            low, high = self._left(rest, low, high)
        return found, more

    def _walked(self, after: int, upto: int, limit: int) -> tuple[list[T], bool]:
        if after >= upto:
            return [], False
        try:
            return self._straight(after, upto, limit)
        except DAMAGE:
            self._speaking.damaged = True
            return self._around_damage(after, upto, limit)

    def _straight(self, after: int, upto: int, limit: int) -> tuple[list[T], bool]:
        order = "DESC" if self._backwards else "ASC"
        rows = self._db.execute(
            f"SELECT id, {self._form.columns} FROM perdure_events WHERE id > ? AND id <= ? "
            f"ORDER BY id {order} LIMIT ?",
            (self._base + after, self._base + upto, limit + 1),
        )
        try:
            found, more = self._form.taken(rows, self._base, limit)
        finally:
            rows.close()
        if self._backwards:
            found.reverse()
        seqs = [after, *map(self._form.seq, found), upto + 1]
        refuse_disorder(seqs)
        self._refuse_gaps(seqs[1:-1] if self._backwards else seqs[:-1])
        return found, more

    def _around_damage(self, after: int, upto: int, limit: int) -> tuple[list[T], bool]:
        """A page of the file cannot be read: halve the range until what is intact has been read around it."""
        if upto - after == 1:
            return self._single(upto), False
        middle = (after + upto) // 2
        halves = [(after, middle), (middle, upto)]
        found: list[T] = []
        for low, high in reversed(halves) if self._backwards else halves:
            half, more = self.page(low, high, limit - len(found))
            found = self._joined(found, half)
            if more or len(found) >= limit:
                return found, True
        return found, False

    def _refuse_gaps(self, seqs: list[int]) -> None:
        """Where pieces were dropped there is nothing between two rows. Behind a page in the wrong place there is."""
        if not seqs or seqs[-1] - seqs[0] + 1 == len(seqs):
            return
        for low, high in pairwise(seqs):
            if high - low > 1 and any(self._is_there(seq) for seq in {low + 1, high - 1}):
                raise ValueError("rows that are passed over")

    def _missed(self, after: int, upto: int) -> int | None:
        """The nearest event with after < seq <= upto that can be found by its number, unless it is far away."""
        if not (self._form.ends or self._speaking.damaged):
            return None
        near = (
            range(upto, max(after, upto - FAR), -1)
            if self._backwards
            else range(after + 1, min(upto, after + FAR) + 1)
        )
        return next(filter(self._is_there, near), None)

    def _is_there(self, seq: int) -> bool:
        with suppress(*DAMAGE):
            row = self._db.execute(
                "SELECT 1 FROM perdure_events WHERE id = ?", (self._base | seq,)
            ).fetchone()
            return row is not None
        return False

    def _single(self, seq: int) -> list[T]:
        try:
            row = self._db.execute(RAW_EVENT, (self._base | seq,)).fetchone()
            return [self._form.read(seq, *row)] if row else []
        except DAMAGE:
            return [self._form.lost(seq)]

    def _joined(self, found: list[T], more: list[T]) -> list[T]:
        return more + found if self._backwards else found + more

    def _left(self, found: list[T], after: int, upto: int) -> tuple[int, int]:
        """What of after < seq <= upto lies beyond these."""
        if not found:
            return after, upto
        return self._beyond(self._form.seq(found[0 if self._backwards else -1]), after, upto)

    def _beyond(self, seq: int, after: int, upto: int) -> tuple[int, int]:
        return (after, seq - 1) if self._backwards else (seq, upto)


def _taken_events(rows: apsw.Cursor, base: int, limit: int) -> tuple[list[Event], bool]:
    found: list[Event] = []
    size = 0
    id: Any
    data: Any
    checksum: Any
    for id, data, checksum in rows:
        if len(found) == limit or size > PAGE_BYTES:
            return found, True
        size += len(data)
        found.append(event_in(id - base, data, checksum))
    return found, False


def _lost_event(seq: int) -> Event:
    return Event(seq, 0, 0, None, Unreadable(why="it lies on a damaged page of the file"))


def _taken_seals(rows: apsw.Cursor, base: int, limit: int) -> tuple[list[Seal], bool]:
    there: list[Any] = rows.fetchall()
    found = [_seal(id - base, data, checksum, seal) for id, data, checksum, seal in there[:limit]]
    return found, len(there) > limit


def _seal(seq: int, data: Any, checksum: Any, seal: bytes | None) -> Seal:
    return seq, memoryview(data).tobytes(), int(checksum), seal


def _lost_seal(seq: int) -> Seal:
    return seq, b"", 0, None  # nothing has this checksum: it is read as damaged


_EVENTS: _Form[Event] = _Form(
    "data, checksum",
    _taken_events,
    lambda seq, data, checksum, _: event_in(seq, data, checksum),
    _lost_event,
    attrgetter("seq"),
    ends=True,
)
_SEALS: _Form[Seal] = _Form(
    "data, checksum, seal", _taken_seals, _seal, _lost_seal, itemgetter(0), ends=False
)
