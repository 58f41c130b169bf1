"""Looking after a store: is everything there, is everything derived right, and a copy that is proved to be one.

`doctor` mends only what is derived (heads, keys, kept folds), for that can be folded anew. What is damaged it names,
by session and seq, and leaves as it is: a wrong repair would be worse than a known loss.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from backports import zstd
from msgspec import Struct

from perdure.errors import NotStorable, PerdureError, StoreDamaged, StoreUnavailable
from perdure.events import Blob, Erased, Event, RecordErased, SessionTrashed, Unknown, Unreadable
from perdure.grammar import offences
from perdure.journal import Journal
from perdure.journal.admit import HEAD_VIEW
from perdure.journal.files import discard
from perdure.journal.heads import HeadCache, fold
from perdure.journal.reading import STEP, everything, spans, stored_session
from perdure.journal.rows import SALT, event_in, is_known, link_of, linked, plain_bytes
from perdure.journal.store import Listed, Store, Stored, Wanted
from perdure.views.head import VERSION, Head

log = logging.getLogger("perdure.journal")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, or that somebody should know."""

    kind: Literal["damage", "derived", "note"]
    """`damage` is lost or changed content; `derived` was wrong and could be folded anew; `note` is neither."""
    what: str
    session: str = ""
    seq: int | None = None
    mended: bool = False

    def __str__(self) -> str:
        place = f"session {self.session}" if self.session else "the store"
        at = f", seq {self.seq}" if self.seq is not None else ""
        return f"{place}{at}: {self.what}" + (" (mended)" if self.mended else "")


async def doctor(
    journal: Journal,
    session: str | None = None,
    *,
    mend: bool = True,
    looked: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Finding]:
    """Look at the whole store, or at one session, and yield what is wrong. `looked` hears of each session that is done.

    Nothing is changed but derived rows, and those only if `mend`.
    """
    if session is not None:
        for finding in await _examined(journal, session, mend):
            yield finding
        return
    for trouble in await journal.read_store(journal.store.check):
        yield Finding("damage" if trouble.lasting else "note", trouble.what)
        # Mending writes, and writing into a file whose own structure is damaged makes it worse.
        mend = mend and not trouble.lasting
    after = ""
    while ids := await journal.read_store(journal.store.ids, after, STEP):
        for after in ids:
            for finding in await _examined(journal, after, mend):
                yield finding
            looked(after)


async def _examined(journal: Journal, session: str, mend: bool) -> list[Finding]:
    store = journal.store
    found: list[Finding] = []

    def look() -> None:
        # One by one: what cannot be read hides nothing of what could be said before.
        found.extend(examine(store, session))

    try:
        await journal.read_store(look)
    except PerdureError as why:
        found.append(Finding("damage", f"cannot be read: {why}", session))
    return [await _mended(journal, f) if mend and f.kind == "derived" else f for f in found]


async def _mended(journal: Journal, finding: Finding) -> Finding:
    def mend() -> bool:
        stored = stored_session(journal.store, finding.session)
        keys = {e.key: e.seq for e in _own_events(journal.store, stored) if e.key is not None}
        for kept in journal.store.all_kept(stored.stretch):
            journal.store.forget(stored.stretch, kept)
        return journal.store.rederive(replace(stored, folded=_refolded(journal.store, stored)), keys)

    # Runs between two commits, so nobody appends between the refold and its writing; and a session that another
    # process moves meanwhile is left to the next look.
    return replace(finding, mended=await journal.write(mend))


def examine(store: Store, session: str) -> Iterator[Finding]:
    """Everything that can be said about one session, from its rows alone."""
    stored = stored_session(store, session)
    damaged = 0
    for seq, what in broken_rows(store, stored):
        damaged += 1
        yield Finding("damage", what, session, seq)
    if not damaged:  # otherwise the damage has been named, and what it opened or closed is not known
        yield from _offences(store, stored)
    yield from _wrong_blobs(store, stored)
    if not damaged:
        yield from _wrong_folds(store, stored)


