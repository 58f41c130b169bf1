"""What a doctor finds in a store that somebody has changed behind our back, and what it mends; backups; pruning."""

import asyncio
import stat
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from perdure import journal
from perdure.codec import written
from perdure.errors import NotStorable, StoreDamaged, StoreUnavailable
from perdure.events import (
    Event,
    MessageSent,
    SessionPinned,
    SessionRestored,
    SessionTrashed,
    Text,
    TurnEnded,
    TurnStarted,
)
from perdure.journal import Journal, Kept, blob_of
from perdure.journal.admit import HEAD_VIEW
from perdure.journal.care import Finding, backup, doctor, prune
from perdure.journal.heads import HeadCache, fold
from perdure.journal.reading import stored_session
from perdure.journal.rows import LINK, checksum, row_of
from perdure.testing.clock import ManualClock
from perdure.testing.contract.telling import following
from perdure.testing.journals import faults, whole
from perdure.views.head import VERSION
from tests.laws.stores import emptied

pytestmark = pytest.mark.anyio

PICTURE = bytes(range(256)) * 100


@dataclass
class Place:
    """A store, and a way to change its rows without it."""

    url: str
    stretch: int = 0
    """Of the session that is going to be changed."""

    async def open(self, **more: Any) -> Journal:
        return await journal.open(self.url, **more)

    def change(self, sql: str, *values: object) -> None:
        if self._is_file:
            db = apsw.Connection(self.url.removeprefix("sqlite:///"))
            db.execute(sql, values)
            changes = db.changes()
            db.close()
        else:
            with psycopg.connect(self.url) as other:
                changes = other.execute(sql.replace("?", "%s"), values).rowcount
        assert changes == 1

    def change_event(self, seq: int, **columns: object) -> None:
        names = ", ".join(f"{name} = ?" for name in columns)
        self.change(f"UPDATE perdure_events SET {names} WHERE {self._row(seq)}", *columns.values())

    def delete_event(self, seq: int) -> None:
        self.change(f"DELETE FROM perdure_events WHERE {self._row(seq)}")

    def add_event(self, seq: int, **columns: object) -> None:
        place = {"id": self.stretch << 32 | seq} if self._is_file else {"stretch": self.stretch, "seq": seq}
        columns = {**place, **columns}
        marks = ", ".join("?" * len(columns))
        self.change(f"INSERT INTO perdure_events ({', '.join(columns)}) VALUES ({marks})", *columns.values())

    def _row(self, seq: int) -> str:
        if self._is_file:
            return f"id = {self.stretch << 32 | seq}"
        return f"stretch = {self.stretch} AND seq = {seq}"

    @property
    def _is_file(self) -> bool:
        return self.url.startswith("sqlite")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(f"sqlite:///{tmp_path / 'perdure.db'}" if request.param == "sqlite" else emptied())


def said(text: str) -> MessageSent:
    return MessageSent(parts=(Text(text),))


async def talk(opened: Journal) -> str:
    """A session of four events; the last speaks of a picture."""
    session = await opened.create()
    await opened.append(session, said("I trust you"))
    await opened.append(session, said("with this"), key="this")
    await opened.append(session, MessageSent(parts=(blob_of(PICTURE),)), blobs=(PICTURE,))
    return session


async def seals(opened: Journal, session: str) -> list[tuple[int, bytes, int, bytes | None]]:
    stored = await opened.read_store(stored_session, opened.store, session)
    return await opened.read_store(opened.store.seals, stored.stretch, 0, stored.head, 10_000)


async def made(place: Place) -> tuple[str, list[tuple[int, bytes, int, bytes | None]]]:
    """A session that is going to be changed, and beside it one that nobody touches."""
    async with await place.open() as opened:
        session, other = await talk(opened), await talk(opened)
        assert session != other
        place.stretch = (await opened.read_store(stored_session, opened.store, session)).stretch
        return session, await seals(opened, session)


async def findings(place: Place, session: str | None = None, *, mend: bool = True) -> list[Finding]:
    async with await place.open() as opened:
        return [f async for f in doctor(opened, session, mend=mend) if f.kind != "note"]


# What a doctor finds


async def test_in_a_sound_store_there_is_nothing_to_find(place: Place) -> None:
    session, _ = await made(place)
    assert await findings(place) == []
    assert await findings(place, session) == []


async def test_a_changed_record_with_a_checksum_that_fits_is_found_by_the_chain(place: Place) -> None:
    session, rows = await made(place)
    data = rows[1][1].replace(b"trust", b"doubt")
    place.change_event(2, data=data, checksum=checksum(data))
    [found] = await findings(place)
    assert (found.kind, found.session, found.seq, found.mended) == ("damage", session, 2, False)
    assert "the chain breaks here" in found.what
    async with await place.open() as opened:
        assert (await opened.read(session)).events[1].fact == said("I doubt you")  # named, not repaired


