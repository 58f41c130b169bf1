"""One page of an SQLite file, read by itself: the rows it holds, and where they go on.

Nothing here believes what it reads. A row is a row if its parts add up; a page is whole if its rows do.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

Value = None | int | float | bytes | str

LEAF, INTERIOR, INDEX_LEAF, INDEX_INTERIOR = b"\x0d", b"\x05", b"\x0a", b"\x02"


class Broken(Exception):
    """Nothing that SQLite would have written."""


UNREADABLE = (Broken, IndexError)


class Cell(NamedTuple):
    at: int
    end: int
    rowid: int
    size: int
    "Of the whole record."
    begin: int
    kept: int
    "How much of the record lies on this page, from `begin`."
    more: int
    "The page where the rest of it begins."


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(at, at + 8):
        byte = data[place]
        if byte < 0x80:
            return value << 7 | byte, place + 1
        value = value << 7 | byte & 0x7F
    return value << 8 | data[at + 8], at + 9


def integer(data: bytes, at: int, width: int = 4) -> int:
    return int.from_bytes(data[at : at + width], "big")


def _cell(page: bytes, at: int, usable: int) -> Cell:
    size, begin = _varint(page, at)
    rowid, begin = _varint(page, begin)
    kept, more = _kept(size, usable, usable - 35), 0
    end = max(begin + kept, at + 4)
    if kept < size:
        more, end = integer(page, begin + kept), end + 4
    if end > min(usable, len(page)):
        raise Broken
    if kept == size or _varint(page, begin)[0] <= kept:
        # A cell has to make sense before its overflow is fetched, or garbage would send us all over the file.
        _types(page, begin, size)
    return Cell(at, end, rowid - (rowid >> 63 << 64), size, begin, kept, more)


def _kept(size: int, usable: int, most: int) -> int:
    if size <= most:
        return size
    least = (usable - 12) * 32 // 255 - 23
    kept = least + (size - least) % (usable - 4)
    return kept if kept <= most else least


_WIDTHS = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)


def _types(record: bytes, at: int, size: int) -> tuple[list[int], int]:
    """The serial types of a record and where its values begin. They must fill it exactly, which chance rarely does."""
    total, place = _varint(record, at)
    begin = at + total
    if not at < place < begin or total > size:
        raise Broken
    types = []
    while place < begin and total <= size:
        kind, place = _varint(record, place)
        if kind in (10, 11):
            raise Broken
        total += _width(kind)
        types.append(kind)
    if place != begin or total != size:
        raise Broken
    return types, begin


def _width(kind: int) -> int:
    return _WIDTHS[kind] if kind < 10 else (kind - 12) >> 1


def values_of(record: bytes) -> tuple[Value, ...]:
    types, at = _types(record, 0, len(record))
    values: list[Value] = []
    for kind in types:
        end = at + _width(kind)
        values.append(_value(kind, record[at:end]))
        at = end
    return tuple(values)


def _value(kind: int, data: bytes) -> Value:
    if kind >= 12:
        return data.decode("utf-8", "surrogateescape") if kind & 1 else data
    if kind == 7:
        return float(struct.unpack(">d", data)[0])
    if kind in (0, 8, 9):
        return None if kind == 0 else kind - 8
    return int.from_bytes(data, "big", signed=True)


class Leaf(NamedTuple):
    cells: list[Cell]
    missing: int
    "Pointers that lead to no cell."
    gaps: list[tuple[int, int]]
    "Where there may be cells to which nothing points."
    whole: bool
    "Cells, free blocks and fragments add up to the page."


def read_leaf(page: bytes, at: int, usable: int) -> Leaf:
    """The page as a table leaf whose header lies at `at`, whatever its type byte says."""
    named, content = integer(page, at + 3, 2), integer(page, at + 5, 2) or 65536
    array = at + 8
    room = min(content, usable) if content > array else usable
    ends = range(array + 2, array + 2 + 2 * min(named, (room - array) // 2), 2)
    found = {integer(page, end - 2, 2): None for end in ends if integer(page, end - 2, 2) >= end}
    cells = [cell for place in found if (cell := _try(page, place, usable))]
    blocks = _free_blocks(page, at, content, usable)
    taken = sorted([(cell.at, cell.end) for cell in cells] + blocks)
    used = sum(end - begin for begin, end in taken) + (page[at + 7] if len(page) > at + 7 else 0)
    apart = all(before[1] <= after[0] for before, after in pairwise(taken))
    whole = apart and len(cells) == named and used == usable - content and len(page) >= usable
    floor = array + 2 * len(ends)
    if floor <= content <= (taken[0][0] if taken else usable):
        # Below it may lie rows as they were before the page was rebuilt: secure_delete does not reach those.
        floor = content
    elif len(cells) == named and taken:
        floor = taken[0][0]
    return Leaf(
        cells, len(ends) - len(cells), [] if whole else _gaps(taken, floor, min(usable, len(page))), whole
    )


def may_be_leaf(page: bytes, at: int, usable: int) -> bool:
    """Whether it is worth the time to read a page as a leaf that does not say it is one."""
    named, content = integer(page, at + 3, 2), integer(page, at + 5, 2) or 65536
    fits = at + 8 + 2 * named <= content <= usable
    return fits and named > 0 and _try(page, integer(page, at + 8, 2), usable) is not None


def _try(page: bytes, at: int, usable: int) -> Cell | None:
    try:
        return _cell(page, at, usable)
    except UNREADABLE:
        return None


def _free_blocks(page: bytes, at: int, content: int, usable: int) -> list[tuple[int, int]]:
    blocks: list[tuple[int, int]] = []
    place, floor = integer(page, at + 1, 2), content
    while place >= floor and place + 4 <= usable:
        floor = place + max(4, integer(page, place + 2, 2))
        blocks.append((place, floor))
        place = integer(page, place, 2)
    return [] if blocks and blocks[-1][1] > usable else blocks


def _gaps(taken: list[tuple[int, int]], floor: int, ceiling: int) -> list[tuple[int, int]]:
    gaps = []
    for begin, end in [*taken, (ceiling, ceiling)]:
        if begin - floor >= 4:
            gaps.append((floor, begin))
        floor = max(floor, end)
    return gaps


_MAYBE = re.compile(
    rb"(?=([\x02-\x7f]|[\x81-\xff][\x80-\xff]{0,2}[\0-\x7f])"  # size
    rb"(?:[\x80-\xff]{0,7}[\0-\x7f]|[\x80-\xff]{8}[\0-\xff])"  # rowid
    rb"([\x02-\x1f]))"  # length of the record's header
)
_ROOM = [_width(kind) if kind not in (10, 11) else 1 << 31 for kind in range(0x80)]


def carve(page: bytes, begin: int, end: int, usable: int) -> Iterator[Cell]:
    """Cells between two places of a page, found by trying. Of tables with more than thirty columns it finds none."""
    for maybe in _MAYBE.finditer(page, begin, end):
        place = maybe.start()
        if place < begin:
            continue
        # This is asked at every byte of a destroyed page and must be quick to say no.
        size, _ = _varint(page, place)
        header = page[maybe.start(2) : maybe.start(2) + page[maybe.start(2)]]
        if len(header) > size or (header.isascii() and _filled(header) != size):
            continue
        cell = _try(page, place, usable)
        if cell and cell.end <= end:
            yield cell
            begin = cell.end


def _filled(header: bytes) -> int:
    return header[0] + sum([_ROOM[kind] for kind in header[1:]])


def children(page: bytes, at: int, last: int) -> list[int]:
    """The pages below an interior page of a table; none if it does not hold together."""
    places = pointers(page, at)
    if places is None:
        return []
    below = [integer(page, at + 8), *(integer(page, place) for place in places)]
    return below if all(1 < child <= last for child in below) else []


def index_rests(page: bytes, at: int, usable: int) -> list[tuple[int, int]]:
    """Where the keys of an index page that are too long for it go on, and how much of them is there."""
    child = 4 * (page[at : at + 1] == INDEX_INTERIOR)
    places = pointers(page, at) or []
    page += bytes(9)
    rests = []
    for place in places:
        size, begin = _varint(page, place + child)
        kept = _kept(size, usable, (usable - 12) * 64 // 255 - 23)
        if kept < size:
            rests.append((integer(page, begin + kept), size - kept))
    return rests


def pointers(page: bytes, at: int) -> list[int] | None:
    """Where the cells of a page lie; None if it does not hold together."""
    count, content = integer(page, at + 3, 2), integer(page, at + 5, 2) or 65536
    array = at + (12 if page[at : at + 1] in (INTERIOR, INDEX_INTERIOR) else 8)
    if array + 2 * count > min(content, len(page)):
        return None
    places = [integer(page, array + 2 * n, 2) for n in range(count)]
    return places if all(content <= place < len(page) for place in places) else None
