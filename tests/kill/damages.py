"""What can happen to the files of a store while nobody looks: a catalogue, and chance to choose from it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.kill.places import Span
from tests.kill.stores import Before

PAGE, FRAME, SECTOR = 8192, 8192 + 24, 512


@dataclass
class Files:
    """The database file and its log; None if it is gone."""

    main: bytearray | None
    wal: bytearray | None

    def write_to(self, path: Path) -> None:
        for file, data in (path, self.main), (path.with_name(path.name + "-wal"), self.wal):
            if data is None:
                file.unlink(missing_ok=True)
            else:
                file.write_bytes(data)

    def have(self, before: Before, span: Span) -> bool:
        """Whether these bytes are where they were, and as they were."""
        data = self.main if span.file == "main" else self.wal
        return data is not None and data[span.at : span.at + span.length] == before.bytes_at(span)


Damage = Callable[[Random, Before, Files], str]
"""Does it, and says in a few words what it did."""


def _one_file(chance: Random, files: Files) -> tuple[str, bytearray]:
    there = [(name, data) for name, data in (("main", files.main), ("wal", files.wal)) if data]
    return chance.choice(there)


def _flip(data: bytearray, at: int, chance: Random) -> None:
    if at < len(data):
        data[at] ^= 1 << chance.randrange(8) if chance.random() < 0.5 else chance.randrange(1, 256)


def has_frames(files: Files) -> bool:
    return len(files.wal or b"") >= 32 + FRAME


def flip_bytes(chance: Random, before: Before, files: Files) -> str:
    name, data = _one_file(chance, files)
    places = [chance.randrange(len(data)) for _ in range(chance.choice([1, 1, 1, 2, 5, 30]))]
    for at in places:
        _flip(data, at, chance)
    return f"{name}: bytes {places} changed"


def flip_a_kind(chance: Random, before: Before, files: Files) -> str:
    """In a page of some kind, all kinds equally often; in its first bytes, which say what it is, every other time."""
    kind = chance.choice(sorted(set(before.places.kinds.values())))
    number = chance.choice([n for n, k in before.places.kinds.items() if k == kind])
    span = before.places.pages[number]
    data = files.main if span.file == "main" else files.wal
    within = chance.choice([12, 112, 200, PAGE])
    places = [chance.randrange(within) for _ in range(chance.choice([1, 1, 3]))]
    for at in places:
        if data is not None:
            _flip(data, span.at + at, chance)
    return f"{span.file}: page {number}, {kind}: bytes {places} changed"


def flip_a_frame(chance: Random, before: Before, files: Files) -> str:
    """In the header of the log or of one of its frames."""
    if not has_frames(files):
        return flip_a_kind(chance, before, files)
    frame = chance.randrange(-1, len(files.wal) // FRAME)
    at = chance.randrange(32) if frame < 0 else 32 + frame * FRAME + chance.randrange(24)
    _flip(files.wal, at, chance)
    return f"wal: byte {at} of frame {frame} changed"


def _junk(chance: Random, before: Before, length: int) -> bytes:
    match chance.randrange(4):
        case 0:
            return bytes(length)
        case 1:
            return chance.randbytes(length)
        case 2:
            return (b"junk\n" * length)[:length]
        case _:  # what looks right and is not: pages of its own
            at = chance.randrange(len(before.main) // PAGE) * PAGE
            return (before.main[at:] * (length // max(1, len(before.main) - at) + 1))[:length]


def overwrite(chance: Random, before: Before, files: Files) -> str:
    """Sectors, pages, runs of pages."""
    name, data = _one_file(chance, files)
    unit = chance.choice([SECTOR, PAGE, PAGE])
    at = chance.randrange(max(1, len(data) // unit)) * unit
    length = min(unit * chance.choice([1, 1, 2, 8]), len(data) - at)
    data[at : at + length] = _junk(chance, before, length)
    return f"{name}: {length} bytes at {at} overwritten"


def overwrite_frames(chance: Random, before: Before, files: Files) -> str:
    if not has_frames(files):
        return overwrite(chance, before, files)
    at = 32 + chance.randrange(len(files.wal) // FRAME) * FRAME + chance.choice([0, 24])
    length = min(chance.choice([24, PAGE, FRAME, 5 * FRAME]), len(files.wal) - at)
    files.wal[at : at + length] = _junk(chance, before, length)
    return f"wal: {length} bytes at {at} overwritten"


def swap_pages(chance: Random, before: Before, files: Files) -> str:
    name, data = _one_file(chance, files)
    size, start = (PAGE, 0) if name == "main" else (FRAME, 32)
    if len(data) < start + 2 * size:
        return flip_bytes(chance, before, files)
    one, two = (start + size * n for n in chance.sample(range((len(data) - start) // size), 2))
    data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]
    return f"{name}: what was at {one} and {two} changed places"


def copy_page(chance: Random, before: Before, files: Files) -> str:
    """A write that went to the wrong place."""
    name, data = _one_file(chance, files)
    size, start = (PAGE, 0) if name == "main" else (FRAME, 32)
    one, two = (start + size * chance.randrange(max(1, (len(data) - start) // size)) for _ in range(2))
    data[one : one + size] = data[two : two + size]
    return f"{name}: what is at {two} is at {one} too"


def cut(chance: Random, before: Before, files: Files) -> str:
    name, data = _one_file(chance, files)
    unit = chance.choice([1, SECTOR, PAGE, FRAME])
    at = chance.choice([chance.randrange(len(data) + 1) // unit * unit, chance.randrange(100)])
    del data[at:]
    return f"{name}: cut at {at}"


def lose_the_start(chance: Random, before: Before, files: Files) -> str:
    name, data = _one_file(chance, files)
    length = min(len(data), chance.choice([16, 32, 100, SECTOR, 4096, PAGE, 3 * PAGE]))
    data[:length] = _junk(chance, before, length) if chance.random() < 0.5 else bytes(length)
    return f"{name}: its first {length} bytes destroyed"


def append(chance: Random, before: Before, files: Files) -> str:
    name, data = _one_file(chance, files)
    data += _junk(chance, before, chance.choice([1, 100, SECTOR, PAGE, FRAME, 5 * PAGE, 50_000]))
    return f"{name}: junk at the end, now {len(data)} bytes"


def lose_the_log(chance: Random, before: Before, files: Files) -> str:
    if files.wal is None:
        return cut(chance, before, files)
    if chance.random() < 0.5:
        files.wal.clear()
        return "wal: emptied"
    files.wal = None
    return "wal: gone"


def lose_the_file(chance: Random, before: Before, files: Files) -> str:
    if not files.wal:
        return lose_the_start(chance, before, files)
    files.main = bytearray()
    return "main: emptied"


def old_log(chance: Random, before: Before, files: Files) -> str:
    """The log as it was some time ago, over a file that went on."""
    if not has_frames(files):
        return copy_page(chance, before, files)
    frames = chance.randrange(len(files.wal) // FRAME)
    del files.wal[32 + frames * FRAME :]
    return f"wal: cut after {frames} frames"


EVERY: tuple[Damage, ...] = (
    flip_bytes, flip_a_kind, flip_a_frame, overwrite, overwrite_frames, swap_pages, copy_page, cut, lose_the_start,
    append, lose_the_log, lose_the_file, old_log,
)  # fmt: skip


def damaged(chance: Random, before: Before) -> tuple[str, Files]:
    """One thing that went wrong; now and then several."""
    files = Files(bytearray(before.main), bytearray(before.wal) if before.wal else None)
    said = [chance.choice(EVERY)(chance, before, files)]
    while chance.random() < 0.2:
        if files.main or files.wal:
            said.append(chance.choice(EVERY)(chance, before, files))
    return "; then ".join(said), files