async def test_a_record_whose_checksum_does_not_fit_is_damaged_and_hides_no_other(place: Place) -> None:
    session, rows = await made(place)
    place.change_event(2, data=rows[1][1].replace(b"trust", b"doubt"))
    found = await findings(place)
    assert {(f.kind, f.session, f.seq) for f in found} == {("damage", session, 2)}
    async with await place.open() as opened:
        kinds = [type(event.fact).__name__ for event in await whole(opened, session)]
    assert kinds == ["SessionCreated", "Unreadable", "MessageSent", "MessageSent"]


async def test_a_deleted_record_is_found_by_the_one_behind_it(place: Place) -> None:
    session, _ = await made(place)
    place.delete_event(2)
    [found] = await findings(place)
    assert (found.kind, found.session, found.seq) == ("damage", session, 3)
    assert "between 1 and 3 is missing" in found.what


async def test_deleted_records_at_the_end_are_counted(place: Place) -> None:
    session, _ = await made(place)
    place.delete_event(3)
    place.delete_event(4)
    [found] = await findings(place, session)
    assert str(found) == f"session {session}, seq 3: 2 records at the end are missing"


async def test_a_record_that_is_empty_though_nobody_erased_it_is_named(place: Place) -> None:
    session, rows = await made(place)
    place.change_event(2, data=b"", checksum=checksum(b""), seal=(rows[1][3] or b"")[-LINK:])
    [found] = await findings(place)
    assert (found.kind, found.session, found.seq) == ("damage", session, 2)
    assert found.what == "is empty, and no fact says that it was erased"


async def test_a_record_that_is_whole_and_breaks_a_law_is_named_with_the_law(place: Place) -> None:
    session, rows = await made(place)
    fact = TurnEnded(turn=99, outcome="completed")
    event = Event(5, 1, 0, None, fact)
    row, link = row_of(event, written(fact)[1], (rows[-1][3] or b"")[-LINK:])
    place.add_event(5, data=row.data, checksum=row.checksum, seal=row.seal)
    place.change(
        "UPDATE perdure_sessions SET head = 5, chain = ?, folded = ? WHERE id = ?", link, b"", session
    )
    [found] = await findings(place)
    assert (found.kind, found.session) == ("damage", session)
    assert found.what.startswith("5: TurnEnded: ")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE perdure_blobs SET data = ?, packed = {no}", "damaged"),
        ("UPDATE perdure_blobs SET data = ?, packed = {yes}", "damaged"),
        ("DELETE FROM perdure_blobs", "missing"),
    ],
)
async def test_content_that_is_not_what_it_was_is_named_where_it_is_spoken_of(
    place: Place, change: str, why: str
) -> None:
    session, _ = await made(place)
    no, yes = (0, 1) if place.url.startswith("sqlite") else ("FALSE", "TRUE")
    place.change(change.format(no=no, yes=yes), *[b"another picture"] * change.count("?"))
    found = await findings(place, session)
    assert [(f.kind, f.session, f.seq) for f in found] == [("damage", session, 4)]
    assert found[0].what.endswith(f"({len(PICTURE)} bytes) is {why}")


# What a doctor mends


async def keep_a_head(place: Place, session: str) -> None:
    async with await place.open() as opened:
        state = HeadCache.pack(fold((await whole(opened, session))[:3]))
        await opened.keep(session, Kept(HEAD_VIEW, VERSION, 3, state))


def spoil_a_kept_head(place: Place, session: str) -> None:
    other = HeadCache.pack(fold([]))
    place.change("UPDATE perdure_folds SET state = ?", other)


def spoil_the_head(place: Place, session: str) -> None:
    place.change("UPDATE perdure_sessions SET folded = ? WHERE id = ?", HeadCache.pack(fold([])), session)


def spoil_the_keys(place: Place, session: str) -> None:
    place.change("UPDATE perdure_keys SET seq = 2 WHERE key = 'this' AND stretch = ?", place.stretch)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (spoil_a_kept_head, "the kept fold 'head' up to 3 is wrong or of no known view"),
        (spoil_the_head, "its head is not what its events say"),
        (spoil_the_keys, "its keys are not those of its events"),
    ],
)
async def test_what_is_derived_is_folded_anew_unless_one_only_looks(
    place: Place, spoil: Callable[[Place, str], None], what: str
) -> None:
    session, _ = await made(place)
    await keep_a_head(place, session)
    spoil(place, session)
    wrong = Finding("derived", what, session)
    for _ in range(2):
        assert await findings(place, mend=False) == [wrong]
    [found] = await findings(place)
    assert (found.what, found.mended) == (what, True)
    assert await findings(place) == []
    async with await place.open() as opened:
        assert await faults(opened, session) == []
        assert (await opened.append(session, said("with this"), key="this")).repeated
        assert await faults(opened, await opened.fork(session, at=3)) == []


