"""Looking after a store: is everything there, is everything derived right, and a copy that is proved to be one.

`doctor` mends only what is derived (heads, keys, kept folds), for that can be folded anew. What is damaged it names,
by session and seq, and leaves as it is: a wrong repair would be worse than a known loss.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from backports import zstd
from msgspec import Struct

from perdure.errors import NotStorable, PerdureError, StoreDamaged, StoreUnavailable
from perdure.events import (
    Blob,
    Erased,
    Event,
    ForkedFrom,
    RecordErased,
    SessionCreated,
    SessionTrashed,
    Unknown,
    Unreadable,
)
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
    is_sound = True
    for trouble in await journal.read_store(journal.store.check):
        yield Finding("damage" if trouble.lasting else "note", trouble.what)
        # Mending writes, and writing into a file whose own structure is damaged makes it worse.
        mend = mend and not trouble.lasting
        is_sound = is_sound and not trouble.lasting
    if is_sound:
        for stretch, count in await journal.read_store(journal.store.strays):
            yield Finding("damage", f"events of stretch {stretch}, {count} of them, belong to no session")
            mend = False  # a salvage is due, and wants the file as it is
        for name in await journal.read_store(journal.store.missing_indexes):
            if mend:
                await journal.write(partial(journal.store.make_index, name))
            yield Finding("derived", f"the index {name} is missing or is not as it should be", mended=mend)
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
    for broken in broken_rows(store, stored):
        damaged += 1
        yield Finding("damage", broken.what, session, broken.seq)
    if not damaged:  # otherwise the damage has been named, and what it opened or closed is not known
        yield from _wrong_birth(store, stored)
        yield from _offences(store, stored)
    yield from _wrong_blobs(store, stored)
    if not damaged:
        yield from _wrong_folds(store, stored)


def _wrong_birth(store: Store, stored: Stored) -> Iterator[Finding]:
    begin = stored.lineage[-1][1] if stored.lineage else 0
    for event in store.events(stored.stretch, begin, stored.head, 1, False).events:
        match event.fact:
            case SessionCreated(session=id):
                says = (id, 0)
            case ForkedFrom(session=id, at=at):
                says = (id, at)
            case _ if not is_known(event):
                continue
            case _:
                says = ("", 0)
        if says != (stored.id, begin):
            what = "its row in the list has another id, or another beginning, than its own first event"
            yield Finding("damage", what, stored.id, event.seq)


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


class Broken(NamedTuple):
    """A place in a session where something is damaged, changed or missing."""

    seq: int | None
    what: str
    lost: int = 0
    """How many events cannot be read, as far as that can be counted: behind a break in the chain it cannot."""


async def broken(journal: Journal, session: str) -> list[Broken]:
    """Every such place of a session. Reads all of its events, and folds nothing."""
    return await journal.read_store(
        lambda: list(broken_rows(journal.store, stored_session(journal.store, session)))
    )


def broken_rows(store: Store, stored: Stored) -> Iterator[Broken]:
    """The rows of a session, the past it shares included, that are damaged, changed or missing."""
    begin = stored.lineage[-1][1] if stored.lineage else 0
    chain = b""
    erased: dict[int, bytes] = {}
    seq = before = 0
    for seq, data, checksum, seal in _rows(store, stored):
        event = event_in(seq, data, checksum)
        if isinstance(event.fact, Unreadable):
            yield Broken(seq, f"damaged: {event.fact.why}", 1)
        elif isinstance(event.fact, Erased):
            erased[seq] = seal or b""
        elif (
            isinstance(event.fact, RecordErased)
            and erased.pop(event.fact.record, b"").hex() != event.fact.hash
        ):
            yield Broken(event.fact.record, "was erased, and what stands there is not what was left of it")
        if seal is None:
            continue
        is_whole = not isinstance(event.fact, Unreadable | Erased)
        if is_whole and linked(chain, seal[:SALT], plain_bytes(data)) != link_of(seal):
            between = f", between {before} and {seq}" if seq - before > 1 else ""
            what = f"the chain breaks here: a fact before this one{between} is missing or was changed"
            yield Broken(seq, what)
        chain, before = link_of(seal), seq
    for record in erased:
        if record > begin:  # what was erased of a past that is shared, another session may say
            yield Broken(record, "is empty, and no fact says that it was erased")
    if seq < stored.head:
        lost = stored.head - seq
        yield Broken(seq + 1, f"{lost} records at the end are missing", lost)
    elif chain != stored.chain:
        yield Broken(None, "the chain does not end where the session says it does")
    else:
        beyond = store.seals(stored.stretch, stored.head, stored.head + STEP, 1)
        if beyond and not _has_moved(store, stored):
            yield Broken(beyond[0][0], "there are events behind the end that the session's row gives")


def _has_moved(store: Store, stored: Stored) -> bool:
    """Others may append while a session is looked at; what they have brought is the next look's."""
    return store.heads([stored.id]).get(stored.id) != stored.head


