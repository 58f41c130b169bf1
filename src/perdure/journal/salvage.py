"""Saving what is intact from a damaged SQLite file into a fresh store.

Every row carries what is needed to recognise it: an event its checksum, content its hash, a session its id. So the
file's own structure is not trusted at all. Rows are found page by page, each is believed only if it proves itself,
and what holds the sessions together (heads, keys, kept folds) is folded anew.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
from backports import zstd

from perdure.errors import StoreUnavailable
from perdure.events import Erased, Event, ForkedFrom, SessionCreated, Unreadable
from perdure.journal import new_sqlite_store
from perdure.journal.care import broken_rows
from perdure.journal.heads import fold
from perdure.journal.pages import Row as Found
from perdure.journal.pages import Scan, rows
from perdure.journal.reading import everything
from perdure.journal.rows import checksum, event_in
from perdure.journal.store import BlobRow, Lineage, RawEvent, Receiver, Stored
from perdure.views.head import Head

_STRETCH = 32


@dataclass(slots=True)
class Saved:
    """What a salvage brought home, and what it did not."""

    sessions: int = 0
    events: int = 0
    blobs: int = 0
    missing: list[str] = field(default_factory=list)
    """A sentence for each loss, with session and seq."""
    notes: list[str] = field(default_factory=list)


async def salvage(damaged: Path, target: Path, told: Callable[[str], None] = lambda _: None) -> Saved:
    """Write every intact event of `damaged` into a fresh store at `target`, and say what is missing.

    `damaged` is only read. Nobody else should have it open.
    """
    return await asyncio.to_thread(_salvage, damaged, target, told)


def _salvage(damaged: Path, target: Path, told: Callable[[str], None]) -> Saved:
    if target.exists():
        raise StoreUnavailable(str(target), "is there already; name a new file")
    if not damaged.exists():
        raise StoreUnavailable(str(damaged), "is not there; name the damaged file")
    saved, scan = Saved(), Scan()
    store = new_sqlite_store(target)
    try:
        named: dict[int, _Named] = {}
        told(f"reading {damaged}")
        for batch in _batches(rows(damaged, scan)):
            events = [event for row in batch if (event := _event_in(row))]
            blobs = [blob for row in batch if (blob := _blob_in(row))]
            for row in batch:
                if session := _session_in(row):
                    known = named.get(session.stretch)
                    if known is None or known.head < session.head:
                        named[session.stretch] = session
            store.receive(events, blobs)
            saved.blobs += len(blobs)
        _name_the_nameless(store, named, saved)
        told(f"putting {len(named)} sessions together")
        for stretch in sorted(named):
            _put_together(store, named, stretch, saved)
        saved.notes += _read_desk(damaged, store)
        saved.notes += scan.notes
        if scan.unreadable_cells:
            saved.notes.append(f"{scan.unreadable_cells} rows are partly there and cannot be read")
    finally:
        store.close()
    return saved


@dataclass(slots=True)
class _Named:
    stretch: int
    id: str
    lineage: Lineage = ()
    head: int = 0
    batch: int = 0
    batch_seq: int = 0
    found: bool = True
    """Its own row was there, so `head` says how far it went."""


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
            return BlobRow(hash, size, bool(packed), data) if sha256(content).digest() == hash else None
    return None


def _session_in(row: Found) -> _Named | None:
    match row.values:
        case [None, str(id), str(lineage), int(head), bytes(), str(), str(), str(), int(), bytes(), *later]:
            try:
                spans = tuple((int(a), int(b)) for a, b in json.loads(lineage))
            except (ValueError, TypeError):
                return None
            batch, batch_seq = (later[0], later[1]) if len(later) > 1 else (0, 0)
            if not (isinstance(batch, int) and isinstance(batch_seq, int)):
                return None
            return _Named(row.rowid, id, spans, head, batch, batch_seq)
    return None


def _name_the_nameless(store: Receiver, named: dict[int, _Named], saved: Saved) -> None:
    """Sessions whose own row is lost are named by their first event, which says who they are."""
    for stretch, first, last in store.stretches():
        if stretch in named:
            continue
        event = store.events(stretch, first - 1, first, 1, False).events[0]
        match event.fact:
            case SessionCreated(session=id):
                named[stretch] = _Named(stretch, id, (), last, found=False)
            case ForkedFrom(session=id, parent=parent, at=at):
                named[stretch] = _Named(stretch, id, _lineage_of(named, parent, at), last, found=False)
            case _:
                named[stretch] = _Named(stretch, f"lost{stretch:016}", (), last, found=False)
                saved.missing.append(
                    f"the beginning of a session, of which events {first} to {last} are saved as lost{stretch:016}"
                )
        if last > named[stretch].head:
            named[stretch].head = last


def _lineage_of(named: dict[int, _Named], parent: str, at: int) -> Lineage:
    found = next((n for n in named.values() if n.id == parent), None)
    if found is None:
        return ()
    spans = [(stretch, upto) for stretch, upto in found.lineage if upto < at]
    return (*spans, (found.stretch, at))


def _put_together(store: Receiver, named: dict[int, _Named], stretch: int, saved: Saved) -> None:
    one = named[stretch]
    last, link = store.end_of(stretch)
    bare = Stored(stretch, one.id, one.lineage, max(one.head, last), link, one.batch, one.batch_seq, Head())
    lost = [(seq, what) for seq, what in broken_rows(store, bare)]
    whole = Stored(
        stretch, one.id, one.lineage, max(last, _begin(one)), link, one.batch, one.batch_seq, Head()
    )
    events = list(everything(store, whole, whole.head))
    whole.folded = fold(events)
    keys = {e.key: e.seq for e in events if e.key is not None and e.seq > _begin(one)}
    store.receive_session(whole, keys)
    saved.sessions += 1
    saved.events += sum(e.seq > _begin(one) and not isinstance(e.fact, Erased) for e in events)
    for seq, what in lost:
        saved.missing.append(f"session {one.id}" + (f", seq {seq}" if seq else "") + f": {what}")
    if not one.found:
        saved.notes.append(
            f"session {one.id}: its row was lost; whether events after {last} are missing cannot be said"
        )


def _begin(one: _Named) -> int:
    return one.lineage[-1][1] if one.lineage else 0


def _read_desk(damaged: Path, store: Receiver) -> list[str]:
    """Drafts, read marks and tokens are no facts and prove nothing; they come along if SQLite can still read them."""
    try:
        db = apsw.Connection(str(damaged), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            items: list[tuple[Any, ...]] = db.execute("SELECT kind, name, value FROM perdure_desk").fetchall()
        finally:
            db.close()
    except apsw.Error as why:
        return [f"drafts, read marks and access tokens could not be read ({why})"]
    for kind, name, value in items:
        store.put_on_desk(str(kind), str(name), bytes(value))
    return []
