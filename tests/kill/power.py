"""What a disk may hold after the power went: a VFS that records a run, and the images that run could have left.

    with Recorder() as recorder:
        db = apsw.Connection("x.db", vfs=recorder.name)
        ...
        recorder.mark(n)                       # "n was acknowledged now"
    for image in images(recorder.log, rounds=300, seed=1):
        image.write_to(folder)                 # then open it and look for everything up to image.acknowledged

A file that was synced is on the disk as it was then. Each write after that is there whole, in part, or not at all,
whatever became of the others. A page cache holds one version of each byte, so an older write never comes out on top of
a newer one: any order in which the disk took them looks like some of them missing.
"""

import itertools
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType

import apsw

SECTOR = 512


@dataclass(frozen=True, slots=True)
class Created:
    file: str
    journal: bool
    "SQLite syncs the folder together with a new journal or WAL, so that their names are as durable as their bytes."
    held: bytes = b""
    "What was in it, and durable, when the recording began."


@dataclass(frozen=True, slots=True)
class Wrote:
    file: str
    at: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncated:
    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Synced:
    file: str


@dataclass(frozen=True, slots=True)
class Deleted:
    file: str
    durable: bool


@dataclass(frozen=True, slots=True)
class Marked:
    number: int


Entry = Created | Wrote | Truncated | Synced | Deleted | Marked
_numbers = itertools.count()


class Recorder(apsw.VFS):
    """The default VFS, and a list of everything durable that SQLite asked of it, in order.

    One database in one folder; files are known by their names. The -shm file is not a file here: it is mapped, never
    written, and worthless after a power cut. Nor are temporary files.
    """

    def __init__(self) -> None:
        self.name = f"recorder-{next(_numbers)}"
        self.log: list[Entry] = []
        self._known: set[str] = set()
        # What one thread writes while another one syncs is not covered by that sync, and only an order of all of
        # them can say which was first. So one happens at a time.
        self.turn = threading.RLock()
        super().__init__(self.name, "")

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.unregister()

    def mark(self, number: int) -> None:
        """Everything up to `number` was acknowledged: an image of a later moment must hold it."""
        with self.turn:
            self.log.append(Marked(number))

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name) if name else None
        if path is None or flags[0] & apsw.SQLITE_OPEN_DELETEONCLOSE:
            return apsw.VFSFile("", name, flags)
        with self.turn:
            held = b""
            if path.name not in self._known:
                with suppress(FileNotFoundError):
                    held = path.read_bytes()
            file = _File(self, path.name, name, flags)
            if path.name not in self._known:
                journal = bool(flags[0] & (apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL))
                self.log.append(Created(path.name, journal, held))
                self._known.add(path.name)
            return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        with self.turn:
            super().xDelete(filename, syncdir)
            self.log.append(Deleted(Path(filename).name, syncdir))
            self._known.discard(Path(filename).name)


