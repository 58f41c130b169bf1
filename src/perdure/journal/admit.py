"""What may be appended: the one place that decides it, for every store.

A batch of appends is held against the heads of its sessions, in memory, before anything is written. One that is
refused leaves no trace and its neighbours never notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perdure.codec import written
from perdure.errors import (
    AlreadyAppended,
    NotOwner,
    NotStorable,
    PerdureError,
    Refused,
    SessionEnded,
    SessionExists,
    SessionNotFound,
    SessionReadOnly,
)
from perdure.events import AnyFact, Event, Fact, MessageSent
from perdure.journal.heads import HeadCache
from perdure.journal.rows import Row, row_of
from perdure.journal.store import Append, Appended, BlobRow, Kept, Stored
from perdure.views.head import VERSION, Head

HEAD_VIEW = "head"
KEEP_EVERY = 128
"""Facts between two heads that are kept, so that a fork of a long session folds no more than this many."""


class Earlier(NamedTuple):
    """What a key was used for before."""

    seq: int
    events: tuple[Event, ...]


@dataclass(slots=True)
class Batch:
    """What one transaction is to write, and what to answer when it has."""

    outcomes: list[Appended | Exception] = field(default_factory=list)
    rows: list[tuple[int, Row]] = field(default_factory=list)
    keys: list[tuple[int, str, int]] = field(default_factory=list)
    keyed: dict[tuple[str, str], Earlier] = field(default_factory=dict)
    """What keys of a session were used for in this very batch: no store knows of it yet."""
    blobs: list[BlobRow] = field(default_factory=list)
    kept: list[tuple[int, Kept]] = field(default_factory=list)
    numbered: dict[str, tuple[Event, ...]] = field(default_factory=dict)
    """What the owner's latest append of this batch holds."""
    new: list[Stored] = field(default_factory=list)
    changed: dict[str, tuple[Head, Stored]] = field(default_factory=dict)
    """For each session that was there before: its head then, and all of it now."""


def admit(
    appends: Sequence[Append],
    stored: dict[str, Stored],
    find_key: Callable[[Stored, str, int], Earlier | None],
    allot: Callable[[], int],
    now: int,
    read: Callable[[Stored, int, int], Sequence[Event]] | None = None,
) -> Batch:
    """Decide each of `appends` in order. `stored` holds their sessions, and is brought up to date on the way.

    `find_key` answers what a key was used for (with as many events as the append has facts); `allot` gives the
    number of a new stretch; `read` the events of a session's own stretch, from a seq on, so many of them.
    """
    batch = Batch()
    for append in appends:
        try:
            outcome = _admit(batch, append, stored, find_key, allot, now, read)
        except PerdureError as refused:
            batch.outcomes.append(refused)
        else:
            batch.outcomes.append(outcome)
    return batch


def _admit(
    batch: Batch,
    append: Append,
    stored: dict[str, Stored],
    find_key: Callable[[Stored, str, int], Earlier | None],
    allot: Callable[[], int],
    now: int,
    read: Callable[[Stored, int, int], Sequence[Event]] | None,
) -> Appended:
    before = stored.get(append.session)
    if append.key is not None and before is not None:
        earlier = batch.keyed.get((before.id, append.key)) or find_key(before, append.key, len(append.facts))
        if repeated := _repeated(append, earlier):
            return repeated
    before, is_new = _opened(append, before, allot)
    if append.number and _is_asked_again(append, before):
        return _answered_again(append, before, batch, read)
    after, events, rows = _folded(append, before, now)
    # Nothing below can be refused: what follows is only remembered, to be written with the whole batch.
    batch.rows += [(after.stretch, row) for row in rows]
    batch.blobs += append.blobs
    if append.key is not None:
        batch.keys.append((after.stretch, append.key, events[0].seq))
        batch.keyed[after.id, append.key] = Earlier(events[0].seq, events)
    if append.number:
        batch.numbered[after.id] = events
    if after.folded.facts // KEEP_EVERY != before.folded.facts // KEEP_EVERY:
        kept = Kept(HEAD_VIEW, VERSION, after.head, HeadCache.pack(after.folded))
        batch.kept.append((after.stretch, kept))
    if is_new:
        batch.new.append(after)
    else:
        head_before, _ = batch.changed.get(after.id, (before.folded, before))
        batch.changed[after.id] = (head_before, after)
    stored[after.id] = after
    return Appended(events[0].seq, events[-1].seq, before.head, events)


