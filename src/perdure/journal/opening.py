"""One SQLite file, held open by one process: a connection that reads, one that writes, and a way to let them go.

Writers of all processes queue on a lock file before they begin, so that nobody is ever told that the database is
locked, and whoever holds the lock folds the log into the database when it has grown.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from perdure.errors import PerdureError, StoreUnavailable
from perdure.journal import migrate
from perdure.journal.clock import Clock
from perdure.journal.files import LockFile, prepare, utf8_name
from perdure.journal.speaking import PATIENCE, Speaking
from perdure.journal.unread import refuse_forgetting, refuse_orphan
from perdure.journal.upgrading import Read, back_up, has_log, lay_out, layout_of

log = logging.getLogger("perdure.journal")

CHECKPOINT_PAGES = 2048
"""The log is folded into the database when it holds this many pages (16 MB), by a writer that holds the lock file,
so that it always completes: writers are queued, and no read of ours lasts longer than a page."""

_GONE = (
    "was removed or replaced while it was open; nothing more is written; put it back, with its -wal, "
    "or open the store anew"
)


class SqliteFile:
    """The file of a store: what is stored in it is the business of those who derive from this."""

    def __init__(
        self, path: Path, clock: Clock, durability: str, vfs: str | None, checkpoint_pages: int
    ) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self._clock = clock
        self._vfs = vfs
        # FULL, not the usual NORMAL: under WAL, NORMAL may forget the last commits in a power cut, and we have
        # already shown them to someone.
        self._synchronous = "NORMAL" if durability == "process" else "FULL"
        self._checkpoint_pages = checkpoint_pages
        self._wal_pages = 0
        self._writing: apsw.Connection | None = None
        refuse_orphan(path)
        prepare(path)
        self._is = _identity(path)
        self._lock = LockFile(path.with_name(path.name + ".lock"))
        self._speaking = Speaking(path)
        self._transaction = _Transaction(self)

    def _open(self, announce: Callable[[str], None], read: Read) -> None:
        try:
            with self._speaking:
                # One connection for both: closing another would move the log into a file not yet known to be sound.
                self._reading = self._connect()
                self._migrate(self._reading, announce, read)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> apsw.Connection:
        db = apsw.Connection(utf8_name(self.path), vfs=self._vfs, statementcachesize=50)
        # Nothing is moved from a log into a file that turns out to be damaged: `_let_go` allows it where all is well.
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.set_busy_timeout(int(PATIENCE * 1000))
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        db.execute("PRAGMA secure_delete = ON")  # what was erased is not left lying in free pages
        db.execute("PRAGMA cache_size = -16000")
        if sys.platform == "darwin":
            db.execute("PRAGMA fullfsync = ON")
        return db

    def _migrate(self, db: apsw.Connection, announce: Callable[[str], None], read: Read) -> None:
        layout = layout_of(db)
        refuse_forgetting(db, self.path, self._lock, unfinished=1 if self._synchronous == "FULL" else 0)
        migrate.check(self.url, layout)
        if layout == migrate.LAYOUT and has_log(db):
            return
        with self._lock:  # several processes may have come this far; the first one does it
            layout = layout_of(db)
            migrate.check(self.url, layout)  # by a newer build, perhaps
            if layout == 0:
                db.execute("PRAGMA page_size = 8192")  # 4096 costs 1.5 times the payload, 8192 costs 1.15
            db.execute("PRAGMA journal_mode = WAL")  # a backup has no log until somebody works on it
            if layout == migrate.LAYOUT:
                return
            if layout:
                copy = back_up(db, self.path, layout, self._clock.wall(), self._vfs)
                announce(f"perdure: upgrading {self.path} from layout {layout}; a backup is at {copy}")
            lay_out(db, layout, read)
        if layout:
            log.info("migrated", extra={"store": self.url, "from": layout, "to": migrate.LAYOUT})

    def _writer(self) -> apsw.Connection:
        if self._writing is None:
            self._writing = self._connect()
            self._writing.set_wal_hook(self._note_wal)
            # A log that grew under a foreign reader is cut back when it begins anew. Twice what it holds in quiet
            # times, so that nothing is cut then: a file whose length stays is quicker to sync.
            self._writing.execute(f"PRAGMA journal_size_limit = {2 * self._checkpoint_pages * 8192}")
        return self._writing

    def _note_wal(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return 0

    def _begin(self) -> apsw.Connection:
        # SQLite would go on writing into a file that has no name any more, or another one.
        if _identity(self.path) != self._is:
            raise StoreUnavailable(str(self.path), _GONE)
        db = self._writer()
        db.execute("BEGIN IMMEDIATE")
        return db

    def _end(self, error: BaseException | None) -> None:
        db = self._writing
        if db is None:
            return
        if error is None:
            db.execute("COMMIT")
            if self._wal_pages >= self._checkpoint_pages:
                self._checkpoint(db)
        elif isinstance(error, PerdureError):
            db.execute("ROLLBACK")
        else:
            self._forsake()

    def _forsake(self) -> None:
        """After a failed write or sync nobody knows what the connection believes: begin anew by reading."""
        db, self._writing = self._writing, None
        if db is not None:
            self._let_go(db)

    def _checkpoint(self, db: apsw.Connection) -> None:
        try:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as why:
            # Nothing is lost and nothing was acknowledged wrongly: the log only stays longer than it should.
            log.warning("checkpoint failed", extra={"store": self.url, "why": str(why)})
        self._wal_pages = 0

    def _let_go(self, db: apsw.Connection) -> None:
        if not self._speaking.damaged:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        try:
            db.close()
        except apsw.Error as why:
            # Of the log, which stays as it is. SQLite keeps it to itself; a VFS in Python does not.
            log.warning("checkpoint failed", extra={"store": self.url, "why": str(why)})

    def _read_one(self, sql: str, *values: Any) -> Any:
        with self._speaking:
            row = self._reading.execute(sql, values).fetchone()
            return None if row is None else row[0]

    def close(self) -> None:
        for db in (self._writing, getattr(self, "_reading", None)):
            if db is not None:
                self._let_go(db)
        self._writing = None
        self._lock.close()


class _Transaction:
    """One durable transaction, under the lock file. A class and not a generator: it is on the way of every append."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def __enter__(self) -> apsw.Connection:
        self._file._lock.__enter__()
        try:
            with self._file._speaking:
                return self._file._begin()
        except BaseException:
            self._file._forsake()
            self._file._lock.__exit__()
            raise

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            with self._file._speaking:
                self._file._end(error)
                if isinstance(error, apsw.Error):
                    raise error
        except BaseException:
            self._file._forsake()
            raise
        finally:
            self._file._lock.__exit__()


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file bears this name, None if none does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def all_of(rows: apsw.Cursor) -> list[tuple[Any, ...]]:
    return rows.fetchall()