def _offences(store: Store, stored: Stored) -> Iterator[Finding]:
    unjudged: list[Event] = []

    def known() -> Iterator[Event]:
        for event in everything(store, stored, stored.head):
            if not is_known(event):
                unjudged.append(event)
                return
            yield event

    for offence in offences(known()):
        yield Finding("damage", offence, stored.id)
    for event in unjudged:
        why = (
            "was erased" if isinstance(event.fact, Erased) else "is of a kind that this Perdure does not know"
        )
        yield Finding(
            "note", f"this record {why}, so the laws are not judged from here on", stored.id, event.seq
        )


def broken_rows(store: Store, stored: Stored) -> Iterator[tuple[int | None, str]]:
    """The rows of a session, the past it shares included, that are damaged, changed or missing."""
    begin = stored.lineage[-1][1] if stored.lineage else 0
    chain = b""
    erased: dict[int, bytes] = {}
    seq = before = 0
    for seq, data, checksum, seal in _rows(store, stored):
        event = event_in(seq, data, checksum)
        if isinstance(event.fact, Unreadable):
            yield seq, f"damaged: {event.fact.why}"
        elif isinstance(event.fact, Erased):
            erased[seq] = seal or b""
        elif (
            isinstance(event.fact, RecordErased)
            and erased.pop(event.fact.record, b"").hex() != event.fact.hash
        ):
            yield event.fact.record, "was erased, and what stands there is not what was left of it"
        if seal is None:
            continue
        is_whole = not isinstance(event.fact, Unreadable | Erased)
        if is_whole and linked(chain, seal[:SALT], plain_bytes(data)) != link_of(seal):
            between = f", between {before} and {seq}" if seq - before > 1 else ""
            yield seq, f"the chain breaks here: a fact before this one{between} is missing or was changed"
        chain, before = link_of(seal), seq
    for record in erased:
        if record > begin:  # what was erased of a past that is shared, another session may say
            yield record, "is empty, and no fact says that it was erased"
    if seq < stored.head:
        yield seq + 1, f"{stored.head - seq} records at the end are missing"
    elif beyond := store.seals(stored.stretch, stored.head, stored.head + STEP, 1):
        yield beyond[0][0], "there are events behind the end that the session's row gives"
    elif chain != stored.chain:
        yield None, "the chain does not end where the session says it does"


def _rows(store: Store, stored: Stored) -> Iterator[tuple[int, bytes, int, bytes | None]]:
    for stretch, low, high in spans(stored, stored.head):
        while rows := store.seals(stretch, low, high, STEP):
            yield from rows
            low = rows[-1][0]


def _wrong_folds(store: Store, stored: Stored) -> Iterator[Finding]:
    all_kept = store.all_kept(stored.stretch)
    there = {stored.head} | {kept.upto for kept in all_kept}
    heads = dict(_heads_at(store, stored, there))
    if heads.get(stored.head) != stored.folded:
        yield Finding("derived", "its head is not what its events say", stored.id)
    keys = {e.key: e.seq for e in _own_events(store, stored) if e.key is not None}
    if keys != store.keys(stored.stretch):
        yield Finding("derived", "its keys are not those of its events", stored.id)
    for kept in all_kept:
        head = heads.get(kept.upto)
        is_known = kept.view == HEAD_VIEW and kept.version == VERSION
        if not is_known or head is None or kept.state != HeadCache.pack(head):
            yield Finding(
                "derived",
                f"the kept fold {kept.view!r} up to {kept.upto} is wrong or of no known view",
                stored.id,
            )


def _heads_at(store: Store, stored: Stored, places: set[int]) -> Iterator[tuple[int, Head]]:
    """The head as it was at each of these places, in one pass: a long session has very many."""
    head, waiting = HeadCache.EMPTY, sorted(places, reverse=True)
    for event in everything(store, stored, stored.head):
        while waiting and waiting[-1] < event.seq:
            yield waiting.pop(), head
        head = head.after(event)
    while waiting and waiting[-1] <= stored.head:
        yield waiting.pop(), head