def _opened(append: Append, stored: Stored | None, allot: Callable[[], int]) -> tuple[Stored, bool]:
    if not append.create:
        if stored is None:
            raise SessionNotFound(append.session)
        return stored, False
    if stored is not None:
        raise SessionExists(append.session, "is stored already")
    fork = append.fork
    if fork is None:
        return Stored(allot(), append.session, (), 0, b"", 0, 0, Head()), True
    return Stored(allot(), append.session, fork.lineage, fork.at, fork.chain, 0, 0, fork.folded), True


def _repeated(append: Append, earlier: Earlier | None) -> Appended | None:
    if earlier is None:
        return None
    if tuple(event.fact for event in earlier.events) != append.facts:
        raise AlreadyAppended(append.session, append.key or "", earlier.seq)
    return Appended(earlier.seq, earlier.events[-1].seq, earlier.seq - 1, repeated=True)


def _is_asked_again(append: Append, stored: Stored) -> bool:
    """The owner's appends are numbered: the last one, asked for again, is answered and not repeated."""
    if stored.folded.standing.epoch != append.epoch:
        raise NotOwner(append.session, f"epoch {append.epoch} was followed by {stored.folded.standing.epoch}")
    if append.number not in (stored.batch, stored.batch + 1):
        raise NotOwner(
            append.session, f"append {append.number} of epoch {append.epoch} follows {stored.batch}"
        )
    return append.number == stored.batch


def _answered_again(
    append: Append, stored: Stored, batch: Batch, read: Callable[[Stored, int, int], Sequence[Event]] | None
) -> Appended:
    first, count = stored.batch_seq, len(append.facts)
    if read is not None:
        there = batch.numbered.get(stored.id) or read(stored, first, count)
        if tuple(event.fact for event in there) != append.facts:
            raise AlreadyAppended(append.session, f"{append.epoch}/{append.number}", first)
    return Appended(first, first + count - 1, first - 1, repeated=True)


def _folded(append: Append, before: Stored, now: int) -> tuple[Stored, tuple[Event, ...], list[Row]]:
    head, seq, chain = before.folded, before.head, before.chain
    if head.read_only:
        raise SessionReadOnly(
            append.session, "holds facts of a newer Perdure; it can be read here, not written"
        )
    events, rows = [], []
    for fact, data in zip(append.facts, append.written or map(as_json, append.facts), strict=True):
        seq += 1
        key = append.key if seq == before.head + 1 else None
        event = Event(seq, now, 0 if fact.by == "anyone" else append.epoch, key, fact)
        if why := head.standing.objection(event):
            raise _refusal(append, head, fact, why)
        head = head.after(event)
        row, chain = row_of(event, data, chain)
        events.append(event)
        rows.append(row)
    if not all(-(1 << 63) <= at < 1 << 63 for at in (head.updated_at, head.runnable_at or 0)):
        raise NotStorable("a time in it is further away than a database can count")
    number, first = (append.number, before.head + 1) if append.number else (before.batch, before.batch_seq)
    if head.standing.epoch != before.folded.standing.epoch:
        number = 0
    after = Stored(before.stretch, before.id, before.lineage, seq, chain, number, first, head)
    return after, tuple(events), rows


def as_json(fact: AnyFact) -> bytes:
    return written(fact)[1]


def _refusal(append: Append, head: Head, fact: Fact, why: str) -> PerdureError:
    if fact.by == "owner" and append.epoch != head.standing.epoch:
        return NotOwner(append.session, why)
    if isinstance(fact, MessageSent) and head.standing.ended and not head.standing.trashed:
        return SessionEnded(append.session, why)
    return Refused(append.session, f"{type(fact).__name__}: {why}")