async def test_of_a_damaged_session_nothing_is_folded_anew(place: Place) -> None:
    session, _ = await made(place)
    spoil_the_head(place, session)
    place.delete_event(2)
    assert {f.kind for f in await findings(place)} == {"damage"}


# Backups


async def test_a_backup_is_of_one_moment_while_others_go_on_writing(place: Place, tmp_path: Path) -> None:
    target = tmp_path / "kopié 漢" / "backup.db"
    async with await place.open() as one, await place.open() as two:
        session, quiet = await talk(one), await talk(one)
        await one.put_on_desk("draft", session, b"to be continued")
        before = (await one.head(session)).upto
        going = asyncio.create_task(_write(two, session))
        async with aclosing(following(one, session, before)) as events:
            async for event in events:
                if event.seq >= before + 4:  # it is well under way
                    break
        acknowledged = (await one.head(session)).upto
        assert await backup(one, target) == 2
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        stored, rows = await whole(one, session), await seals(one, session)
        others = await seals(one, quiet)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [file.name for file in target.parent.iterdir()] == ["backup.db"]
    async with await journal.open(f"sqlite:///{target}") as copy:
        there = await whole(copy, session)
        assert there == stored[: len(there)]
        assert len(there) >= acknowledged
        assert await seals(copy, session) == rows[: len(there)]
        assert await seals(copy, quiet) == others
        assert await faults(copy, session) + await faults(copy, quiet) == []
        assert await copy.blob(blob_of(PICTURE)) == PICTURE
        assert await copy.desk("draft", session) == b"to be continued"
        assert (await copy.append(session, said("with this"), key="this")).repeated


async def _write(opened: Journal, session: str) -> None:
    number = 0
    while True:
        number += 1
        await opened.append(session, said(f"{number} " + "words " * 50), said("and more"))


async def test_a_backup_writes_over_nothing(place: Place, tmp_path: Path) -> None:
    await made(place)
    target = tmp_path / "notes.txt"
    target.write_text("mine")
    async with await place.open() as opened:
        with pytest.raises(StoreUnavailable, match=r"notes\.txt: is there already; name a new file"):
            await backup(opened, target)
    assert target.read_text() == "mine"


async def test_a_backup_that_is_not_whole_is_not_kept(place: Place, tmp_path: Path) -> None:
    session, _ = await made(place)
    place.delete_event(2)
    folder = tmp_path / "backups"
    async with await place.open() as opened:
        with pytest.raises(StoreDamaged, match=f"the copy is not whole: session {session}, seq 3"):
            await backup(opened, folder / "backup.db")
    assert list(folder.iterdir()) == []


async def test_what_is_in_memory_has_nothing_to_back_up(tmp_path: Path) -> None:
    async with await journal.open("memory:") as opened:
        await talk(opened)
        with pytest.raises(StoreUnavailable, match="it is gone when this process ends"):
            await backup(opened, tmp_path / "backups" / "backup.db")
    assert list((tmp_path / "backups").iterdir()) == []


# Pruning


async def test_what_nobody_has_used_for_long_goes_to_the_trash_and_comes_back_whole(place: Place) -> None:
    clock = ManualClock()
    async with await place.open(clock=clock) as opened:
        old, pinned, running, owned = [await talk(opened) for _ in range(4)]
        await opened.append(pinned, SessionPinned(True))
        owner = await opened.take(running)
        await owner.append(TurnStarted(takes=(2,)))
        await owner.release()
        await opened.take(owned)
        clock.advance(100 * 3600)
        recent = await talk(opened)
        were = {id: await whole(opened, id) for id in (pinned, running, owned, recent)}
        used = (await opened.head(old)).head.updated_at

        assert [one.id for one in await prune(opened, 99, act=False)] == [old]
        assert (await opened.head(old)).head.state == "active"
        assert await prune(opened, 101, act=True) == []
        assert [one.id for one in await prune(opened, 99, act=True)] == [old]
        assert await prune(opened, 99, act=True) == []

        head = (await opened.head(old)).head
        assert (head.state, head.updated_at) == ("trashed", used)
        assert (await whole(opened, old))[-1].fact == SessionTrashed(reason="not used for 99 hours")
        assert {id: await whole(opened, id) for id in were} == were
        await opened.append(old, SessionRestored())
        assert (await opened.head(old)).head.state == "active"
        assert len(await whole(opened, old)) == 6
        assert await faults(opened, old) == []


@pytest.mark.parametrize("hours", [0, -1, float("nan"), float("inf"), 1e7])
async def test_an_age_that_is_none_prunes_nothing(hours: float) -> None:
    clock = ManualClock()
    async with await journal.open("memory:", clock=clock) as opened:
        session = await talk(opened)
        clock.advance(1e9)
        with pytest.raises(NotStorable, match="an age is a number of hours"):
            await prune(opened, hours, act=True)
        assert (await opened.head(session)).head.state == "active"
