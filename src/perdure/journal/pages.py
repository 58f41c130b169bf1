"""Rows straight out of the pages of an SQLite file, without SQLite.

SQLite reads a table from its root downwards, so one destroyed page can hide every row below it, and a destroyed
first page hides them all. The rows are still there: every leaf page describes itself. So we start at no root; we
look at each page of the file and take what it holds.

What is found here is evidence. A caller knows what its rows must look like and checks each of them by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from perdure.journal.cells import (
    INDEX_INTERIOR,
    INDEX_LEAF,
    INTERIOR,
    LEAF,
    UNREADABLE,
    Broken,
    Cell,
    Leaf,
    Value,
    carve,
    children,
    index_rests,
    integer,
    may_be_leaf,
    pointers,
    read_leaf,
    values_of,
)
from perdure.journal.wal import Head, Wal, head, read_wal

SIZES = (8192, 4096, 16384, 32768, 65536, 2048, 1024, 512)
MAGIC = b"SQLite format 3\0"
MOST_NOTES = 100


class Row(NamedTuple):
    page: int
    "The page its cell lies on; 0 if the frame of the WAL that holds it no longer says."
    root: int
    """The top of the tree its page hangs in, as far as interior pages tell: the `rootpage` of `sqlite_schema` where
    nothing is damaged, the page itself where its parent is lost, 0 where two parents claim it."""
    rowid: int
    values: tuple[Value, ...]
    """As stored: an INTEGER PRIMARY KEY is None (it is the rowid), a whole REAL may be an int, a column added after
    the row was written is absent."""
    doubtful: bool
    """SQLite would not show this row: it lies in the WAL at or behind a damaged frame or in an unfinished transaction,
    past the end of the database, or where nothing points to it. It may be an acknowledged row, an older copy of one,
    a row that was deleted, or chance."""


@dataclass(slots=True)
class Scan:
    """What a reading went through; it fills while the reading goes on."""

    page_size: int = 0
    pages: int = 0
    "Pages and frames looked at."
    leaves: int = 0
    rows: int = 0
    doubtful: int = 0
    "How many of the rows were doubtful."
    unreadable_cells: int = 0
    "Rows of which something is left that cannot be read. Those on pages that are gone altogether cannot be counted."
    unknown_pages: int = 0
    "Pages that are no table, index, free or empty page nor the rest of a row that was read. They may have been leaves."
    notes: list[str] = field(default_factory=list)
    notes_left_out: int = 0

    def note(self, text: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(text)
        else:
            self.notes_left_out += 1


def rows(path: Path, scan: Scan | None = None) -> Iterator[Row]:
    """Every row that can still be read in the rowid tables of the database `path` and its WAL, page by page.

    Never fails because of what the files hold; raises OSError only if `path` cannot be opened. Time is linear in the
    size of the files, memory is a few numbers a page and one row. The files are neither locked nor written: nobody
    else should have them open.

    Where the WAL is sound only the last committed version of a page is read, and pages on a sound freelist are passed
    over, so what was deleted stays deleted. Where it is not, a rowid may come twice: from the page as SQLite would
    accept it, and doubtful, from its last version after the damage. The caller decides, and lets an erased version
    win. Text is read as UTF-8; bytes that are not become surrogates (`surrogateescape`).
    """
    scan = Scan() if scan is None else scan
    with ExitStack() as stack:
        file = _File(stack.enter_context(path.open("rb", buffering=0)).fileno(), scan)
        log = None
        try:
            wal = path.with_name(path.name + "-wal").open("rb", buffering=0)
            log = _File(stack.enter_context(wal).fileno(), scan)
        except FileNotFoundError:
            pass
        except OSError as error:
            scan.note(f"the WAL cannot be opened: {error.strerror}")
        yield from _Search(file, log, scan).rows()


class _File:
    def __init__(self, number: int, scan: Scan) -> None:
        self._number, self._scan = number, scan
        self.size = os.fstat(number).st_size

    def read(self, at: int, length: int) -> bytes:
        """At most `length` bytes; fewer at the end of the file, none where the disk refuses."""
        # Not mmap: there a bad sector, or a file that shrinks meanwhile, is a signal that ends the process.
        try:
            return os.pread(self._number, length, at)
        except (OSError, OverflowError) as error:
            self._scan.note(f"{length} bytes at {at} cannot be read: {error}")
            return b""


Frames = dict[int, int]
Numbered = tuple[int, bytes]


class _Search:
    def __init__(self, file: _File, log: _File | None, scan: Scan) -> None:
        self._file, self._log, self._scan = file, log, scan
        self._wal = Wal()
        top = head(log.read) if log and log.size else None
        scan.page_size, self._usable = _layout(file, top)
        if log and top:
            self._wal = self._read_wal(log, top)
        self._in_file = -(-file.size // scan.page_size)
        self._last = max(self._in_file, *self._wal.committed, 1)
        self._held = self._in_file + len(self._wal.committed) + len(self._wal.doubtful)
        # Every page of a sound file is the rest of one row at most. Damage may send a few rows over the same pages;
        # a file made for it could send all of them over all pages, and that we do not follow.
        self._steps = 8 * self._held
        self._parents: dict[int, int] = {}

    def _read_wal(self, log: _File, top: Head) -> Wal:
        wal = read_wal(log.read, log.size, top, self._scan.page_size)
        if not top.sound:
            self._scan.note("the header of the WAL is damaged: SQLite would ignore all of it")
        if wal.doubtful:
            count = sum(len(places) for places in wal.doubtful.values())
            self._scan.note(
                f"{count} pages in the WAL are damaged, behind damage or of an unfinished transaction"
            )
        return wal

    def rows(self) -> Iterator[Row]:
        first = self._page(1, self._wal.committed)
        if not first.startswith(MAGIC):
            self._scan.note(
                f"the header of the file is damaged; its pages seem to have {self._scan.page_size} bytes"
            )
        if self._file.size % self._scan.page_size:
            self._scan.note(f"the file ends in the middle of page {self._in_file}")
        free = self._free(first)
        self._read_interior(free)
        if taken := free & self._parents.keys():
            self._scan.note(f"{len(taken)} pages are both free and in use; they are read")
            free -= taken
        end, sure = self._end(first)
        inside = [n for n in self._numbers() if n <= end and n not in free]
        yield from self._walk(lambda: self._pages(inside), self._wal.committed, doubtful=False)
        beyond = [n for n in self._numbers() if n > end and n not in free]
        if beyond:
            self._scan.note(f"{len(beyond)} pages lie past the end of the database, which has {end}")
        if not sure:
            yield from self._walk(lambda: self._pages(beyond), self._wal.committed, doubtful=True)
        yield from self._walk(self._doubtful_pages, self._latest(), doubtful=True)

    def _numbers(self) -> Iterator[int]:
        yield from range(1, self._in_file + 1)
        yield from sorted(n for n in self._wal.committed if n > self._in_file)

    def _pages(self, numbers: list[int]) -> Iterator[Numbered]:
        return ((n, self._page(n, self._wal.committed)) for n in numbers)

    def _doubtful_pages(self) -> Iterator[Numbered]:
        for number, places in self._wal.doubtful.items():
            for at in places:
                yield number, self._frame(at)

    def _latest(self) -> Frames:
        return self._wal.committed | {n: places[-1] for n, places in self._wal.doubtful.items() if n}

    def _page(self, number: int, frames: Frames) -> bytes:
        if number in frames:
            return self._frame(frames[number])
        return self._file.read((number - 1) * self._scan.page_size, self._scan.page_size) if number else b""

    def _frame(self, at: int) -> bytes:
        return self._log.read(at, self._scan.page_size) if self._log else b""

    def _free(self, first: bytes) -> set[int]:
        """The pages on the freelist; none if it does not hold together, for a wrong one would hide rows."""
        free: set[int] = set()
        trunk, count = integer(first, 32), integer(first, 36)
        while 1 < trunk <= self._last and trunk not in free and len(free) < count:
            page = self._page(trunk, self._wal.committed)
            listed = min(integer(page, 4), self._usable // 4 - 2)
            free |= {trunk, *(integer(page, 8 + 4 * n) for n in range(listed))}
            trunk = integer(page, 0)
        if trunk or len(free) != count or 1 in free:
            self._scan.note(
                "the list of free pages is damaged; rows that were deleted may be among those found"
            )
            return set()
        return free

    def _read_interior(self, free: set[int]) -> None:
        for number, page in self._pages([n for n in self._numbers() if n not in free]):
            at = _header(number, page)
            if page[at : at + 1] == INTERIOR:
                for child in children(page, at, self._last):
                    self._parents[child] = 0 if child in self._parents else number

    def _root(self, number: int) -> int:
        for _ in range(20):
            if number not in self._parents:
                return number
            number = self._parents[number]
        return 0

    def _end(self, first: bytes) -> tuple[int, bool]:
        """How many pages the database has, and whether we know it well enough to call the rest leftovers."""
        if self._wal.pages:
            end, sure = self._wal.pages, not self._wal.damaged
        elif integer(first, 28) and first[24:28] == first[92:96]:
            end, sure = integer(first, 28), False
        else:
            return self._last, False
        missing = end - self._in_file - sum(1 for n in self._wal.committed if n > self._in_file)
        if missing > 0:
            self._scan.note(
                f"{missing} of the {end} pages of the database are missing at the end of the file"
            )
        return end, sure

    def _walk(self, pages: Callable[[], Iterable[Numbered]], frames: Frames, doubtful: bool) -> Iterator[Row]:
        used: set[int] = set()
        for number, page in pages():
            self._scan.pages += 1
            at = _header(number, page)
            if page[at : at + 1] == LEAF:
                leaf = read_leaf(page, at, self._usable)
                yield from self._rows_of(number, page, leaf, frames, used, doubtful)
            elif page[at : at + 1] in (INDEX_LEAF, INDEX_INTERIOR):
                for rest in index_rests(page, at, self._usable):
                    with suppress(Broken):
                        self._rest(*rest, frames, used)
        # Only now do we know which of the other pages are the rest of a row.
        for number, page in pages():
            if number not in used and page.count(0) != len(page):
                yield from self._stray(number, page, frames, used)

    def _stray(self, number: int, page: bytes, frames: Frames, used: set[int]) -> Iterator[Row]:
        """What may be left of a leaf whose own header is damaged."""
        at = _header(number, page)
        kind = page[at : at + 1]
        if kind == LEAF:
            return
        leaf = read_leaf(page, at, self._usable) if may_be_leaf(page, at, self._usable) else None
        if leaf is None or len(leaf.cells) <= leaf.missing:
            if kind == INTERIOR and children(page, at, self._last):
                return
            if kind in (INDEX_LEAF, INDEX_INTERIOR) and pointers(page, at) is not None:
                return
            self._scan.unknown_pages += 1
            leaf = Leaf([], 0, [(at, min(self._usable, len(page)))], whole=True)
        yield from self._rows_of(number, page, leaf, frames, used, doubtful=True)

    def _rows_of(
        self, number: int, page: bytes, leaf: Leaf, frames: Frames, used: set[int], doubtful: bool
    ) -> Iterator[Row]:
        self._scan.leaves += 1
        root, lost = self._root(number), leaf.missing
        found = ((cell, True) for cell in leaf.cells)
        tried = ((cell, False) for gap in leaf.gaps for cell in carve(page, *gap, self._usable))
        for cell, named in chain(found, tried):
            try:
                values = values_of(self._record(page, cell, frames, used))
            except UNREADABLE:
                lost += named
                continue
            lost -= not named
            self._scan.rows += 1
            self._scan.doubtful += doubtful or not named
            yield Row(number, root, cell.rowid, values, doubtful or not named)
        self._scan.unreadable_cells += max(0, lost)
        if lost > 0 or not leaf.whole:
            self._scan.note(f"page {number} is damaged: {max(0, lost)} of its rows cannot be read")

    def _record(self, page: bytes, cell: Cell, frames: Frames, used: set[int]) -> bytes:
        begun = page[cell.begin : cell.begin + cell.kept]
        return begun + self._rest(cell.more, cell.size - cell.kept, frames, used) if cell.more else begun

    def _rest(self, number: int, missing: int, frames: Frames, used: set[int]) -> bytes:
        room, parts = self._usable - 4, []
        passed: set[int] = set()
        while missing > 0:
            self._steps -= 1
            if self._steps < 0 or number < 1 or number in passed or missing > room * self._held:
                raise Broken
            page = self._page(number, frames)
            parts.append(page[4 : 4 + min(missing, room)])
            passed.add(number)
            missing -= room
            number = integer(page, 0)
        used |= passed
        return b"".join(parts)


def _header(number: int, page: bytes) -> int:
    return 100 if number == 1 or page.startswith(MAGIC) else 0


def _layout(file: _File, log: Head | None) -> tuple[int, int]:
    """The page size and how much of a page is used: what the headers say, unless the pages say otherwise."""
    first = file.read(0, 100).ljust(100, b"\0")
    claimed, reserved = integer(first, 16, 2), first[20]
    said = [log.page_size] if log and log.sound else []
    said += [65536 if claimed == 1 else claimed, log.page_size if log else 0]
    said = [size for size in said if size in SIZES]
    for size in said[:1]:
        for usable in (size - reserved, size):
            if _whole_leaves(file, size, usable, enough=1):
                return size, usable
    found = {size: size * _whole_leaves(file, size, size) for size in SIZES}
    best = max(SIZES, key=found.__getitem__)
    if found[best] and not (log and log.sound):
        return best, best
    size = [*said, SIZES[0]][0]
    return size, size - reserved if first.startswith(MAGIC) and size - reserved >= 480 else size


def _whole_leaves(file: _File, size: int, usable: int, enough: int = 64) -> int:
    """How many pages are whole leaves if this is the size of a page; it stops at `enough`."""
    count, chunk = 0, 1 << 20
    for start in range(0, file.size if usable >= 480 else 0, chunk):
        data = file.read(start, chunk)
        kinds = data[::size]
        place = -1
        while count < enough and (place := kinds.find(LEAF, place + 1)) >= 0:
            count += _is_whole(data[place * size : (place + 1) * size], 0, usable)
        count += start == 0 and data[100:101] == LEAF and _is_whole(data[:size], 100, usable)
        if count >= enough:
            break
    return count


def _is_whole(page: bytes, at: int, usable: int) -> bool:
    return may_be_leaf(page, at, usable) and read_leaf(page, at, usable).whole
