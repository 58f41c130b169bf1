"""Sessions in one SQLite file: any number of processes, one writer at a time, nothing shown before it is on disk."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from operator import lt
from pathlib import Path
from shlex import quote
from threading import Event as Flag
from typing import Any, TypeVar

import apsw

from perdure.errors import PerdureError, StoreDamaged, StoreUnavailable
from perdure.events import Event, Unreadable
from perdure.journal import migrate
from perdure.journal.admit import Batch, Earlier, admit
from perdure.journal.clock import Clock, boot_id
from perdure.journal.files import LockFile, prepare, utf8_name
from perdure.journal.heads import HeadCache
from perdure.journal.rows import event_in, link_of
from perdure.journal.spared import DAMAGE, FAR, spared
from perdure.journal.store import (
    Append,
    Appended,
    BlobRow,
    Kept,
    Lineage,
    Listed,
    PageOfEvents,
    ProcessRow,
    RawEvent,
    Stored,
    Trouble,
    Wanted,
    walk,
)
from perdure.journal.unread import forgotten, may_be_forgotten, refuse_orphan
from perdure.views.head import Head

log = logging.getLogger("perdure.journal")

T = TypeVar("T")

CHECKPOINT_PAGES = 2048
"""The log is folded into the database when it holds this many pages (16 MB), by a writer that holds the lock file,
so that it always completes: writers are queued, and no read of ours lasts longer than a page."""
PAGE_BYTES = 4 << 20
FULL = "the disk is full; free some space and try again"
_PATIENCE = 60.0
_STRETCH = 32
_MOST_KNOWN = 512

_INSERT_EVENT = "INSERT INTO perdure_events (id, data, checksum, seal) VALUES (?, ?, ?, ?)"
_RAW_EVENT = "SELECT data, checksum, seal FROM perdure_events WHERE id = ?"
_INSERT_BLOB = "INSERT OR IGNORE INTO perdure_blobs (hash, size, packed, data) VALUES (?, ?, ?, ?)"
_INSERT_KEY = "INSERT INTO perdure_keys (stretch, key, seq) VALUES (?, ?, ?)"
_INSERT_FOLD = (
    "INSERT OR REPLACE INTO perdure_folds (stretch, view, version, upto, state) VALUES (?, ?, ?, ?, ?)"
)
_IS_LISTED = "SELECT 1 FROM perdure_sessions INDEXED BY perdure_sessions_by_activity WHERE id = ?"
_SESSION = "SELECT stretch, id, lineage, head, chain, batch, batch_seq, folded FROM perdure_sessions WHERE "


class SqliteStore:
    """`Store` over one SQLite file."""

    answers_may_be_lost = False

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        durability: str = "power",
        vfs: str | None = None,
        announce: Callable[[str], None] = print,
        checkpoint_pages: int = CHECKPOINT_PAGES,
    ) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self._clock = clock
        self._vfs = vfs
        # FULL, not the usual NORMAL: under WAL, NORMAL may forget the last commits in a power cut, and we have
        # already shown them to someone.
        self._synchronous = "FULL" if durability == "power" else "NORMAL"
        self._checkpoint_pages = checkpoint_pages
        self._wal_pages = 0
        self._heads = HeadCache()
        self._known: dict[str, Stored] = {}
        """Sessions as our last commit left them; they are that still while nobody has written since."""
        self._known_at = 0
        self._first, self._first_at = "", -1
        """The session that our last commits left at the head of the list, by this time in its row. While nobody else
        writes it stays there, and what it does needs no new place in the index."""
        self._writing: apsw.Connection | None = None
        self._spared: tuple[int, apsw.Connection, list[str]] | None = None
        refuse_orphan(path)
        prepare(path)
        self._lock = LockFile(path.with_name(path.name + ".lock"))
        self._speaking = _Speaking(path)
        self._transaction = _Transaction(self)
        try:
            with self._speaking:
                # One connection for both: closing another would move the log into a file not yet known to be sound.
                self._reading = self._connect()
                self._migrate(self._reading, announce)
        except BaseException:
            self.close()
            raise

    # Opening

    def _connect(self) -> apsw.Connection:
        db = apsw.Connection(utf8_name(self.path), vfs=self._vfs, statementcachesize=50)
        # Nothing is moved from a log into a file that turns out to be damaged: `_let_go` allows it where all is well.
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.set_busy_timeout(int(_PATIENCE * 1000))
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        db.execute("PRAGMA secure_delete = ON")  # what was erased is not left lying in free pages
        db.execute("PRAGMA cache_size = -16000")
        if sys.platform == "darwin":
            db.execute("PRAGMA fullfsync = ON")
        return db

    def _let_go(self, db: apsw.Connection) -> None:
        if not self._speaking.damaged:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        try:
            db.close()
        except apsw.Error as why:
            # Of the log, which stays as it is. SQLite keeps it to itself; a VFS in Python does not.
            log.warning("checkpoint failed", extra={"store": self.url, "why": str(why)})

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

    def _migrate(self, db: apsw.Connection, announce: Callable[[str], None]) -> None:
        layout = _layout(db)
        self._refuse_forgetting(db)
        migrate.check(self.url, layout)
        if layout == migrate.LAYOUT and _is_wal(db):
            return
        with self._lock:  # several processes may have come this far; the first one does it
            layout = _layout(db)
            migrate.check(self.url, layout)  # by a newer build, perhaps
            if layout == 0:
                db.execute("PRAGMA page_size = 8192")  # 4096 costs 1.5 times the payload, 8192 costs 1.15
            db.execute("PRAGMA journal_mode = WAL")  # a backup has no log until somebody works on it
            if layout == migrate.LAYOUT:
                return
            if 0 < layout < migrate.LAYOUT:
                self._back_up(db, layout, announce)
            db.execute("BEGIN IMMEDIATE")
            try:
                migrate.apply("sqlite", layout, db.execute)
                if layout:
                    self._say_what_is_due(db)
                _set_layout(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        if layout:
            log.info("migrated", extra={"store": self.url, "from": layout, "to": migrate.LAYOUT})

    def _say_what_is_due(self, db: apsw.Connection) -> None:
        """Fill in when each session is due. Layout 1 does not say it, and what nobody finds nobody runs."""
        after = 0
        while rows := _all(db.execute(_SESSION + "stretch > ? ORDER BY stretch LIMIT 500", (after,))):
            due = [(at, row[0]) for row in rows if (at := self._due(db, row)) is not None]
            db.executemany("UPDATE perdure_sessions SET runnable_at = ? WHERE stretch = ?", due)
            after = rows[-1][0]

    def _due(self, db: apsw.Connection, row: tuple[Any, ...]) -> int | None:
        try:
            return self._stored(db, row).folded.runnable_at
        except (ValueError, TypeError) as why:
            # It can be neither run nor read, and must not keep all others from being upgraded. `doctor` names it.
            log.warning("load error", extra={"session": row[1], "what": "row", "why": str(why)})
            return None

    def _refuse_forgetting(self, db: apsw.Connection) -> None:
        """Raise `StoreDamaged` if SQLite would forget more of the log than a crash can have left unfinished."""
        size = int(_all(db.execute("PRAGMA page_size"))[0][0])
        accepted, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        if accepted < 0 or not may_be_forgotten(self.path, accepted, size):
            return
        # Somebody may just have been writing. Now nobody is.
        with self._lock:
            db.execute("BEGIN IMMEDIATE")
            try:
                count = forgotten(self.path, size)
            finally:
                db.execute("ROLLBACK")
        if count > (1 if self._synchronous == "FULL" else 0):
            raise apsw.CorruptError(f"{count} transactions lie behind a damaged place in its log")
        if count:
            log.warning("the end of the log is not whole", extra={"store": self.url})

    def _back_up(self, db: apsw.Connection, layout: int, announce: Callable[[str], None]) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._clock.wall() / 1e6))
        copy = self.path.with_name(f"{self.path.name}.layout-{layout}-{stamp}-{os.getpid()}.backup")
        os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        copy_database(db, copy, self._vfs)
        announce(f"perdure: upgrading {self.path} from layout {layout}; a backup is at {copy}")

    # Writing: called by one thread

    def commit(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        with self._transaction as db:
            if db.data_version() != self._known_at or len(self._known) > _MOST_KNOWN:
                self._forget()  # another process has written, or another method of this store
            stored: dict[str, Stored] = {}
            for append in appends:
                id = append.session
                if id not in stored and (found := self._known.get(id) or self._load(db, "id = ?", id)):
                    stored[id] = found
            batch = admit(appends, stored, self._earlier(db), _allot(db), self._clock.wall(), self._own(db))
            self._write(db, batch)
        self._known.update(stored)
        self._known_at = db.data_version()
        return batch.outcomes

    def _begin(self) -> apsw.Connection:
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
        self._heads.clear()
        self._forget()
        if db is not None:
            self._let_go(db)

    def _forget(self) -> None:
        self._known.clear()
        self._first, self._first_at = "", -1

    def _checkpoint(self, db: apsw.Connection) -> None:
        try:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as why:
            # Nothing is lost and nothing was acknowledged wrongly: the log only stays longer than it should.
            log.warning("checkpoint failed", extra={"store": self.url, "why": str(why)})
        self._wal_pages = 0

    def _write(self, db: apsw.Connection, batch: Batch) -> None:
        if batch.rows:
            rows = ((stretch << _STRETCH | r.seq, r.data, r.checksum, r.seal) for stretch, r in batch.rows)
            db.executemany(_INSERT_EVENT, rows)
        if batch.keys:
            db.executemany(_INSERT_KEY, batch.keys)
        if batch.blobs:
            db.executemany(_INSERT_BLOB, ((b.hash, b.size, b.packed, b.data) for b in batch.blobs))
        if batch.kept:
            folds = ((stretch, k.view, k.version, k.upto, k.state) for stretch, k in batch.kept)
            db.executemany(_INSERT_FOLD, folds)
        for new in batch.new:
            _insert_session(db, new)
            self._put_first(db, new)
        for before, after in batch.changed.values():
            if before is after.folded:  # pieces only: the list does not change
                db.execute(
                    "UPDATE perdure_sessions SET head = ?, batch = ?, batch_seq = ? WHERE stretch = ?",
                    (after.head, after.batch, after.batch_seq, after.stretch),
                )
            else:
                self._update(db, before, after)

    def _update(self, db: apsw.Connection, before: Head, after: Stored) -> None:
        folded = after.folded
        columns = "head = ?, chain = ?, batch = ?, batch_seq = ?, folded = ?"
        values = [after.head, after.chain, after.batch, after.batch_seq, self._heads.packed(folded)]
        # An index is rewritten when its columns are named here, so they are named only when they have changed; and
        # whoever is first in the list already need not be put first again.
        if folded.updated_at != before.updated_at and after.id != self._first:
            columns += ", updated_at = ?"
            values.append(folded.updated_at)
            self._put_first(db, after)
        for name in ("state", "project_key", "title", "runnable_at"):
            value = getattr(folded, name)
            if value != getattr(before, name):
                columns += f", {name} = ?"
                values.append(value)
        db.execute(f"UPDATE perdure_sessions SET {columns} WHERE stretch = ?", (*values, after.stretch))

    def _put_first(self, db: apsw.Connection, stored: Stored) -> None:
        """Note that this session's place in the list was just written."""
        if self._first_at < 0:
            self._first_at = _all(db.execute("SELECT max(updated_at) FROM perdure_sessions"))[0][0]
        if stored.folded.updated_at >= self._first_at:
            self._first, self._first_at = stored.id, stored.folded.updated_at

    def _earlier(self, db: apsw.Connection) -> Callable[[Stored, str, int], Earlier | None]:
        def find(stored: Stored, key: str, count: int) -> Earlier | None:
            for stretch, upto in walk(stored):
                row = db.execute(
                    "SELECT seq FROM perdure_keys WHERE stretch = ? AND key = ? AND seq <= ?",
                    (stretch, key, upto),
                ).fetchone()
                if row:
                    page = self._events(db, stretch, row[0] - 1, min(upto, row[0] - 1 + count), count, False)
                    return Earlier(row[0], tuple(page.events))
            return None

        return find

    def _own(self, db: apsw.Connection) -> Callable[[Stored, int, int], Sequence[Event]]:
        return lambda stored, first, count: (
            self._events(db, stored.stretch, first - 1, first - 1 + count, count, False).events
        )

    # Reading

    def _load(self, db: apsw.Connection, where: str, *values: object) -> Stored | None:
        try:
            row = db.execute(_SESSION + where, values).fetchone()
            return None if row is None else self._stored(db, row)
        except (ValueError, TypeError) as why:
            raise apsw.CorruptError(f"the row of a session holds what cannot be: {why}") from why

    def _stored(self, db: apsw.Connection, row: tuple[Any, ...]) -> Stored:
        stretch, id, lineage, head, chain, batch, batch_seq, folded = row
        if (
            not type(stretch) is type(head) is type(batch) is type(batch_seq) is int
            or type(chain) is not bytes
        ):
            raise TypeError(f"{id}: {head!r}")
        stored = Stored(stretch, id, _lineage(lineage), head, chain, batch, batch_seq, self._heads.EMPTY)
        stored.folded = self._heads.read(folded, lambda: self._all_events(db, stored))
        return stored

    def _all_events(self, db: apsw.Connection, stored: Stored) -> Iterator[Event]:
        after = 0
        for stretch, upto in walk(stored):
            while after < upto:
                page = self._events(db, stretch, after, upto, 1000, False)
                yield from page.events
                after = page.events[-1].seq if page.more else upto

    def session(self, id: str) -> Stored | None:
        def found(db: apsw.Connection) -> Stored | None:
            stored = self._load(db, "id = ?", id)
            if stored is None and db.execute(_IS_LISTED, (id,)).fetchone():
                raise ValueError(f"{id} is in the list, and cannot be found")
            return stored

        return self._ask(found)

    def _ask(self, question: Callable[[apsw.Connection], T]) -> T:
        """What the list of sessions says, and if it is damaged what can still be said of them."""
        with self._speaking:
            try:
                if self._spared is None:
                    return question(self._reading)
            except DAMAGE as why:
                log.error("the list of sessions is damaged", extra={"store": self.url, "why": str(why)})
            return question(self._what_is_spared()[0])

    def _what_is_spared(self) -> tuple[apsw.Connection, list[str]]:
        self._speaking.damaged = True
        version = int(_all(self._reading.execute("PRAGMA data_version"))[0][0])
        if self._spared is None or self._spared[0] != version:

            def events(stretch: int, after: int, upto: int, limit: int) -> PageOfEvents:
                return self._events(self._reading, stretch, after, upto, limit, False)

            self._spared = (version, *spared(self._reading, events, _insert_session))
        return self._spared[1:]

    def events(self, stretch: int, after: int, upto: int, limit: int, backwards: bool) -> PageOfEvents:
        with self._speaking:
            return self._events(self._reading, stretch, after, upto, limit, backwards)

    def _events(
        self, db: apsw.Connection, stretch: int, after: int, upto: int, limit: int, backwards: bool
    ) -> PageOfEvents:
        if after >= upto:
            return PageOfEvents([], False)
        page = self._walked(db, stretch, after, upto, limit, backwards)
        low, high = _left(page.events, after, upto, backwards)
        # What was to be read ends with an event. A walk that ends before has been led astray by a page, or not all is
        # there; who asks by number may still find the rest.
        while low < high and not page.more and (seq := _hidden(db, stretch, low, high, backwards)):
            if len(page.events) >= limit:
                return PageOfEvents(page.events, True)
            one, room = self._single(db, stretch, seq), limit - len(page.events) - 1
            if backwards:
                rest = self._walked(db, stretch, low, seq - 1, room, True)
                page = PageOfEvents(rest.events + one + page.events, rest.more)
                high = rest.events[0].seq - 1 if rest.events else seq - 1
            else:
                rest = self._walked(db, stretch, seq, high, room, False)
                page = PageOfEvents(page.events + one + rest.events, rest.more)
                low = rest.events[-1].seq if rest.events else seq
        return page

    def _walked(
        self, db: apsw.Connection, stretch: int, after: int, upto: int, limit: int, backwards: bool
    ) -> PageOfEvents:
        if after >= upto:
            return PageOfEvents([], False)
        base = stretch << _STRETCH
        order = "DESC" if backwards else "ASC"
        rows = db.execute(
            "SELECT id, data, checksum FROM perdure_events WHERE id > ? AND id <= ? "
            f"ORDER BY id {order} LIMIT ?",
            (base + after, base + upto, limit + 1),
        )
        events: list[Event] = []
        size = 0
        more = False
        try:
            for id, data, checksum in rows:
                if len(events) == limit or size > PAGE_BYTES:
                    more = True
                    break
                size += len(data)
                events.append(event_in(id - base, data, checksum))
            seqs = [event.seq for event in events]
            if backwards:
                seqs.reverse()
            _refuse_disorder([after, *seqs, upto + 1])
            _refuse_gaps(db, stretch, seqs if backwards else [after, *seqs])
        except DAMAGE:
            self._speaking.damaged = True
            return self._around_damage(db, stretch, after, upto, limit, backwards)
        finally:
            rows.close()
        if backwards:
            events.reverse()
        return PageOfEvents(events, more)

    def _around_damage(
        self, db: apsw.Connection, stretch: int, after: int, upto: int, limit: int, backwards: bool
    ) -> PageOfEvents:
        """A page of the file cannot be read: halve the range until what is intact has been read around it."""
        if upto - after == 1:
            return PageOfEvents(self._single(db, stretch, upto), False)
        middle = (after + upto) // 2
        halves = [(after, middle), (middle, upto)]
        events: list[Event] = []
        for low, high in reversed(halves) if backwards else halves:
            page = self._events(db, stretch, low, high, limit - len(events), backwards)
            events = page.events + events if backwards else events + page.events
            if page.more or len(events) >= limit:
                return PageOfEvents(events, True)
        return PageOfEvents(events, False)

    def _single(self, db: apsw.Connection, stretch: int, seq: int) -> list[Event]:
        try:
            row = db.execute(_RAW_EVENT, (stretch << _STRETCH | seq,)).fetchone()
            return [event_in(seq, row[0], row[1])] if row else []
        except DAMAGE:
            why = "it lies on a damaged page of the file"
            return [Event(seq, 0, 0, None, Unreadable(why=why))]

    def seals(
        self, stretch: int, after: int, upto: int, limit: int
    ) -> list[tuple[int, bytes, int, bytes | None]]:
        with self._speaking:
            return self._seals(stretch, after, upto, limit)

    def _seals(
        self, stretch: int, after: int, upto: int, limit: int
    ) -> list[tuple[int, bytes, int, bytes | None]]:
        found = self._walked_seals(stretch, after, upto, limit)
        while self._speaking.damaged and len(found) < limit:
            last = found[-1][0] if found else after
            seq = _hidden(self._reading, stretch, last, upto, False)
            if seq is None:
                break
            found += self._single_seal(stretch << _STRETCH, seq)
            found += self._walked_seals(stretch, seq, upto, limit - len(found))
        return found

    def _walked_seals(
        self, stretch: int, after: int, upto: int, limit: int
    ) -> list[tuple[int, bytes, int, bytes | None]]:
        if after >= upto:
            return []
        base = stretch << _STRETCH
        try:
            rows = self._reading.execute(
                "SELECT id - ?, data, checksum, seal FROM perdure_events WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
                (base, base + after, base + upto, limit),
            )
            found = [
                (int(seq), memoryview(data).tobytes(), int(check), seal)
                for seq, data, check, seal in _all(rows)
            ]
            seqs = [after, *(row[0] for row in found)]
            _refuse_disorder([*seqs, upto + 1])
            _refuse_gaps(self._reading, stretch, seqs)
            return found
        except DAMAGE:
            self._speaking.damaged = True
            if upto - after == 1:
                return self._single_seal(base, upto)
        middle = (after + upto) // 2
        found = self._seals(stretch, after, middle, limit)
        return found + self._seals(stretch, middle, upto, limit - len(found)) if len(found) < limit else found

    def _single_seal(self, base: int, seq: int) -> list[tuple[int, bytes, int, bytes | None]]:
        try:
            row = self._reading.execute(_RAW_EVENT, (base | seq,)).fetchone()
            return [(seq, memoryview(row[0]).tobytes(), int(row[1]), row[2])] if row else []
        except DAMAGE:
            return [(seq, b"", 0, None)]  # nothing has this checksum: it is read as damaged

    def sessions(self, wanted: Wanted) -> list[Listed]:
        where, values = _where(wanted, after=True)

        def listed(db: apsw.Connection) -> list[Listed]:
            rows = db.execute(
                "SELECT updated_at, stretch, id, lineage, head, folded FROM perdure_sessions "
                f"INDEXED BY perdure_sessions_by_activity {where} ORDER BY updated_at DESC, id DESC LIMIT ?",
                (*values, wanted.limit),
            )
            return [self._listed(*row) for row in _all(rows)]

        return self._ask(listed)

    def _listed(self, at: int, stretch: int, id: str, lineage: str, head: int, folded: bytes) -> Listed:
        if type(id) is not str or not type(at) is type(stretch) is type(head) is int:
            raise TypeError(f"{id!r} is no row of a session")
        stored = Stored(stretch, id, _lineage(lineage), head, b"", 0, 0, self._heads.EMPTY)
        known = self._heads.read(folded, lambda: self._all_events(self._reading, stored))
        return Listed(id, head, known, (at, id))

    def count(self, wanted: Wanted) -> int:
        where, values = _where(wanted, after=False)
        sql = f"SELECT count(*) FROM perdure_sessions {where}"
        return self._ask(lambda db: int(_all(db.execute(sql, values))[0][0]))

    def ids(self, after: str, limit: int) -> list[str]:
        def found(db: apsw.Connection) -> list[str]:
            rows = db.execute(
                "SELECT id FROM perdure_sessions WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
            )
            ids = [id for (id,) in _all(rows)]
            _refuse_disorder([after, *ids])
            return ids

        return self._ask(found)

    def beginning_with(self, prefix: str, limit: int) -> list[str]:
        return self._read_ids(
            "SELECT id FROM perdure_sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            prefix, prefix + "\U0010ffff", limit,
        )  # fmt: skip

    def titled(self, title: str, limit: int) -> list[str]:
        return self._read_ids(
            "SELECT id FROM perdure_sessions WHERE title = ? AND state NOT IN ('trashed', 'moved') "
            "ORDER BY updated_at DESC, id DESC LIMIT ?",
            title, limit,
        )  # fmt: skip

    def runnable(self, now: int, limit: int) -> list[str]:
        return self._read_ids(
            "SELECT id FROM perdure_sessions WHERE runnable_at <= ? ORDER BY runnable_at, id LIMIT ?",
            now,
            limit,
        )

    def heads(self, ids: Collection[str]) -> Mapping[str, int]:
        return self._ask(lambda db: _heads(db, ids))

    def _read_ids(self, sql: str, *values: Any) -> list[str]:
        def found(db: apsw.Connection) -> list[str]:
            ids = [id for (id,) in _all(db.execute(sql, values))]
            if not all(type(id) is str for id in ids):
                raise TypeError("ids that are no text")
            return ids

        return self._ask(found)

    def _read_one(self, sql: str, *values: Any) -> Any:
        with self._speaking:
            row = self._reading.execute(sql, values).fetchone()
            return None if row is None else row[0]

    # Blobs, kept folds, leases, desk

    def blob(self, hash: bytes) -> BlobRow | None:
        with self._speaking:
            row = self._reading.execute(
                "SELECT hash, size, packed, data FROM perdure_blobs WHERE hash = ?", (hash,)
            ).fetchone()
            if row and not (type(row[0]) is type(row[3]) is bytes and type(row[1]) is int):
                raise apsw.CorruptError("the row of a content holds what cannot be")
        return BlobRow(row[0], row[1], bool(row[2]), row[3]) if row else None

    def kept(self, stretch: int, view: str, version: int, upto: int) -> Kept | None:
        with self._speaking:
            rows = self._reading.execute(
                "SELECT view, version, upto, state FROM perdure_folds WHERE stretch = ? AND view = ? AND version = ? "
                "AND upto <= ? ORDER BY upto DESC LIMIT 1",
                (stretch, view, version, upto),
            )
            return next((Kept(*row) for row in _all(rows)), None)

    def all_kept(self, stretch: int) -> list[Kept]:
        with self._speaking:
            rows = self._reading.execute(
                "SELECT view, version, upto, state FROM perdure_folds WHERE stretch = ? ORDER BY view, upto",
                (stretch,),
            )
            return [Kept(*row) for row in _all(rows)]

    def keep(self, stretch: int, kept: Kept) -> None:
        with self._transaction as db:
            db.execute("DELETE FROM perdure_folds WHERE stretch = ? AND view = ?", (stretch, kept.view))
            db.execute(_INSERT_FOLD, (stretch, kept.view, kept.version, kept.upto, kept.state))

    def forget(self, stretch: int, kept: Kept) -> None:
        with self._transaction as db:
            db.execute(
                "DELETE FROM perdure_folds WHERE stretch = ? AND view = ? AND upto = ?",
                (stretch, kept.view, kept.upto),
            )

    def process(self, id: str) -> ProcessRow | None:
        with self._speaking:
            row = self._reading.execute(
                "SELECT id, about, host, boot, lock, expires FROM perdure_processes WHERE id = ?", (id,)
            ).fetchone()
        if row is None:
            return None
        # A lease of an earlier start of this machine is over, whatever its number says.
        id, about, host, boot, lock, expires = row
        expired = boot != boot_id() or expires <= self._clock.steady() * 1e6
        return ProcessRow(id, about, host, boot, lock, expired)

    def renew(self, process: ProcessRow, ttl: float) -> None:
        with self._transaction as db:
            db.execute(
                "INSERT OR REPLACE INTO perdure_processes (id, about, host, boot, lock, expires) VALUES (?, ?, ?, ?, ?, ?)",
                (process.id, process.about, process.host, process.boot, process.lock,
                 int((self._clock.steady() + ttl) * 1e6)),
            )  # fmt: skip

    def retire(self, process: str) -> None:
        with self._transaction as db:
            db.execute("DELETE FROM perdure_processes WHERE id = ?", (process,))

    def desk(self, kind: str, name: str) -> bytes | None:
        found = self._read_one("SELECT value FROM perdure_desk WHERE kind = ? AND name = ?", kind, name)
        return None if found is None else bytes(found)

    def put_on_desk(self, kind: str, name: str, value: bytes | None) -> None:
        with self._transaction as db:
            if value is None:
                db.execute("DELETE FROM perdure_desk WHERE kind = ? AND name = ?", (kind, name))
            else:
                db.execute(
                    "INSERT OR REPLACE INTO perdure_desk (kind, name, value) VALUES (?, ?, ?)",
                    (kind, name, value),
                )

    def drop(self, stretch: int, seqs: Sequence[int]) -> None:
        with self._transaction as db:
            ids = ((stretch << _STRETCH | seq,) for seq in seqs)
            db.executemany("DELETE FROM perdure_events WHERE id = ? AND seal IS NULL", ids)

    def keys(self, stretch: int) -> dict[str, int]:
        with self._speaking:
            rows = self._reading.execute("SELECT key, seq FROM perdure_keys WHERE stretch = ?", (stretch,))
            return dict(_all(rows))

    def rederive(self, stored: Stored, keys: Mapping[str, int]) -> bool:
        with self._transaction as db:
            present = db.execute("SELECT head FROM perdure_sessions WHERE id = ?", (stored.id,)).fetchone()
            if present != (stored.head,):
                return False
            db.execute("DELETE FROM perdure_keys WHERE stretch = ?", (stored.stretch,))
            db.executemany(_INSERT_KEY, [(stored.stretch, key, seq) for key, seq in keys.items()])
            db.execute("DELETE FROM perdure_sessions WHERE stretch = ?", (stored.stretch,))
            _insert_session(db, stored)
            return True

    def check(self) -> list[Trouble]:
        try:
            lines = [row[0] for row in _all(self._reading.execute("PRAGMA integrity_check(20)"))]
        except apsw.Error as error:
            lines = [str(error)]
        found = [Trouble(f"{self.path}: {line}") for line in lines if line != "ok"]
        if found:
            # The list may pass over sessions without an error from SQLite: from here on it is not relied on.
            with self._speaking:
                found += [Trouble(line) for line in self._what_is_spared()[1]]
        wal = Path(f"{self.path}-wal")
        size = wal.stat().st_size if wal.exists() else 0
        if size > 4 * CHECKPOINT_PAGES * 8192:
            why = (
                "another program keeps an old state open; close it and the file shrinks with the next writes"
            )
            found.append(Trouble(f"{wal} has grown to {size >> 20} MB: {why}", lasting=False))
        if self.path.stat().st_mode & 0o077:
            found.append(
                Trouble(
                    f"{self.path} can be read by others; run `chmod 600 {quote(str(self.path))}`",
                    lasting=False,
                )
            )
        return found

    def copy_to(self, target: Path) -> None:
        with self._speaking:
            source = self._connect()
            try:
                copy_database(source, target, self._vfs)
            finally:
                self._let_go(source)

    # Receiving rows from elsewhere: a salvage, a copy of another store

    def receive(self, events: Iterable[RawEvent], blobs: Iterable[BlobRow]) -> list[RawEvent]:
        rivals = []
        with self._transaction as db:
            for e in events:
                id = e.stretch << _STRETCH | e.seq
                db.execute("INSERT OR IGNORE INTO perdure_events VALUES (?, ?, ?, ?)", (id, *e[2:]))
                if not db.changes() and e[2:] != db.execute(_RAW_EVENT, (id,)).fetchone():
                    rivals.append(e)
            db.executemany(_INSERT_BLOB, ((b.hash, b.size, b.packed, b.data) for b in blobs))
        return rivals

    def replace(self, event: RawEvent) -> None:
        with self._transaction as db:
            id = event.stretch << _STRETCH | event.seq
            db.execute("INSERT OR REPLACE INTO perdure_events VALUES (?, ?, ?, ?)", (id, *event[2:]))

    def remove(self, stretch: int, seq: int) -> None:
        with self._transaction as db:
            db.execute("DELETE FROM perdure_events WHERE id = ?", (stretch << _STRETCH | seq,))

    def drop_other_blobs(self, named: Collection[bytes]) -> None:
        with self._transaction as db:
            others = [
                hash for (hash,) in _all(db.execute("SELECT hash FROM perdure_blobs")) if hash not in named
            ]
            db.executemany("DELETE FROM perdure_blobs WHERE hash = ?", [(hash,) for hash in others])

    def receive_session(self, stored: Stored, keys: Mapping[str, int]) -> None:
        with self._transaction as db:
            db.executemany(_INSERT_KEY, [(stored.stretch, key, seq) for key, seq in keys.items()])
            _insert_session(db, stored)

    def stretches(self) -> list[tuple[int, int, int]]:
        with self._speaking:
            rows = self._reading.execute(
                "SELECT id >> 32, min(id) & 0xffffffff, max(id) & 0xffffffff FROM perdure_events GROUP BY id >> 32"
            )
            return [(stretch, first, last) for stretch, first, last in _all(rows)]

    def end_of(self, stretch: int) -> tuple[int, bytes]:
        base = stretch << _STRETCH
        with self._speaking:
            last = self._read_one(
                "SELECT max(id) - ? FROM perdure_events WHERE id > ? AND id < ?",
                base,
                base,
                base + (1 << _STRETCH),
            )
            seal = self._read_one(
                "SELECT seal FROM perdure_events WHERE id > ? AND id < ? AND seal IS NOT NULL ORDER BY id DESC LIMIT 1",
                base, base + (1 << _STRETCH),
            )  # fmt: skip
        return last or 0, link_of(seal) if seal else b""

    # Watching

    def watch(
        self,
        stop: Flag,
        followed: Callable[[], Collection[str]],
        moved: Callable[[Mapping[str, int]], None],
    ) -> None:
        """One poller for all followers of this process: 5 ms behind other processes, and next to free while they
        are silent."""
        with self._speaking:
            db = self._connect()
            try:
                version = -1
                while not stop.wait(0.005 if followed() else 0.2):
                    now = _all(db.execute("PRAGMA data_version"))[0][0]
                    # Asked for after the version: whoever begins to follow from here on looks at the head after it,
                    # and what is appended after that look makes another version.
                    names = followed()
                    if now != version and names:
                        version = now
                        moved(_heads(db, names))
            finally:
                self._let_go(db)

    def close(self) -> None:
        for db in (self._writing, getattr(self, "_reading", None)):
            if db is not None:
                self._let_go(db)
        self._writing = None
        self._lock.close()


