"""From the layout an SQLite file has to that of this build, in one transaction, and a copy of the file as it was."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from perdure.journal import migrate
from perdure.journal.files import utf8_name
from perdure.journal.speaking import said
from perdure.journal.store import Stored

log = logging.getLogger("perdure.journal")

SESSION = "SELECT stretch, id, lineage, head, chain, batch, batch_seq, folded FROM perdure_sessions WHERE "
_DUE = "UPDATE perdure_sessions SET runnable_at = ? WHERE stretch = ?"

Read = Callable[[apsw.Connection, tuple[Any, ...]], Stored]
"""Makes a session of a row that `SESSION` asked for."""


def layout_of(db: apsw.Connection) -> int:
    """The layout of a file, 0 if there is nothing of ours in it yet."""
    if not db.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'perdure_store'"
    ).fetchone():
        return 0
    row = db.execute("SELECT value FROM perdure_store WHERE name = 'layout'").fetchone()
    if row and not (isinstance(row[0], str) and row[0].isdecimal()):
        raise apsw.CorruptError(f"its layout is {row[0]!r}")
    return int(row[0]) if row else 0


def has_log(db: apsw.Connection) -> bool:
    """A new file has no write-ahead log, and neither has a backup until somebody works on it."""
    row = db.execute("PRAGMA journal_mode").fetchone()
    return row is not None and row[0] == "wal"


def lay_out(db: apsw.Connection, layout: int, read: Read) -> None:
    """Take the file from `layout` to this build's, all the way or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        migrate.apply("sqlite", layout, db.execute)
        if layout:
            _say_what_is_due(db, read)
        db.execute("CREATE TABLE IF NOT EXISTS perdure_store (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        db.execute("INSERT OR REPLACE INTO perdure_store VALUES ('layout', ?)", (str(migrate.LAYOUT),))
        db.execute("INSERT OR IGNORE INTO perdure_store VALUES ('writes', '1')")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def back_up(db: apsw.Connection, path: Path, layout: int, now: int, vfs: str | None) -> Path:
    """Copy the file to a name that says its layout and the time, and return it."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now / 1e6))
    copy = path.with_name(f"{path.name}.layout-{layout}-{stamp}-{os.getpid()}.backup")
    os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    copy_database(db, copy, vfs)
    return copy


def copy_database(source: apsw.Connection, target: Path, vfs: str | None = None) -> None:
    """A consistent copy of the whole file, foreign tables included, while others go on writing."""
    copy = apsw.Connection(utf8_name(target), vfs=vfs)
    try:
        with copy.backup("main", source, "main") as backup:
            # In one step: between two, a writer would make it begin anew, and a busy store would never be copied.
            backup.step()
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
        copy.execute("PRAGMA synchronous = FULL")
    except apsw.FullError as why:
        raise said(target, why) from why
    finally:
        copy.close()


def _say_what_is_due(db: apsw.Connection, read: Read) -> None:
    """Fill in when each session is due. Layout 1 does not say it, and what nobody finds nobody runs."""
    after = 0
    while True:
        rows: list[Any] = db.execute(SESSION + "stretch > ? ORDER BY stretch LIMIT 500", (after,)).fetchall()
        if not rows:
            return
        db.executemany(_DUE, [(at, row[0]) for row in rows if (at := _due(db, row, read)) is not None])
        after = rows[-1][0]


def _due(db: apsw.Connection, row: tuple[Any, ...], read: Read) -> int | None:
    try:
        return read(db, row).folded.runnable_at
    except (ValueError, TypeError) as why:
        # It can be neither run nor read, and must not keep all others from being upgraded. `doctor` names it.
        log.warning("load error", extra={"session": row[1], "what": "row", "why": str(why)})
        return None
