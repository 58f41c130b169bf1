"""Where each row of a sound SQLite store lies in its files, byte by byte.

This is the judge of what a damaged file still holds, so it shares nothing with the code that it judges: that one looks
at every page and believes none, this one goes down from the roots as SQLite does.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

INTERIOR, LEAF, INDEX_INTERIOR, INDEX_LEAF = 5, 13, 2, 10


class Span(NamedTuple):
    """Some bytes of the database file, or of its log."""

    file: str
    at: int
    length: int


@dataclass
class Places:
    """One state of a database: what kind each page is of, where it lies, and which bytes make up each row."""

    page_size: int
    pages: dict[int, Span]
    roots: dict[str, int] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    """`leaf of perdure_events`, `overflow of perdure_blobs` and so on; what hangs in no tree is `free`."""
    rows: dict[str, dict[int, list[Span]]] = field(default_factory=dict)
    """By table and rowid. Of a row in several pages the number of the frame is part of it."""
    paths: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    """The pages that lead to it, its own first."""


def places(main: bytes, wal: bytes, roots: dict[str, int]) -> Places:
    """`roots`: of each table and index. The files must be sound, and of the log nothing left unfinished."""
    size = struct.unpack(">H", main[16:18])[0]
    found = Places(size, _pages(main, wal, size), roots)
    reader = _Reader(found, {"main": main, "wal": wal})
    for name, root in {"sqlite_schema": 1, **roots}.items():
        found.rows[name], found.paths[name] = {}, {}
        reader.tree(name, root, [])
    for number in found.pages:
        found.kinds.setdefault(number, "free")
    return found


def _pages(main: bytes, wal: bytes, size: int) -> dict[int, Span]:
    pages = {n + 1: Span("main", n * size, size) for n in range(len(main) // size)}
    pending: dict[int, Span] = {}
    count = 0
    for at in range(32, len(wal), size + 24):
        number, commit = struct.unpack(">2I", wal[at : at + 8])
        if wal[at + 8 : at + 16] != wal[16:24]:
            break
        pending[number] = Span("wal", at + 24, size)
        if commit:
            pages.update(pending)
            pending, count = {}, commit
    return {number: span for number, span in pages.items() if not count or number <= count}


class _Reader:
    def __init__(self, places: Places, files: dict[str, bytes]) -> None:
        self._places, self._files = places, files

    def tree(self, name: str, number: int, above: list[int]) -> None:
        page, base = self._page(number), 100 if number == 1 else 0
        kind = page[base]
        word = {INTERIOR: "interior", LEAF: "leaf", INDEX_INTERIOR: "interior", INDEX_LEAF: "leaf"}[kind]
        self._places.kinds[number] = f"{word} of {name}"
        count = struct.unpack(">H", page[base + 3 : base + 5])[0]
        array = base + (12 if word == "interior" else 8)
        for n in range(count):
            at = struct.unpack(">H", page[array + 2 * n : array + 2 * n + 2])[0]
            if word == "interior":
                self.tree(name, struct.unpack(">I", page[at : at + 4])[0], [number, *above])
            if kind != INTERIOR:
                self._cell(name, number, page, at, kind, above)
        if word == "interior":
            self.tree(name, struct.unpack(">I", page[base + 8 : base + 12])[0], [number, *above])

    def _cell(self, name: str, number: int, page: bytes, at: int, kind: int, above: list[int]) -> None:
        size, begin = _number(page, at + 4 * (kind == INDEX_INTERIOR))
        rowid, begin = _number(page, begin) if kind == LEAF else (0, begin)
        most = len(page) - 35 if kind == LEAF else (len(page) - 12) * 64 // 255 - 23
        kept = size
        if size > most:
            least = (len(page) - 12) * 32 // 255 - 23
            kept = least + (size - least) % (len(page) - 4)
            kept = kept if kept <= most else least
        where = self._places.pages[number]
        spans = [Span(where.file, where.at + at, begin + kept - at + 4 * (kept < size))]
        path = [number, *above]
        if kept < size:
            for of in self._overflow(struct.unpack(">I", page[begin + kept : begin + kept + 4])[0]):
                self._places.kinds[of] = f"overflow of {name}"
                spans.append(_with_name(self._places.pages[of]))
                path.append(of)
        if kind == LEAF:
            self._places.rows[name][rowid] = spans
            self._places.paths[name][rowid] = path

    def _overflow(self, number: int) -> Iterator[int]:
        while number:
            yield number
            number = struct.unpack(">I", self._page(number)[:4])[0]

    def _page(self, number: int) -> bytes:
        file, at, length = self._places.pages[number]
        return self._files[file][at : at + length]


def _with_name(span: Span) -> Span:
    return Span("wal", span.at - 24, span.length + 24) if span.file == "wal" else span


def _number(page: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(at, at + 8):
        value = value << 7 | page[place] & 0x7F
        if page[place] < 0x80:
            return value, place + 1
    return value << 8 | page[at + 8], at + 9