def _rows(store: Store, stored: Stored) -> Iterator[tuple[int, bytes, int, bytes | None]]:
    for stretch, low, high in spans(stored, stored.head):
        while rows := store.seals(stretch, low, high, STEP):
            yield from rows
            low = rows[-1][0]


def _wrong_folds(store: Store, stored: Stored) -> Iterator[Finding]:
    all_kept = store.all_kept(stored.stretch)
    if _has_moved(store, stored):
        all_kept = [kept for kept in all_kept if kept.upto <= stored.head]
    there = {stored.head} | {kept.upto for kept in all_kept}
    heads = dict(_heads_at(store, stored, there))
    if heads.get(stored.head) != stored.folded:
        yield Finding("derived", "its head is not what its events say", stored.id)
    elif not store.is_listed(stored):
        yield Finding("derived", "its row in the list is not what its events say", stored.id)
    keys = {e.key: e.seq for e in _own_events(store, stored) if e.key is not None}
    if keys != store.keys(stored.stretch) and not _has_moved(store, stored):
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

    Others may go on writing: the copy is of one moment. It is made beside `target`, and given that name only when it
    is proved. Raises `StoreUnavailable` if `target` exists or cannot be written, `StoreDamaged` if the copy is not
    whole; then nothing is left.
    """
    from perdure.journal import open as open_journal

    unfinished = await asyncio.to_thread(_begun, target)
    try:
        await asyncio.to_thread(journal.store.copy_to, unfinished)
        async with await open_journal(f"sqlite:///{unfinished}") as copy:
            wrong = [finding async for finding in doctor(copy, mend=False) if finding.kind == "damage"]
            count = await copy.count()
        if wrong:
            raise StoreDamaged(
                str(target), f"the copy is not whole: {wrong[0]}; run `perdure doctor` on the original"
            )
        await asyncio.to_thread(_finish, unfinished, target)
    finally:
        await asyncio.to_thread(discard, unfinished, "", "-wal", "-shm", ".lock")
    return count


def _begun(target: Path) -> Path:
    """An empty private file beside `target`. Its name is a new one each time: a backup that was killed may have left
    another."""
    with _writing(target):
        if os.path.lexists(target):
            raise FileExistsError
        file, name = tempfile.mkstemp(prefix=f".{target.name}.unfinished-", dir=target.parent)
        os.close(file)
    return Path(name)


def _finish(unfinished: Path, target: Path) -> None:
    """Give the file its name, for good, unless somebody has taken that name meanwhile."""
    with _writing(target):
        try:
            os.link(unfinished, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without links, as on many a stick: the name is taken first
            os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            unfinished.replace(target)
        folder = os.open(target.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise StoreUnavailable(str(target), "is there already; name a new file") from None
    except FileNotFoundError:
        raise StoreUnavailable(
            str(target), f"the folder {target.parent} is not there; make it first"
        ) from None
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
