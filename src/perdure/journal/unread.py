"""What SQLite would forget of a write-ahead log, found out before it does.

SQLite reads a log up to the first frame that does not add up, and forgets the rest. After a power cut the rest is the
one transaction that nobody was told of. Behind a damaged frame it is everything that was acknowledged since: the next
write goes over it, and the next close throws it away. So no store is opened over such a log.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from perdure.errors import StoreDamaged
from perdure.journal.files import LockFile
from perdure.journal.wal import checksum, head, latest_round

log = logging.getLogger("perdure.journal")

Read = Callable[[int, int], bytes]
_HEADER, _NAME = 32, 24


def refuse_orphan(path: Path) -> None:
    """Raise `StoreDamaged` if there is a log and no database: SQLite would begin a new one, and delete the log."""
    log = _log_of(path)
    if _size(log) > _HEADER and _size(path) <= 1:  # to SQLite a file of one byte is an empty one
        raise StoreDamaged(
            str(path),
            f"is empty, but {log.name} beside it holds what was written last; nothing was changed; put the file back, "
            "or run `perdure doctor --salvage FILE` to save what is in the log",
        )


def refuse_forgetting(db: apsw.Connection, path: Path, lock: LockFile, unfinished: int) -> None:
    """Raise if SQLite would forget more of the log than the transactions that a crash can have left `unfinished`."""
    found: list[Any] = db.execute("PRAGMA page_size").fetchall()
    size = int(found[0][0])
    accepted, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    if accepted < 0 or not may_be_forgotten(path, accepted, size):
        return
    # Somebody may just have been writing. Now nobody is.
    with lock:
        db.execute("BEGIN IMMEDIATE")
        try:
            count = forgotten(path, size)
        finally:
            db.execute("ROLLBACK")
    if count > unfinished:
        raise apsw.CorruptError(f"{count} transactions lie behind a damaged place in its log")
    if count:
        log.warning("the end of the log is not whole", extra={"store": f"sqlite:///{path}"})


def may_be_forgotten(path: Path, accepted: int, page_size: int) -> bool:
    """Whether a transaction ends behind the `accepted` frames of the log. Quick: it reads no more than their names."""
    with _reading(_log_of(path)) as (read, size):
        salts = latest_round(read, size, head(read), page_size)
        places = range(_HEADER + accepted * (_NAME + page_size), size - _NAME, _NAME + page_size)
        return any(_ends(read(at, _NAME), salts) for at in places)


def forgotten(path: Path, page_size: int) -> int:
    """How many transactions end at or behind the first frame of the log that does not add up. One may have been cut
    short by a crash; several were acknowledged."""
    with _reading(_log_of(path)) as (read, size):
        top = head(read)
        salts = latest_round(read, size, top, page_size)
        sums, sound, count = top.sums, top.sound, 0
        for at in range(_HEADER, size - _NAME, _NAME + page_size):
            name = read(at, _NAME)
            if sound:
                page = read(at + _NAME, page_size)
                sums = checksum(top.order, name[:8] + page, sums) if len(page) == page_size else (0, 0)
                sound = name[8:16] == salts and struct.pack(">2I", *sums) == name[16:]
            count += not sound and _ends(name, salts)
        return count


def _ends(name: bytes, salts: bytes) -> bool:
    return any(salts) and name[8:16] == salts and any(name[4:8])


@contextmanager
def _reading(log: Path) -> Iterator[tuple[Read, int]]:
    try:
        fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield lambda at, length: b"", 0
        return
    try:
        yield lambda at, length: os.pread(fd, length, at), os.fstat(fd).st_size
    finally:
        os.close(fd)


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