class _Speaking:
    """Says SQLite's errors in our words, with the file and what to do about it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damaged = False
        """Something was found damaged: nothing is to be moved about in the file."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, apsw.Error):
            spoken = said(self._path, error)
            self.damaged |= isinstance(spoken, StoreDamaged)
            raise spoken from error


class _Transaction:
    """One durable transaction, under the lock file. A class and not a generator: it is on the way of every append."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __enter__(self) -> apsw.Connection:
        self._store._lock.__enter__()
        try:
            with self._store._speaking:
                return self._store._begin()
        except BaseException:
            self._store._forsake()
            self._store._lock.__exit__()
            raise

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            with self._store._speaking:
                self._store._end(error)
                if isinstance(error, apsw.Error):
                    raise error
        except BaseException:
            self._store._forsake()
            raise
        finally:
            self._store._lock.__exit__()


def said(path: Path, why: apsw.Error) -> StoreUnavailable | StoreDamaged:
    """What an error of SQLite means for whoever uses the store, and what to do."""
    file = str(path)
    match why:
        case apsw.FullError():
            return StoreUnavailable(file, FULL)
        case apsw.IOError() if getattr(why, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
            return StoreUnavailable(file, FULL)  # there was no room to open it in
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            advice = "check the file, its folder and their permissions"
            return StoreUnavailable(file, f"cannot be written ({why}); {advice}")
        case apsw.NotADBError():
            advice = "if it was one, run `perdure doctor --salvage FILE`"
            return StoreDamaged(file, f"is not an SQLite database; nothing was changed; {advice}")
        case apsw.BusyError():
            advice = "close that program"
            return StoreUnavailable(
                file, f"another program has kept it locked for {_PATIENCE:.0f} s; {advice}"
            )
        case apsw.IOError():
            return StoreUnavailable(file, f"the disk failed ({why}); check it, then try again")
        case _:
            return StoreDamaged(
                file, f"is damaged ({why}); run `perdure doctor --salvage FILE` to save what is intact"
            )


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


def _is_wal(db: apsw.Connection) -> bool:
    row = db.execute("PRAGMA journal_mode").fetchone()
    return row is not None and row[0] == "wal"


def _layout(db: apsw.Connection) -> int:
    if not db.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'perdure_store'"
    ).fetchone():
        return 0
    row = db.execute("SELECT value FROM perdure_store WHERE name = 'layout'").fetchone()
    if row and not (isinstance(row[0], str) and row[0].isdecimal()):
        raise apsw.CorruptError(f"its layout is {row[0]!r}")
    return int(row[0]) if row else 0


def _set_layout(db: apsw.Connection) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS perdure_store (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
    db.execute("INSERT OR REPLACE INTO perdure_store VALUES ('layout', ?)", (str(migrate.LAYOUT),))
    db.execute("INSERT OR IGNORE INTO perdure_store VALUES ('writes', '1')")


def _allot(db: apsw.Connection) -> Callable[[], int]:
    last: list[int] = []

    def allot() -> int:
        if not last:
            row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'perdure_sessions'").fetchone()
            last.append(row[0] if row else 0)
        last[0] += 1
        return last[0]

    return allot


def _insert_session(db: apsw.Connection, s: Stored) -> None:
    h = s.folded
    db.execute(
        "INSERT INTO perdure_sessions (stretch, id, lineage, head, chain, batch, batch_seq, state, project_key, title,"
        " updated_at, runnable_at, folded) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (s.stretch, s.id, json.dumps(s.lineage), s.head, s.chain, s.batch, s.batch_seq, h.state, h.project_key,
         h.title, h.updated_at, h.runnable_at, HeadCache.pack(h)),
    )  # fmt: skip


def _heads(db: apsw.Connection, ids: Collection[str]) -> dict[str, int]:
    rows = db.execute(
        "SELECT id, head FROM perdure_sessions WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
    return dict(_all(rows))


def _refuse_disorder(places: list[Any]) -> None:
    """A page that lies where another should makes SQLite answer out of order, without an error; whoever goes on from
    the last row of such an answer would never come to an end."""
    if not all(map(lt, places, places[1:])):
        raise ValueError("rows that are not in order")


def _refuse_gaps(db: apsw.Connection, stretch: int, seqs: list[int]) -> None:
    """Where pieces were dropped there is nothing between two rows. Behind a page in the wrong place there is."""
    if not seqs or seqs[-1] - seqs[0] + 1 == len(seqs):
        return
    for low, high in pairwise(seqs):
        if high - low > 1 and any(_hidden(db, stretch, seq - 1, seq, False) for seq in {low + 1, high - 1}):
            raise ValueError("rows that are passed over")


def _left(events: list[Event], after: int, upto: int, backwards: bool) -> tuple[int, int]:
    """What of after < seq <= upto lies beyond these events."""
    if not events:
        return after, upto
    return (after, events[0].seq - 1) if backwards else (events[-1].seq, upto)


def _hidden(db: apsw.Connection, stretch: int, after: int, upto: int, backwards: bool) -> int | None:
    """The nearest event with after < seq <= upto that can be found by its number, unless it is far away."""
    near = (
        range(upto, max(after, upto - FAR), -1) if backwards else range(after + 1, min(upto, after + FAR) + 1)
    )
    for seq in near:
        with suppress(*DAMAGE):
            if db.execute(
                "SELECT 1 FROM perdure_events WHERE id = ?", (stretch << _STRETCH | seq,)
            ).fetchone():
                return seq
    return None


def _all(rows: apsw.Cursor) -> list[tuple[Any, ...]]:
    return rows.fetchall()


def _lineage(text: str) -> Lineage:
    return () if text == "[]" else tuple((a, b) for a, b in json.loads(text))


def _where(wanted: Wanted, *, after: bool) -> tuple[str, list[Any]]:
    clauses: list[str] = []
    values: list[Any] = []
    if after and wanted.after is not None:
        clauses.append("(updated_at, id) < (?, ?)")
        values += wanted.after
    if wanted.states is not None:
        clauses.append(f"state IN ({', '.join('?' * len(wanted.states))})")
        values += wanted.states
    if wanted.project is not None:
        clauses.append("project_key = ?")
        values.append(wanted.project)
    return ("WHERE " + " AND ".join(clauses) if clauses else ""), values
