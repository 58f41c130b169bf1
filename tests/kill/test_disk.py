"""A disk that is full, and one that does not sync: what was acknowledged is there all the same, and it goes on.

`PERDURE_ROUNDS=full` does it hundreds of times; `PERDURE_SEED` repeats a run.
"""

import itertools
import os
import shutil
from pathlib import Path
from random import Random

import apsw
import pytest

from perdure import journal
from perdure.errors import StoreUnavailable
from perdure.events import RecordImported
from perdure.journal import Journal
from perdure.journal.care import doctor
from perdure.journal.clock import SystemClock
from perdure.journal.sqlite import SqliteStore
from perdure.testing.journals import whole
from tests.kill.lives import FULL, SEED, Ack, digest, message, unheard

pytestmark = pytest.mark.anyio

ROUNDS = 300 if FULL else 12
TOGETHER = 12
"""Rounds on one store: the later ones begin with what the earlier ones left behind."""
_numbers = itertools.count()


class Disk(apsw.VFS):
    """The default VFS on a disk that has so much room, and that syncs so many times before it fails to."""

    def __init__(self) -> None:
        self.name = f"disk-{os.getpid()}-{next(_numbers)}"
        self.room = self.syncs = 1 << 60
        super().__init__(self.name, "")

    def mend(self) -> None:
        self.room = self.syncs = 1 << 60

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        # What is there already takes no more room; a write that does not fit leaves its beginning behind.
        more = max(offset + len(data) - max(self.xFileSize(), offset), 0)
        fits = len(data) - max(more - self._disk.room, 0)
        self._disk.room -= min(more, self._disk.room)
        super().xWrite(data[:fits], offset)
        if fits < len(data):
            raise apsw.FullError("no room")

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.syncs -= 1
        if self._disk.syncs < 0:
            raise apsw.IOError("not synced")
        super().xSync(flags)


class Bad:
    """A journal on a bad disk, a session in it, and what was acknowledged."""

    def __init__(self, folder: Path, chance: Random) -> None:
        self.path, self.disk, self.acks = folder / "perdure.db", Disk(), list[Ack]()
        self._chance, self._numbers = chance, itertools.count()
        self._refused: tuple[str, RecordImported] | None = None

    def journal(self) -> Journal:
        clock = SystemClock()
        # A small log: it is often folded into the database, and the disk fails there as well.
        store = SqliteStore(self.path, clock, vfs=self.disk.name, checkpoint_pages=30)
        return Journal(store, clock, self.path.with_name("processes"))

    async def append_until_refused(self, running: Journal, session: str) -> StoreUnavailable:
        for _ in range(500):
            key = f"k{next(self._numbers)}"
            content = self._chance.randbytes(self._chance.randrange(6000)).hex()
            fact = RecordImported(source="test", data=f"{key} {content}")
            before = (await running.head(session)).upto
            try:
                await self._append(running, session, key, fact)
            except StoreUnavailable as why:
                assert (await running.head(session)).upto == before  # refused, and not there
                self._refused = key, fact
                return why
        raise AssertionError("the disk failed, and nobody was told")

    async def append_again(self, running: Journal, session: str) -> None:
        """What was refused last; and once more, for under its key it is there once."""
        assert self._refused
        await self._append(running, session, *self._refused)
        assert (await running.append(session, self._refused[1], key=self._refused[0])).repeated

    async def _append(self, running: Journal, session: str, key: str, fact: RecordImported) -> None:
        done = await running.append(session, fact, key=key)
        assert not done.repeated
        self.acks.append((session, done.first, key, [digest(fact)]))


@pytest.mark.parametrize("failing", ["room", "syncs"])
async def test_when_the_disk_fails_nothing_acknowledged_is_lost_and_afterwards_it_goes_on(
    failing: str, tmp_path: Path
) -> None:
    print(f"PERDURE_SEED={SEED}")
    chance = Random(f"{SEED} {failing}")
    advice = "free some space and try again" if failing == "room" else "check it, then try again"
    for first in range(0, ROUNDS, TOGETHER):
        folder = tmp_path / str(first)
        folder.mkdir()
        bad = Bad(folder, chance)
        for number in range(TOGETHER):
            async with bad.journal() as running:
                session = (await running.sessions())[0].id if number else await running.create()
                setattr(bad.disk, failing, chance.randrange(400_000 if failing == "room" else 40))
                for _ in range(3):
                    why = await bad.append_until_refused(running, session)
                    assert str(bad.path) in str(why)
                    assert advice in str(why)
                await look_at(image(bad.path, folder / "image"), session, bad.acks, strays=1)
                bad.disk.mend()
                await bad.append_again(running, session)
            await look_at(bad.path, session, bad.acks, strays=0)


def image(path: Path, folder: Path) -> Path:
    """A copy of the files as they are: what another process would find after a kill."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in path, path.with_name(path.name + "-wal"):
        shutil.copy(file, folder / file.name)
    return folder / path.name


async def look_at(path: Path, session: str, acks: list[Ack], strays: int) -> None:
    """Everything acknowledged is there, nothing twice, and at most so many that were refused: whoever looks at files
    whose writes or syncs failed may find the last commit whole."""
    async with await journal.open(f"sqlite:///{path}", announce=pytest.fail) as after:
        assert await unheard(after, acks) == []
        events = await whole(after, session)
        assert len({event.key for event in events}) == len(events)
        assert len(events) - 1 - len(acks) in range(strays + 1)
        assert [str(f) async for f in doctor(after, mend=False)] == []


async def test_a_store_cannot_be_made_on_a_full_disk_and_can_be_when_there_is_room(tmp_path: Path) -> None:
    bad = Bad(tmp_path, Random(0))
    for room in range(0, 200_000, 10_000 if FULL else 30_000):
        bad.disk.room = room
        with pytest.raises(StoreUnavailable, match="free some space") as refused:
            async with bad.journal() as running:
                raise await bad.append_until_refused(running, await running.create())
        assert str(bad.path) in str(refused.value)
    bad.disk.mend()
    async with bad.journal() as running:
        await running.append(await running.create(), message("now"))
        assert [str(f) async for f in doctor(running, mend=False)] == []
