"""What a salvage brings home from a damaged file, and what it says of the rest: one example for each kind of damage."""

import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from perdure import journal
from perdure.errors import StoreDamaged, StoreUnavailable
from perdure.events import Blob, MessageSent, Text
from perdure.journal import blob_of
from perdure.journal.salvage import Saved, salvage
from perdure.testing.journals import whole

pytestmark = pytest.mark.anyio

PICTURE = bytes(range(256)) * 100
PAGE = 8192


@dataclass
class Store:
    """Two sessions of ten messages, the last of them with a picture: what stands in each, by seq."""

    path: Path
    texts: dict[str, list[str]]

    @property
    def log(self) -> Path:
        return Path(f"{self.path}-wal")

    @property
    def target(self) -> Path:
        return self.path.with_name("saved.db")

    def spoil(self, text: str) -> None:
        """Change one byte of what was said."""
        data = bytearray(self.path.read_bytes())
        data[data.index(text.encode())] ^= 1
        self.path.write_bytes(data)


async def made(path: Path, *, killed: bool = False) -> Store:
    """Closed as it should be, or as it is found after a kill: with what was written last in its log."""
    store = Store(path.with_name("damaged.db"), {})
    async with await journal.open(f"sqlite:///{path}") as opened:
        for name in ("one", "two"):
            session = await opened.create()
            said = [f"{name} says {number}" for number in range(2, 12)]
            for text in said[:-1]:
                await opened.append(session, MessageSent(parts=(Text(text),)))
            last = MessageSent(parts=(Text(said[-1]), blob_of(PICTURE)))
            await opened.append(session, last, blobs=(PICTURE,))
            store.texts[session] = said
        if killed:
            shutil.copy(path, store.path)
            shutil.copy(f"{path}-wal", store.log)
    if not killed:
        path.rename(store.path)
    return store


@pytest.fixture
async def store(tmp_path: Path) -> Store:
    return await made(tmp_path / "whole.db")


@pytest.fixture
async def killed(tmp_path: Path) -> Store:
    return await made(tmp_path / "whole.db", killed=True)


async def saved(store: Store) -> tuple[Saved, dict[str, list[str]]]:
    """What the salvage says, and what is then in the new store. The damaged files are as they were."""
    files = [file for file in (store.path, store.log) if file.exists()]
    were = [file.read_bytes() for file in files]
    told = await salvage(store.path, store.target)
    assert [file.read_bytes() for file in files] == were
    there: dict[str, list[str]] = {}
    async with await journal.open(f"sqlite:///{store.target}") as opened:
        for listed in await opened.sessions():
            events = await whole(opened, listed.id)
            there[listed.id] = [e.fact.parts[0].text for e in events if isinstance(e.fact, MessageSent)]
    return told, there


def without(texts: dict[str, list[str]], *lost: str) -> dict[str, list[str]]:
    return {session: [text for text in said if text not in lost] for session, said in texts.items()}


async def test_a_sound_file_comes_back_whole(store: Store) -> None:
    told, there = await saved(store)
    assert there == store.texts
    assert told == Saved(sessions=2, events=22, blobs=1, missing=[], notes=[])
    assert stat.S_IMODE(store.target.stat().st_mode) == 0o600
    async with await journal.open(f"sqlite:///{store.target}") as opened:
        last = (await whole(opened, next(iter(there))))[-1].fact
        assert isinstance(last, MessageSent)
        assert isinstance(last.parts[1], Blob)
        assert await opened.blob(last.parts[1]) == PICTURE


async def test_of_what_holds_nothing_no_file_is_made(tmp_path: Path) -> None:
    store = Store(tmp_path / "damaged.db", {})
    async with await journal.open(f"sqlite:///{store.path}"):
        pass
    assert await salvage(store.path, store.target) == Saved()
    assert not list(tmp_path.glob("saved.db*"))


async def test_events_whose_sessions_row_is_gone_come_back(store: Store) -> None:
    db = apsw.Connection(str(store.path))
    db.execute("DELETE FROM perdure_sessions WHERE stretch = 1")
    db.close()
    _, there = await saved(store)
    assert there == store.texts


async def test_a_wrong_byte_costs_the_event_it_is_in_and_that_is_named(store: Store) -> None:
    session = next(iter(store.texts))
    store.spoil("one says 5")
    told, there = await saved(store)
    assert there == without(store.texts, "one says 5")
    [sentence] = told.missing
    assert sentence.startswith(f"session {session}, seq 5: missing")


async def test_content_that_is_damaged_is_named_with_the_events_that_speak_of_it(store: Store) -> None:
    data = store.path.read_bytes()
    at = data.index(b"\x28\xb5\x2f\xfd")  # where the compressed picture begins
    store.path.write_bytes(data[: at + 20] + b"?" * 20 + data[at + 40 :])
    told, there = await saved(store)
    assert there == store.texts
    assert told.blobs == 0
    name = f"content {blob_of(PICTURE).hash[:12]}... ({len(PICTURE)} bytes) of seq 11: missing"
    assert sorted(told.missing) == sorted(f"session {session}, {name}" for session in store.texts)


