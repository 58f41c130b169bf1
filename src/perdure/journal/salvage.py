"""Saving what is intact from a damaged SQLite file into a fresh store.

Every row carries what is needed to recognise it: an event its checksum, content its hash, a session its id. So the
file's own structure is not trusted at all. Rows are found page by page, each is believed only if it proves itself, the
chain decides between two that claim one place (see `piecing`), and what holds the sessions together (keys, kept folds,
heads) is folded anew.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
from backports import zstd

from perdure.errors import StoreUnavailable
from perdure.events import Erased, Event, ForkedFrom, SessionCreated, Unreadable
from perdure.journal import new_sqlite_store
from perdure.journal.files import discard
from perdure.journal.heads import fold, unpacked
from perdure.journal.pages import Row as Found
from perdure.journal.pages import Scan, rows
from perdure.journal.piecing import Pieced, blank, piece_together
from perdure.journal.reading import chain_at, everything
from perdure.journal.rows import checksum, event_in
from perdure.journal.store import BlobRow, Lineage, RawEvent, Receiver, Stored
from perdure.views.head import Head

_STRETCH = 32
_FURTHEST = 100_000
"""How many events a session's row may claim beyond the last one found before it is taken for damaged."""


@dataclass(slots=True)
class Saved:
    """What a salvage brought home, and what it did not."""

    sessions: int = 0
    events: int = 0
    blobs: int = 0
    missing: list[str] = field(default_factory=list)
    """A sentence for each loss, with session and seq."""
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Named:
    """What a row of the list of sessions says of one of them."""

    stretch: int
    id: str
    lineage: Lineage = ()
    head: int = 0
    chain: bytes = b""
    batch: int = 0
    batch_seq: int = 0
    folded: Head | None = None
    """None if its own row was not found, or contradicts itself."""


@dataclass(slots=True)
class _Evidence:
    """Everything found that may be part of a session and could not be decided where it was found."""

    named: dict[int, list[_Named]] = field(default_factory=dict)
    rivals: dict[int, dict[int, list[RawEvent]]] = field(default_factory=dict)
    """By stretch and seq: rows whose place was taken by another when they were found."""
    blobs: set[bytes] = field(default_factory=set)


async def salvage(damaged: Path, target: Path, told: Callable[[str], None] = lambda _: None) -> Saved:
    """Write every intact event of `damaged` into a fresh store at `target`, and say what is missing.

    `damaged` is only read. Nobody else should have it open. If this fails, or nothing is found, nothing is left at `target`.
    """
    return await asyncio.to_thread(_salvage, damaged, target, told)


def _salvage(damaged: Path, target: Path, told: Callable[[str], None]) -> Saved:
    if target.exists():
        raise StoreUnavailable(str(target), "is there already; name a new file")
    if damaged.is_dir():
        raise StoreUnavailable(str(damaged), "is a folder; name the damaged file")
    if not damaged.is_file():
        raise StoreUnavailable(
            str(damaged), "is not there; name the damaged file, or make an empty one beside its -wal file"
        )
    try:
        saved = _saved(damaged, target, told)
    except BaseException:  # a full disk, for one: the next try needs the name, and half a store helps nobody
        discard(target, "", "-wal", "-shm", ".lock")
        raise
    discard(target, ".lock")
    if not saved.sessions and not saved.blobs:
        discard(target, "", "-wal", "-shm")
    return saved


def _saved(damaged: Path, target: Path, told: Callable[[str], None]) -> Saved:
    saved, scan = Saved(), Scan()
    store = new_sqlite_store(target)
    try:
        told(f"reading {damaged}")
        evidence = _gather(damaged, scan, store)
        sessions = _identified(store, evidence)
        told(f"putting {len(sessions)} sessions together")
        erased = 0
        for one in sessions:
            erased += _put_together(store, one, evidence, saved)
        if erased:  # content that it spoke of may have come back with it
            evidence.blobs &= _contents(store, sessions)
            store.drop_other_blobs(evidence.blobs)
        saved.blobs = len(evidence.blobs)
        saved.notes += _read_the_rest(damaged, store)
        saved.notes += scan.notes
        if scan.unreadable_cells:
            saved.notes.append(f"{scan.unreadable_cells} rows are partly there and cannot be read")
    finally:
        store.close()
    return saved


# Gathering


def _gather(damaged: Path, scan: Scan, store: Receiver) -> _Evidence:
    evidence = _Evidence()
    for batch in _batches(rows(damaged, scan)):
        events = [event for row in batch if (event := _event_in(row))]
        blobs = [blob for row in batch if (blob := _blob_in(row))]
        for row in batch:
            if named := _session_in(row):
                evidence.named.setdefault(named.stretch, []).append(named)
        for rival in store.receive(events, blobs):
            evidence.rivals.setdefault(rival.stretch, {}).setdefault(rival.seq, []).append(rival)
        evidence.blobs |= {blob.hash for blob in blobs}
    return evidence


