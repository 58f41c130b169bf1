"""Which sessions a damaged SQLite file still tells of.

A list walks along an index and over the pages of the heads, so one page that cannot be read would hide every session
behind it. Here each head is read by itself, around what is damaged, and one that is lost is folded anew from the
session's events. The result is another list, in memory, that is asked the same questions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import apsw

from perdure.events import ForkedFrom, SessionCreated
from perdure.journal import migrate
from perdure.journal.heads import HeadCache, fold, unpacked
from perdure.journal.rows import link_of
from perdure.journal.store import Lineage, PageOfEvents, Stored, walk
from perdure.journal.walking import DAMAGE, FAR, STRETCH

_MOST_LOST = 100_000
_COLUMNS = "stretch, id, lineage, head, chain, batch, batch_seq, folded"
_KINDS = (int, str, str, int, bytes, int, int, bytes)

Events = Callable[[int, int, int, int], PageOfEvents]
"""The events of a stretch: after, up to, so many."""
Insert = Callable[[apsw.Connection, Stored], None]


def spared(db: apsw.Connection, events: Events, insert: Insert) -> tuple[apsw.Connection, list[str]]:
    """Every session that can still be known of, as a database of its own, and a sentence for each head that is lost."""
    last = _last_stretch(db)
    found, names = _heads(db, last), _names(db)
    said = []
    # A damaged page may also hide rows without an error, so each stretch that was not found is looked for.
    for stretch in (n for n in range(1, last + 1) if n not in found):
        stored = _refolded(db, events, stretch, names.get(stretch, ""), found)
        if stored is None:
            continue
        found[stretch] = stored
        said.append(
            f"session {stored.id}: its row is damaged; what is shown of it was folded from its events"
        )
    return _database(found, insert, said), said


def _heads(db: apsw.Connection, last: int) -> dict[int, Stored]:
    found: dict[int, Stored] = {}
    for stretch, row in _around(db, 0, last):
        with suppress(*DAMAGE):
            found[stretch] = _stored(row)
    return found


def _stored(row: Any) -> Stored:
    if row is None or not all(isinstance(value, kind) for value, kind in zip(row, _KINDS, strict=True)):
        raise ValueError("damaged")
    stretch, id, lineage, head, chain, batch, batch_seq, folded = row
    spans = tuple((int(a), int(b)) for a, b in json.loads(lineage))
    head_of_it = unpacked(folded)
    if head_of_it.session != id:
        raise ValueError("damaged")
    return Stored(stretch, id, spans, head, chain, batch, batch_seq, head_of_it)


def _around(db: apsw.Connection, low: int, high: int) -> Iterator[tuple[int, Any]]:
    """(stretch, row) for low < stretch <= high; the row is None where it cannot be read."""
    if low >= high:
        return
    try:
        rows: list[Any] = db.execute(
            f"SELECT {_COLUMNS} FROM perdure_sessions NOT INDEXED WHERE stretch > ? AND stretch <= ? ORDER BY stretch",
            (low, high),
        ).fetchall()
    except DAMAGE:
        if high - low == 1:
            yield high, None
            return
        yield from _around(db, low, (low + high) // 2)
        yield from _around(db, (low + high) // 2, high)
    else:
        yield from ((int(row[0] or 0), row) for row in rows)


def _last_stretch(db: apsw.Connection) -> int:
    """The last one there can be. None of the three places is believed alone, for a wrong bit may make it huge."""
    found = []
    for sql in (
        "SELECT seq FROM sqlite_sequence WHERE name = 'perdure_sessions'",
        f"SELECT max(id) >> {STRETCH} FROM perdure_events",
        "SELECT max(stretch) FROM perdure_sessions",
    ):
        with suppress(*DAMAGE):
            row = db.execute(sql).fetchone()
            if row and isinstance(row[0], int) and row[0] > 0:
                found.append(row[0])
    nearest = min(found, default=0)
    return max((n for n in found if n <= nearest + _MOST_LOST), default=0)


def _names(db: apsw.Connection) -> dict[int, str]:
    """What the index of the list says the sessions are called, as far as it can be read."""
    names: dict[int, str] = {}
    with suppress(*DAMAGE):
        for stretch, id in db.execute(
            "SELECT stretch, id FROM perdure_sessions INDEXED BY perdure_sessions_by_activity"
        ):
            names[stretch] = id
    return names


def _refolded(
    db: apsw.Connection, events: Events, stretch: int, name: str, found: dict[int, Stored]
) -> Stored | None:
    first = events(stretch, 0, (1 << STRETCH) - 1, 1).events
    lineage: Lineage = ()
    match first[0].fact if first else None:
        case SessionCreated(session=id):
            name = id
        case ForkedFrom(session=id, parent=parent, at=at):
            name, lineage = id, _lineage(found, parent, at)
        case None if not name:
            return None  # there is nothing there, and never was
    head, chain = _end(db, stretch)
    stored = Stored(stretch, name or f"lost{stretch:016}", lineage, head, chain, 0, 0, HeadCache.EMPTY)
    stored.folded = fold(
        event for span, low, high in _spans(stored) for event in _all(events, span, low, high)
    )
    return stored


def _lineage(found: dict[int, Stored], parent: str, at: int) -> Lineage:
    known = next((stored for stored in found.values() if stored.id == parent), None)
    if known is None:
        return ()
    return (*((s, upto) for s, upto in known.lineage if upto < at), (known.stretch, at))


def _end(db: apsw.Connection, stretch: int) -> tuple[int, bytes]:
    """The last event of a stretch that can be reached, and the last link."""
    last, chain, base = 0, b"", stretch << STRETCH
    with suppress(*DAMAGE):
        for id, seal in db.execute(
            "SELECT id, seal FROM perdure_events WHERE id > ? AND id < ? ORDER BY id",
            (base, base + (1 << STRETCH)),
        ):
            if last < id - base < 1 << STRETCH:  # a page in the wrong place answers with rows of others
                last, chain = id - base, link_of(seal) if seal else chain
    with suppress(*DAMAGE):
        for id, seal in db.execute(
            "SELECT id, seal FROM perdure_events WHERE id > ? AND id < ? ORDER BY id DESC LIMIT 1",
            (base, base + (1 << STRETCH)),
        ):
            if last < id - base < 1 << STRETCH:
                last, chain = id - base, link_of(seal) if seal else b""
    # A page in the wrong place ends a walk early, and hides nothing from who asks for a row by its number.
    seq = last
    while seq < last + FAR:
        seq += 1
        with suppress(*DAMAGE):
            for (seal,) in db.execute("SELECT seal FROM perdure_events WHERE id = ?", (base | seq,)):
                last, chain = seq, link_of(seal) if seal else chain
    return last, chain


def _spans(stored: Stored) -> Iterator[tuple[int, int, int]]:
    low = 0
    for stretch, high in walk(stored):
        yield stretch, low, high
        low = high


def _all(events: Events, stretch: int, low: int, high: int) -> Iterator[Any]:
    while low < high:
        page = events(stretch, low, high, 1000)
        yield from page.events
        low = page.events[-1].seq if page.more else high


def _database(found: dict[int, Stored], insert: Insert, said: list[str]) -> apsw.Connection:
    db = apsw.Connection(":memory:")
    migrate.apply("sqlite", 0, db.execute)
    for stored in found.values():
        try:
            insert(db, stored)
        except apsw.ConstraintError:
            said.append(f"session {stored.id}: two rows have this id")
    return db