@pytest.mark.parametrize("pages", [3, 5, 8])
async def test_of_a_file_that_was_cut_all_that_lies_before_the_cut_comes_back(
    store: Store, pages: int
) -> None:
    data = store.path.read_bytes()[: pages * PAGE + 100]
    store.path.write_bytes(data)
    _, there = await saved(store)
    back = {text for said in there.values() for text in said}
    assert back == {text for said in store.texts.values() for text in said if text.encode() in data}


@pytest.mark.parametrize("junk", [b"junk" * 5000, bytes(3 * PAGE), b"\x0d" * 777])
async def test_junk_at_the_end_costs_nothing(store: Store, junk: bytes) -> None:
    store.path.write_bytes(store.path.read_bytes() + junk)
    told, there = await saved(store)
    assert (there, told.missing) == (store.texts, [])


@pytest.mark.parametrize("length", [16, 100, PAGE])
async def test_without_its_header_every_event_is_still_found(store: Store, length: int) -> None:
    data = store.path.read_bytes()
    store.path.write_bytes(bytes(length) + data[length:])
    told, there = await saved(store)
    assert (there, told.missing) == (store.texts, [])
    assert any("header" in note for note in told.notes)


async def test_what_was_written_last_is_read_from_the_log(killed: Store) -> None:
    assert b"two says 11" not in killed.path.read_bytes()
    told, there = await saved(killed)
    assert (there, told.missing) == (killed.texts, [])


async def test_with_the_log_goes_what_was_only_in_it(killed: Store) -> None:
    killed.log.unlink()
    told, there = await saved(killed)
    in_the_file = killed.path.read_bytes()
    assert there == {
        session: said for session, said in killed.texts.items() if said[0].encode() in in_the_file
    }
    assert told.sessions == len(there)


async def test_behind_a_damaged_place_of_the_log_everything_is_found(killed: Store) -> None:
    data = bytearray(killed.log.read_bytes())
    data[32 + 8] ^= 1  # the first frame: SQLite would forget all that comes after it
    killed.log.write_bytes(data)
    with pytest.raises(StoreDamaged, match="--salvage"):
        await journal.open(f"sqlite:///{killed.path}")
    told, there = await saved(killed)
    assert (there, told.missing) == (killed.texts, [])


@pytest.mark.parametrize("left", [b"", b"S"])
async def test_beside_an_empty_file_the_log_is_read_and_not_thrown_away(killed: Store, left: bytes) -> None:
    killed.path.write_bytes(
        left
    )  # SQLite takes both for a new database, and would delete the log of an old one
    with pytest.raises(StoreDamaged, match="put the file back"):
        await journal.open(f"sqlite:///{killed.path}")
    told, there = await saved(killed)
    assert (there, told.missing) == (killed.texts, [])


@pytest.mark.parametrize("content", [b"Dear diary,\n" * 1000, b"", b"\x89PNG\r\n\x1a\n" + bytes(50_000)])
async def test_in_what_is_no_database_nothing_is_found_and_that_is_said(
    tmp_path: Path, content: bytes
) -> None:
    store = Store(tmp_path / "diary.db", {})
    store.path.write_bytes(content)
    told, there = await saved(store)
    assert (told.sessions, told.events, there) == (0, 0, {})


async def test_a_file_that_is_there_already_is_not_written_over(store: Store) -> None:
    store.target.write_text("mine")
    with pytest.raises(StoreUnavailable, match=r"saved\.db: is there already"):
        await salvage(store.path, store.target)
    assert store.target.read_text() == "mine"


async def test_what_is_not_there_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is not there"):
        await salvage(tmp_path / "none.db", tmp_path / "saved.db")
    assert list(tmp_path.iterdir()) == []


class Small(apsw.VFS):
    """A disk on which no file grows beyond a hundred kilobytes."""

    def __init__(self) -> None:
        super().__init__("small", "unix")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _SmallFile("unix", name, flags)


class _SmallFile(apsw.VFSFile):
    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if offset + len(data) > 100_000:
            raise apsw.FullError("no room")
        super().xWrite(data, offset)


async def test_a_full_disk_leaves_nothing_behind(store: Store) -> None:
    disk = Small()
    apsw.set_default_vfs("small")
    try:
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await salvage(store.path, store.target)
    finally:
        apsw.set_default_vfs("unix")
        disk.unregister()
    assert [file.name for file in store.path.parent.iterdir() if file.name.startswith("saved")] == []
    _, there = await saved(store)
    assert there == store.texts


async def test_a_folder_may_be_called_anything(tmp_path: Path) -> None:
    folder = tmp_path / "Über  uns ?#%41 漢字"
    folder.mkdir()
    store = await made(folder / "whole.db", killed=True)
    told, there = await saved(store)
    assert (there, told.missing) == (store.texts, [])
    assert not any("could not be read" in note for note in told.notes)