def _batches(found: Iterator[Found]) -> Iterator[list[Found]]:
    batch: list[Found] = []
    size = 0
    for row in found:
        batch.append(row)
        size += sum(len(v) for v in row.values if isinstance(v, bytes | str))
        if len(batch) >= 2000 or size > 8 << 20:
            yield batch
            batch, size = [], 0
    yield batch


def _event_in(row: Found) -> RawEvent | None:
    match row.values:
        case [None, bytes(data), int(check), bytes() | None as seal] if row.rowid > 1 << _STRETCH:
            whole = checksum(data) == check and not isinstance(
                _decoded(row.rowid, data, check).fact, Unreadable
            )
            if whole and (seal is None or len(seal) in (32, 48)):
                return RawEvent(row.rowid >> _STRETCH, row.rowid & 0xFFFFFFFF, data, check, seal)
    return None


def _decoded(rowid: int, data: bytes, check: int) -> Event:
    return event_in(rowid & 0xFFFFFFFF, data, check)


def _blob_in(row: Found) -> BlobRow | None:
    match row.values:
        case [None, bytes(hash), int(size), int(packed), bytes(data)]:
            try:
                content = zstd.decompress(data) if packed else data
            except zstd.ZstdError:
                return None
            if len(content) == size and sha256(content).digest() == hash:
                return BlobRow(hash, size, bool(packed), data)
    return None


def _session_in(row: Found) -> _Named | None:
    """A row of the list has no checksum, but says twice who it is: in a column, and in the head it holds."""
    match row.values:
        case [
            None,
            str(id),
            str(lineage),
            int(head),
            bytes(chain),
            str(),
            str(),
            str(),
            int(),
            bytes(folded),
            *later,
        ]:
            try:
                spans = tuple((int(a), int(b)) for a, b in json.loads(lineage))
                head_of_it = unpacked(folded)
            except (ValueError, TypeError):
                return None
            batch, batch_seq = later[:2] if len(later) > 1 else (0, 0)
            if not isinstance(batch, int) or not isinstance(batch_seq, int) or not 0 < head < 1 << _STRETCH:
                return None
            if head_of_it.session != id or head_of_it.standing.seq > head:
                return None
            return _Named(row.rowid, id, spans, head, chain, batch, batch_seq, head_of_it)
    return None


# Who is who


def _identified(store: Receiver, evidence: _Evidence) -> list[_Named]:
    """One name for each stretch of which there is anything: its first event's word before that of its row, and of
    several rows the furthest."""
    here = {stretch: (first, last) for stretch, first, last in store.stretches()}
    sessions: list[_Named] = []
    taken: set[str] = set()
    for stretch in sorted(here.keys() | evidence.named.keys()):
        rows_of_it = sorted(evidence.named.get(stretch, []), key=lambda n: n.head)
        births = _births(store, stretch, here.get(stretch), evidence.rivals.get(stretch, {}))
        one = _identity(stretch, births, rows_of_it, sessions)
        if one.id in taken:
            one.id = f"lost{stretch:016}"
        taken.add(one.id)
        sessions.append(one)
    return sessions


def _births(
    store: Receiver, stretch: int, here: tuple[int, int] | None, rivals: dict[int, list[RawEvent]]
) -> list[SessionCreated | ForkedFrom]:
    """What the first event of a stretch says it is; several, if several claim that place."""
    if here is None:
        return []
    first = store.events(stretch, here[0] - 1, here[0], 1, False).events
    first += [event_in(one.seq, one.data, one.checksum) for one in rivals.get(here[0], [])]
    return [event.fact for event in first if isinstance(event.fact, SessionCreated | ForkedFrom)]


def _identity(
    stretch: int, births: list[SessionCreated | ForkedFrom], found: list[_Named], earlier: list[_Named]
) -> _Named:
    for birth in births:
        at = birth.at if isinstance(birth, ForkedFrom) else 0
        for named in reversed(found):
            if named.id == birth.session and at == (named.lineage[-1][1] if named.lineage else 0):
                return named
    match births:
        case [SessionCreated(session=id), *_]:
            return _Named(stretch, id)
        case [ForkedFrom(session=id, parent=parent, at=at), *_]:
            return _Named(stretch, id, _lineage_of(earlier, parent, at))
    return found[-1] if found else _Named(stretch, f"lost{stretch:016}")


def _lineage_of(named: list[_Named], parent: str, at: int) -> Lineage:
    found = next((n for n in named if n.id == parent), None)
    if found is None:
        return ()
    spans = [(stretch, upto) for stretch, upto in found.lineage if upto < at]
    return (*spans, (found.stretch, at))


# Putting together


