"""What a doctor finds in a store that somebody has changed behind our back, and what it mends; backups; pruning."""

import asyncio
import os
import stat
import subprocess
import sys
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

    def run(self, sql: str) -> None:
        if self._is_file:
            db = apsw.Connection(self.url.removeprefix("sqlite:///"))
            db.execute(sql)
            db.close()
        else:
            with psycopg.connect(self.url) as other:
                other.execute(sql.encode())

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


async def columns(place: Place) -> list[tuple[object, ...]]:
    """What the list is asked by, as it stands there."""
    sql = (
        "SELECT id, state, project_key, title, runnable_at, updated_at FROM perdure_sessions ORDER BY stretch"
    )
    if place.url.startswith("sqlite"):
        db = apsw.Connection(place.url.removeprefix("sqlite:///"))
        rows = db.execute(sql).fetchall()
        db.close()
        return rows
    with psycopg.connect(place.url) as other:
        return other.execute(sql).fetchall()


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


async def test_events_whose_sessions_row_is_gone_are_damage_and_are_not_backed_up(
    place: Place, tmp_path: Path
) -> None:
    session, _ = await made(place)
    async with await place.open() as opened:
        fork = await opened.fork(session)
    place.change("DELETE FROM perdure_sessions WHERE id = ?", session)
    why = f"events of stretch {place.stretch}, 4 of them, belong to no session"
    for _ in range(2):
        assert await findings(place) == [Finding("damage", why)]
    async with await place.open() as opened:
        assert await faults(opened, fork) == []
        with pytest.raises(StoreDamaged, match=f"the copy is not whole: the store: {why}"):
            await backup(opened, tmp_path / "backup.db")
    assert not (tmp_path / "backup.db").exists()


@pytest.mark.parametrize(("stretch", "seq"), [(0, 5), (-3, 1), (999, 1), (None, 0), (None, 5000)])
async def test_rows_that_no_session_reaches_are_damage(place: Place, stretch: int | None, seq: int) -> None:
    await made(place)
    place.stretch = place.stretch if stretch is None else stretch
    place.add_event(seq, data=b"A", checksum=5)
    why = f"events of stretch {place.stretch}, 1 of them, belong to no session"
    assert await findings(place) == [Finding("damage", why)]


async def test_before_the_place_where_a_fork_begins_nothing_is_its_own(place: Place) -> None:
    session, rows = await made(place)
    async with await place.open() as opened:
        fork = await opened.fork(session)
        place.stretch = (await opened.read_store(stored_session, opened.store, fork)).stretch
    assert await findings(place) == []
    _, data, check, seal = rows[1]
    place.add_event(2, data=data, checksum=check, seal=seal)
    [found] = await findings(place)
    assert found.what == f"events of stretch {place.stretch}, 1 of them, belong to no session"


async def test_a_row_that_calls_a_session_by_another_name_is_damage(place: Place) -> None:
    session, _ = await made(place)
    place.change("UPDATE perdure_sessions SET id = 'aaaaaaaaaaaaaaaaaaaa' WHERE id = ?", session)
    [found] = await findings(place)
    assert (found.kind, found.session, found.seq) == ("damage", "aaaaaaaaaaaaaaaaaaaa", 1)
    assert "another id" in found.what


async def test_what_was_written_behind_a_files_pages_is_worth_a_note(tmp_path: Path) -> None:
    file = tmp_path / "perdure.db"
    async with await journal.open(f"sqlite:///{file}") as opened:
        await talk(opened)
        assert [f async for f in doctor(opened)] == []  # most of it is in the log, and the file is shorter
    with file.open("ab") as end:
        end.write(b"?" * 5000)
    async with await journal.open(f"sqlite:///{file}") as opened:
        [found] = [f async for f in doctor(opened)]
    assert found.kind == "note"
    assert "is 5000 bytes longer than its pages" in found.what


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


@pytest.mark.parametrize(
    "change",
    [
        "title = 'evil'",
        "state = 'trashed'",
        "project_key = 'another'",
        "updated_at = updated_at + 60000000",
        "updated_at = 0",
        "runnable_at = 7",
    ],
)
async def test_a_row_of_the_list_is_written_anew_if_it_is_not_what_the_events_say(
    place: Place, change: str
) -> None:
    await made(place)
    async with await place.open() as opened:
        session = await talk(opened)
    listed = await columns(place)
    place.change(f"UPDATE perdure_sessions SET {change} WHERE id = ?", session)
    wrong = Finding("derived", "its row in the list is not what its events say", session)
    assert await findings(place, mend=False) == [wrong]
    [found] = await findings(place)
    assert found == Finding("derived", wrong.what, session, mended=True)
    assert await findings(place) == []
    # The time of who stands first may have been late by a little, and is not any more.
    assert [row[:-1] for row in await columns(place)] == [row[:-1] for row in listed]


