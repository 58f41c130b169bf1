"""Which frames of a write-ahead log hold the pages of its database, and which might.

SQLite accepts frames up to the last commit before the first frame that is damaged, and forgets the rest. What lies
behind was acknowledged all the same, so we look at it too and call it doubtful.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

Sums = tuple[int, int]
Read = Callable[[int, int], bytes]


class Head(NamedTuple):
    page_size: int
    order: str
    salts: bytes
    sums: Sums
    sound: bool


def head(read: Read) -> Head:
    data = read(0, 32).ljust(32, b"\0")
    magic, version, page_size = struct.unpack(">3I", data[:12])
    order = ">" if magic == 0x377F0683 else "<"
    sums = _sums(data[24:])
    sound = magic & ~1 == 0x377F0682 and version == 3007000 and sums == checksum(order, data[:24], (0, 0))
    return Head(page_size, order, data[16:24], sums, sound)


def checksum(order: str, data: bytes, sums: Sums) -> Sums:
    one, two = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        one = one + even + two & 0xFFFFFFFF
        two = two + odd + one & 0xFFFFFFFF
    return one, two


def _sums(data: bytes) -> Sums:
    return int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")


class _Frame(NamedTuple):
    page: int
    pages: int
    "Of the database after it if it ends a transaction, else 0."
    salts: bytes
    sums: Sums
    at: int
    "Where in the file its page lies."


@dataclass(slots=True)
class Wal:
    committed: dict[int, int] = field(default_factory=dict)
    "Of each page the place of the last version that SQLite accepts."
    pages: int = 0
    "Of the database after the last accepted commit; 0 if there is none."
    doubtful: dict[int, list[int]] = field(default_factory=dict)
    """Of each page the last sound version that SQLite does not accept, and the damaged ones, which need not lie in the
    order they were written in. Under 0 are those that do not say which page they are."""
    _sound: set[int] = field(default_factory=set)
    damaged: bool = False
    "SQLite would accept fewer frames than were written. An unfinished transaction at the end is no damage."

    def _doubt(self, page: int, at: int, sound: bool) -> None:
        places = self.doubtful.setdefault(page, [])
        if sound and page:
            places[:] = [other for other in places if other not in self._sound]
            self._sound.add(at)
        places.append(at)


def read_wal(read: Read, size: int, top: Head, page_size: int) -> Wal:
    wal = Wal()
    pending: list[_Frame] = []
    strays: list[int] = []
    accepted, ours = top.sound, True
    salts, sums = latest_round(read, size, top, page_size), top.sums
    for frame in _frames(read, size, page_size):
        # The checksum of a frame continues the one stored in the frame before it, so damage can be told from what
        # merely follows damage, and a frame with damaged salts from one of an earlier round. Those of earlier rounds
        # may be many, and adding them up would cost more than anything else here.
        sound = (ours or frame.salts == salts) and _is_sound(read, frame, top.order, page_size, sums)
        ours, sums = sound or frame.salts == salts, frame.sums
        if accepted and sound and frame.salts == salts and frame.page:
            pending.append(frame)
            if frame.pages:
                wal.pages = frame.pages
                wal.committed.update((f.page, f.at) for f in pending)
                pending.clear()
            continue
        accepted = False
        if ours:
            wal.damaged = True
            for each in pending:
                wal._doubt(each.page, each.at, sound=True)
            for at in strays:
                wal._doubt(0, at, sound=False)
            pending, strays = [], []
            wal._doubt(frame.page, frame.at, sound)
        else:
            strays.append(frame.at)
    for each in pending:
        wal._doubt(each.page, each.at, sound=True)
    wal.committed = {page: at for page, at in wal.committed.items() if page <= wal.pages}
    return wal


def latest_round(read: Read, size: int, top: Head, page_size: int) -> bytes:
    """What marks the frames that were written last. A log is always written from its start, so if its header does not
    say, the first frames do: by salts that another shares, or that count on from those of the round before."""
    if top.sound:
        return top.salts
    found = [frame.salts for frame in _frames(read, size, page_size) if any(frame.salts)]
    times = Counter(found)
    counts = {_count(salts) for salts in times}
    sure = (salts for salts in found if times[salts] > 1 or (_count(salts) - 1) % (1 << 32) in counts)
    return next(sure, found[0] if found else b"")


def _count(salts: bytes) -> int:
    return int.from_bytes(salts[:4], "big")


def _frames(read: Read, size: int, page_size: int) -> Iterator[_Frame]:
    for start in range(32, size - 24, 24 + page_size):
        data = read(start, 24).ljust(24, b"\0")
        page, pages = struct.unpack(">2I", data[:8])
        yield _Frame(page, pages, data[8:16], _sums(data[16:]), start + 24)


def _is_sound(read: Read, frame: _Frame, order: str, page_size: int, sums: Sums) -> bool:
    page = read(frame.at, page_size)
    named = struct.pack(">2I", frame.page, frame.pages)
    return len(page) == page_size and checksum(order, named + page, sums) == frame.sums