def _put_together(store: Receiver, one: _Named, evidence: _Evidence, saved: Saved) -> int:
    """Make a session of what was found of it, and say how many records had to be erased once more."""
    begin = one.lineage[-1][1] if one.lineage else 0
    bare = Stored(one.stretch, one.id, one.lineage, max(begin, 1), b"", 0, 0, Head())
    start = chain_at(store, bare, begin) if begin else b""
    pieced = piece_together(store, one.stretch, begin, start, evidence.rivals.get(one.stretch, {}))
    whole = _whole(one, pieced, begin)
    erased = blank(store, whole, pieced.to_erase)
    lost = [*pieced.missing, *_lost_at_the_end(one, whole, pieced)]
    lost += _unexplained(everything(store, whole, whole.head, after=begin), pieced.to_erase)
    whole.folded = _folded(store, whole, one, pieced, bool(lost))
    keys = {e.key: e.seq for e in everything(store, whole, whole.head, after=begin) if e.key is not None}
    store.receive_session(whole, keys)
    saved.sessions += 1
    saved.events += pieced.kept - erased
    if pieced.strays:
        saved.notes.append(f"session {one.id}: {pieced.strays} rows that belong elsewhere were left out")
    lost += _contents_lost(everything(store, whole, whole.head, after=begin), evidence.blobs)
    saved.missing += [f"session {one.id}, {what}" for what in lost]
    if one.folded is None and pieced.last:
        saved.notes.append(
            f"session {one.id}: its row was lost; whether events after {pieced.last} are missing cannot be said"
        )
    return erased


def _whole(one: _Named, pieced: Pieced, begin: int) -> Stored:
    """The session's row. Where its own was found it goes on from the very place and link where it stood, for a seq
    that was given is never given again, and what is lost at the end shows as a break in the chain for ever."""
    last = max(pieced.last, begin)
    head, chain = last, pieced.link
    if one.folded is not None and one.head > last and one.head - last <= _FURTHEST:
        head = one.head
        if one.folded.standing.seq > pieced.last_fact:
            chain = one.chain
    return Stored(one.stretch, one.id, one.lineage, head, chain, one.batch, one.batch_seq, Head())


def _lost_at_the_end(one: _Named, whole: Stored, pieced: Pieced) -> list[str]:
    last = max(pieced.last, one.lineage[-1][1] if one.lineage else 0)
    if whole.head > last:
        return [f"seq {last + 1} to {whole.head}: missing at the end"]
    if not pieced.last and one.folded is None:
        return ["all of it"]
    return []


def _folded(store: Receiver, whole: Stored, one: _Named, pieced: Pieced, lost: bool) -> Head:
    """Folded anew where all is there. Where events are missing, the head that was stored knows more than they do."""
    if lost and one.folded is not None:
        since = one.folded.standing.seq
        return fold(everything(store, whole, whole.head, after=since), one.folded)
    return fold(everything(store, whole, whole.head))


def _unexplained(events: Iterator[Event], to_erase: Collection[int]) -> Iterator[str]:
    for event in events:
        if isinstance(event.fact, Erased) and event.seq not in to_erase:
            yield f"the record that erased {event.seq}: missing"


def _contents_lost(events: Iterator[Event], there: set[bytes]) -> Iterator[str]:
    from perdure.journal.care import blobs_in

    known = {hash.hex() for hash in there}
    for event in events:
        for blob in blobs_in(event.fact):
            if blob.hash not in known:
                yield f"content {blob.hash[:12]}... ({blob.size} bytes) of seq {event.seq}: missing"


def _contents(store: Receiver, sessions: list[_Named]) -> set[bytes]:
    from perdure.journal.care import blobs_in

    named: set[bytes] = set()
    for one in sessions:
        whole = store.session(one.id)
        for event in everything(store, whole, whole.head) if whole else ():
            if not isinstance(event.fact, Erased):
                named |= {bytes.fromhex(blob.hash) for blob in blobs_in(event.fact)}
    return named


def _read_the_rest(damaged: Path, store: Receiver) -> list[str]:
    """Drafts, read marks and tokens are no facts and prove nothing; they come along if SQLite can still read them."""
    notes: list[str] = []
    if damaged.stat().st_size <= 1:
        return notes  # SQLite would take it for a new database, and delete the log beside it
    try:
        db = apsw.Connection(_only_read(damaged), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            tables = [
                str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            ]
            foreign = [name for name in tables if not name.startswith(("perdure_", "sqlite_"))]
            if foreign:
                notes.append(f"tables that are not Perdure's are not saved: {', '.join(foreign)}")
            items: list[tuple[Any, ...]] = db.execute("SELECT kind, name, value FROM perdure_desk").fetchall()
        finally:
            db.close()
    except (apsw.Error, ValueError) as why:
        return [*notes, f"drafts, read marks and access tokens could not be read ({why})"]
    for kind, name, value in items:
        if isinstance(kind, str) and isinstance(name, str) and isinstance(value, bytes):
            store.put_on_desk(kind, name, value)
    return notes


def _only_read(damaged: Path) -> str:
    """The address by which SQLite makes no files beside this one, if there is no log that it has to read with it."""
    log = Path(f"{damaged}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return f"file:{quote(os.fsencode(damaged))}?immutable={int(not has_log)}"