async def test_an_index_that_is_gone_is_made_anew(place: Place) -> None:
    session, _ = await made(place)
    place.run("DROP INDEX perdure_sessions_by_activity")
    async with await place.open() as opened:
        if place.url.startswith("sqlite"):
            with pytest.raises(StoreUnavailable, match="`perdure doctor` makes it anew"):
                await opened.sessions()
        else:
            assert len(await opened.sessions()) == 2
        await opened.append(session, said("all the same"))
    wrong = Finding("derived", "the index perdure_sessions_by_activity is missing or is not as it should be")
    assert await findings(place, mend=False) == [wrong]
    [found] = await findings(place)
    assert found == Finding("derived", wrong.what, mended=True)
    assert await findings(place) == []
    async with await place.open() as opened:
        assert len(await opened.sessions()) == 2


async def test_an_index_over_other_columns_is_made_anew(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path / 'perdure.db'}")
    await made(place)
    place.run("DROP INDEX perdure_sessions_by_title")
    place.run("CREATE INDEX perdure_sessions_by_title ON perdure_sessions (state)")
    assert [f.mended for f in await findings(place)] == [True]
    assert await findings(place) == []


@pytest.mark.parametrize("together", [False, True])
async def test_who_stays_first_in_the_list_is_rightly_there(place: Place, together: bool) -> None:
    clock = ManualClock()
    async with await place.open(clock=clock) as opened:
        ids = []
        for _ in range(3):
            ids.append(await talk(opened))
            clock.advance(0 if together else 1)
        for id in [*reversed(ids), *ids]:
            for _ in range(3):
                clock.advance(1)
                await opened.append(id, said("once more"))
                assert (await opened.sessions())[0].id == id
            assert [f async for f in doctor(opened, mend=False) if f.kind != "note"] == []


async def test_a_doctor_is_not_led_astray_by_who_writes_meanwhile(place: Place) -> None:
    async with await place.open() as one, await place.open() as two:
        session = await talk(one)
        going = asyncio.create_task(_write(two, session))
        async with aclosing(following(one, session, 4)) as events:
            async for _ in events:
                found = [f async for f in doctor(one, mend=False) if f.kind != "note"]
                if found or (await one.head(session)).upto > 200:
                    break
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        assert found == []


async def test_of_a_damaged_session_nothing_is_folded_anew(place: Place) -> None:
    session, _ = await made(place)
    spoil_the_head(place, session)
    place.delete_event(2)
    assert {f.kind for f in await findings(place)} == {"damage"}


# Backups


async def test_a_backup_is_of_one_moment_while_others_go_on_writing(place: Place, tmp_path: Path) -> None:
    target = tmp_path / "kopié 漢" / "backup.db"
    target.parent.mkdir()
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


async def test_a_backup_that_is_killed_leaves_nothing_under_the_name_it_was_given(tmp_path: Path) -> None:
    source, target = f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path / "backups" / "backup.db"
    target.parent.mkdir()
    async with await journal.open(source) as opened:
        session = await talk(opened)
        await opened.append(session, *(said(f"{number}") for number in range(5000)))
    command = [Path(sys.executable).with_name("perdure"), "--db", source, "backup", target]
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    going = await asyncio.create_subprocess_exec(*command, env=home, stdout=subprocess.PIPE)
    while not any(file.stat().st_size for file in target.parent.iterdir()):
        assert going.returncode is None
        await asyncio.sleep(0.001)
    going.kill()
    await going.communicate()
    left = {file.name for file in target.parent.iterdir()}
    assert left
    assert "backup.db" not in left
    async with await journal.open(source) as opened:
        assert await backup(opened, target) == 1
    assert {file.name for file in target.parent.iterdir()} == {*left, "backup.db"}


async def test_a_backup_makes_no_folder(place: Place, tmp_path: Path) -> None:
    await made(place)
    async with await place.open() as opened:
        with pytest.raises(StoreUnavailable, match="nowhere is not there; make it first"):
            await backup(opened, tmp_path / "nowhere" / "backup.db")
    assert not (tmp_path / "nowhere").exists()


async def test_a_backup_that_is_not_whole_is_not_kept(place: Place, tmp_path: Path) -> None:
    session, _ = await made(place)
    place.delete_event(2)
    folder = tmp_path / "backups"
    folder.mkdir()
    async with await place.open() as opened:
        with pytest.raises(StoreDamaged, match=f"the copy is not whole: session {session}, seq 3"):
            await backup(opened, folder / "backup.db")
    assert list(folder.iterdir()) == []


async def test_what_is_in_memory_has_nothing_to_back_up(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
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