class _File(apsw.VFSFile):
    def __init__(
        self, recorder: Recorder, file: str, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._recorder, self._file = recorder, file
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        with self._recorder.turn:
            super().xWrite(data, offset)
            self._recorder.log.append(Wrote(self._file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        with self._recorder.turn:
            super().xTruncate(newsize)
            self._recorder.log.append(Truncated(self._file, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        with self._recorder.turn:
            super().xSync(flags)
            self._recorder.log.append(Synced(self._file))


@dataclass(frozen=True, slots=True)
class Image:
    files: dict[str, bytes]
    acknowledged: int
    "The highest mark before the power went; 0 if there was none."
    about: str
    "Says how to make this image again."

    def write_to(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (folder / name).write_bytes(data)


def images(log: list[Entry], rounds: int, seed: int) -> Iterator[Image]:
    """`rounds` images of the run: cut just before and just after every sync, after every mark, and anywhere else.

    If `rounds` is too small for every sync, they are drawn by lot. The same log, rounds and seed give the same images.
    """
    disk, done, acknowledged = _Disk(log), 0, 0
    for number, cut in enumerate(_cuts(log, rounds, Random(f"{seed}"))):
        for entry in log[done:cut]:
            if isinstance(entry, Marked):
                acknowledged = max(acknowledged, entry.number)
            disk.take(entry)
        done = cut
        chance = Random(f"{seed}/{number}")
        about = f"seed {seed}, image {number} of {rounds}, power cut after {cut} of {len(log)} entries"
        yield Image(disk.after_power_cut(chance), acknowledged, about)


def _cuts(log: list[Entry], rounds: int, chance: Random) -> list[int]:
    edges = [at for at, entry in enumerate(log) if isinstance(entry, Synced)]
    edges = sorted({*edges, *(at + 1 for at, entry in enumerate(log) if isinstance(entry, Synced | Marked))})
    if len(edges) > rounds:
        return sorted(chance.sample(edges, rounds))
    anywhere = [chance.randrange(len(log) + 1) for _ in range(rounds - len(edges))]
    return sorted(edges + anywhere)


def everything(log: list[Entry]) -> dict[str, bytes]:
    """The files as they are at the end of the run, had the power stayed on."""
    disk = _Disk(log)
    for entry in log:
        disk.take(entry)
    return {name: bytes(file.now()) for name, file in disk.names.items()}


Change = Wrote | Truncated


@dataclass(slots=True)
class _Inode:
    durable: bytearray
    since: list[Change] = field(default_factory=list)
    "What was done to it since its last sync, in order."

    def now(self) -> bytearray:
        data = bytearray(self.durable)
        for change in self.since:
            _apply(data, change)
        return data

    def sync(self) -> None:
        self.durable, self.since = self.now(), []


def _apply(data: bytearray, change: Change) -> None:
    if isinstance(change, Truncated):
        del data[change.size :]
        data.extend(bytes(change.size - len(data)))
    else:
        data.extend(bytes(max(0, change.at - len(data))))
        data[change.at : change.at + len(change.data)] = change.data


class _Disk:
    """The files of a folder, what of them is durable, and what is on its way."""

    def __init__(self, log: list[Entry]) -> None:
        # What was there before the recording began is in every image, also in one of before it was opened.
        self._durable = {
            entry.file: _Inode(bytearray(entry.held))
            for entry in log
            if isinstance(entry, Created) and entry.held
        }
        self.names = dict(self._durable)
        self._since: list[tuple[str, _Inode | None]] = []
        "Names given and taken that no sync has made durable."
        self._journals: set[str] = set()

    def take(self, entry: Entry) -> None:
        match entry:
            case Created(file, journal, b""):
                self.names[file] = _Inode(bytearray())
                self._since.append((file, self.names[file]))
                if journal:
                    self._journals.add(file)
            case Wrote(file) | Truncated(file):
                self.names[file].since.append(entry)
            case Synced(file):
                self.names[file].sync()
                # A new journal takes the whole folder with it, once; any other file is only sure of its own name.
                new_journal = file in self._journals
                self._journals.discard(file)
                self._sync_names(set(self.names) | {f for f, _ in self._since} if new_journal else {file})
            case Deleted(file, durable):
                del self.names[file]
                self._journals.discard(file)
                self._since.append((file, None))
                if durable:
                    self._sync_names({name for name, _ in self._since})
            case Created() | Marked():
                pass

    def _sync_names(self, files: set[str]) -> None:
        for file, inode in self._since:
            if file in files:
                _bind(self._durable, file, inode)
        self._since = [(file, inode) for file, inode in self._since if file not in files]

    def after_power_cut(self, chance: Random) -> dict[str, bytes]:
        names = dict(self._durable)
        for file, inode in self._since:
            if chance.random() < 0.5:
                _bind(names, file, inode)
        # With even odds for each write, a long row of them would never be all there or all gone but for the last.
        kept = chance.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        return {file: _left(inode, kept, chance) for file, inode in sorted(names.items())}


def _bind(names: dict[str, _Inode], file: str, inode: _Inode | None) -> None:
    if inode is None:
        names.pop(file, None)
    else:
        names[file] = inode


def _left(inode: _Inode, kept: float, chance: Random) -> bytes:
    data = bytearray(inode.durable)
    last = len(inode.since) - 1
    for number, change in enumerate(inode.since):
        # The write under way when the power goes is the likeliest to be torn.
        if chance.random() < (kept if number < last else kept / 2):
            _apply(data, change)
        elif isinstance(change, Wrote) and chance.random() < 0.5:
            for part in _torn(change, chance):
                _apply(data, part)
    return bytes(data)


def _torn(write: Wrote, chance: Random) -> list[Wrote]:
    """A part of a write: its first sectors, any of them, or a longer file with nothing in it yet."""
    ends = [*range((write.at // SECTOR + 1) * SECTOR, write.at + len(write.data), SECTOR)]
    bounds = [write.at, *ends, write.at + len(write.data)]
    sectors = [
        Wrote(write.file, begin, write.data[begin - write.at : end - write.at])
        for begin, end in itertools.pairwise(bounds)
    ]
    match chance.randrange(3):
        case 0:
            return sectors[: chance.randrange(len(sectors))]
        case 1:
            return [sector for sector in sectors if chance.random() < 0.5]
        case _:
            return [Wrote(write.file, write.at + len(write.data), b"")]