def _refolded(store: Store, stored: Stored) -> Head:
    return fold(everything(store, stored, stored.head))


def _own_events(store: Store, stored: Stored) -> Iterator[Event]:
    begin = stored.lineage[-1][1] if stored.lineage else 0
    return everything(store, stored, stored.head, after=begin)


def _wrong_blobs(store: Store, stored: Stored) -> Iterator[Finding]:
    for event in _own_events(store, stored):
        for blob in blobs_in(event.fact):
            if why := _wrong(store, blob):
                what = f"content {blob.hash[:12]}... ({blob.size} bytes) is {why}"
                yield Finding("damage", what, stored.id, event.seq)


def _wrong(store: Store, blob: Blob) -> str:
    try:
        row = store.blob(bytes.fromhex(blob.hash))
        if row is None:
            return "missing"
        content = zstd.decompress(row.data) if row.packed else row.data
    except (StoreDamaged, zstd.ZstdError, ValueError):
        return "damaged"
    return "" if sha256(content).hexdigest() == blob.hash else "damaged"


def blobs_in(value: object) -> Iterator[Blob]:
    """Every content that a fact speaks of."""
    if isinstance(value, Blob):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from blobs_in(item)
    elif isinstance(value, Struct) and not isinstance(value, Unknown):
        for name in value.__struct_fields__:
            yield from blobs_in(getattr(value, name))


async def backup(journal: Journal, target: Path) -> int:
    """Write everything there is into `target`, prove the copy by reading it, and say how many sessions it holds.

    Others may go on writing: the copy is of one moment. Raises `StoreUnavailable` if `target` exists or cannot be
    written, `StoreDamaged` if the copy is not whole; then nothing is left at `target`.
    """
    from perdure.journal import open as open_journal

    await asyncio.to_thread(_reserve, target)
    try:
        await asyncio.to_thread(journal.store.copy_to, target)
        async with await open_journal(f"sqlite:///{target}") as copy:
            wrong = [finding async for finding in doctor(copy, mend=False) if finding.kind == "damage"]
            count = await copy.count()
        if wrong:
            raise StoreDamaged(
                str(target), f"the copy is not whole: {wrong[0]}; run `perdure doctor` on the original"
            )
    except BaseException:
        await asyncio.to_thread(discard, target, "")
        raise
    finally:
        await asyncio.to_thread(discard, target, "-wal", "-shm", ".lock")
    return count


def _reserve(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise StoreUnavailable(str(target), "is there already; name a new file") from None
    except OSError as why:
        raise StoreUnavailable(str(target), f"cannot be written: {os.strerror(why.errno or 0)}") from why


async def prune(journal: Journal, hours: float, *, act: bool) -> list[Listed]:
    """Sessions that nobody has used for so long, oldest last; if `act`, they are moved to the trash.

    Pinned sessions and those where something is under way stay. Nothing is deleted: `SessionRestored` undoes it.
    """
    if not 0 < hours < 1e7:  # NaN is refused here too
        raise NotStorable(f"an age is a number of hours above 0, not {hours}")
    limit = journal.clock.wall() - int(hours * 3600 * 1e6)
    wanted = Wanted(("active", "archived", "ended"), after=(limit, ""), limit=STEP)
    old: list[Listed] = []
    while page := await journal.sessions(wanted):
        old += [
            one
            for one in page
            if one.head.updated_at < limit
            and not one.head.pinned
            and one.head.standing.at_rest
            and one.head.owner is None
        ]
        wanted = replace(wanted, after=page[-1].place)
    for one in old if act else ():
        await journal.append(one.id, SessionTrashed(reason=f"not used for {hours:g} hours"))
        log.info("pruned", extra={"session": one.id, "hours": hours})
    return old
