"""Sessions in one SQLite file: any number of processes, one writer at a time, nothing shown before it is on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from threading import Event as Flag

import apsw

from perdure.events import Event
from perdure.journal import migrate, walking
from perdure.journal.admit import Batch, Earlier, admit
from perdure.journal.clock import Clock
from perdure.journal.heads import unpacked
from perdure.journal.keeping import INSERT_FOLD
from perdure.journal.listing import Listing, heads_of
from perdure.journal.opening import CHECKPOINT_PAGES, all_of
from perdure.journal.receiving import INSERT_BLOB, INSERT_KEY, insert_session
from perdure.journal.store import Append, Appended, PageOfEvents, Stored, Trouble, walk
from perdure.journal.upgrading import copy_database
from perdure.journal.walking import STRETCH
from perdure.views.head import Head

_MOST_KNOWN = 512

_MOST_BEYOND = 1000
"""Events so far behind a session's end are met by whoever reads the session."""

_STRAYS = f"""
WITH RECURSIVE found (id) AS (
    SELECT min(id) FROM perdure_events
    UNION ALL
    SELECT (SELECT min(id) FROM perdure_events WHERE id >= ((f.id >> {STRETCH}) + 1) << {STRETCH})
    FROM found f WHERE f.id < {(1 << 31) - 1 << STRETCH}
), known AS (
    SELECT f.id >> {STRETCH} AS stretch, f.id AS first, s.head AS head,
           CASE WHEN json_valid(s.lineage) THEN json_extract(s.lineage, '$[#-1][1]') END AS begin
    FROM found f LEFT JOIN perdure_sessions s ON s.stretch = f.id >> {STRETCH} WHERE f.id IS NOT NULL
), bounds AS (
    SELECT stretch, first, head, (stretch << {STRETCH}) + coalesce(begin, 0) AS low,
           (stretch << {STRETCH}) + coalesce(head, 0) AS high, (stretch << {STRETCH}) + {(1 << STRETCH) - 1} AS last
    FROM known
)
SELECT stretch, (SELECT count(*) FROM perdure_events WHERE id >= first AND id <= last AND NOT (id > low AND id <= high))
FROM bounds WHERE head IS NULL OR first <= low
    OR EXISTS (SELECT 1 FROM perdure_events WHERE id > high + {_MOST_BEYOND} AND id <= last)"""

# The row of whoever is first in the list may tell of an earlier time than its head, as long as nobody else has come
# between: its place is the same.
_IS_LISTED = """
SELECT head <> ? OR ((state, project_key, title, runnable_at) IS (?, ?, ?, ?) AND (updated_at = ? OR (updated_at < ?
       AND NOT EXISTS (SELECT 1 FROM perdure_sessions o
                       WHERE (o.updated_at, o.id) > (s.updated_at, s.id) AND o.updated_at < ?))))
FROM perdure_sessions s WHERE stretch = ?"""

_PLACE = "UPDATE perdure_sessions SET updated_at = ?1 WHERE id = ?2 AND updated_at <> ?1"
_INSERT_EVENT = "INSERT INTO perdure_events (id, data, checksum, seal) VALUES (?, ?, ?, ?)"


class SqliteStore(Listing):
    """`Store`, and `Receiver`, over one SQLite file."""

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
        super().__init__(path, clock, durability, vfs, checkpoint_pages)
        self._known: dict[str, Stored] = {}
        """Sessions as our last commit left them; they are that still while nobody has written since."""
        self._known_at = 0
        self._first, self._first_at, self._lags = "", (-1, ""), False
        """The session that our last commits left at the head of the list, by this place in its row. While nobody else
        writes it stays there, and what it does needs no new place in the index."""
        self._open(announce, self._stored)

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

    def _forsake(self) -> None:
        self._heads.clear()
        self._forget()
        super()._forsake()

    def _forget(self) -> None:
        self._known.clear()
        self._first, self._first_at, self._lags = "", (-1, ""), False

    def _write(self, db: apsw.Connection, batch: Batch) -> None:
        if batch.rows:
            rows = ((stretch << STRETCH | r.seq, r.data, r.checksum, r.seal) for stretch, r in batch.rows)
            db.executemany(_INSERT_EVENT, rows)
        if batch.keys:
            db.executemany(INSERT_KEY, batch.keys)
        if batch.blobs:
            db.executemany(INSERT_BLOB, ((b.hash, b.size, b.packed, b.data) for b in batch.blobs))
        if batch.kept:
            folds = ((stretch, k.view, k.version, k.upto, k.state) for stretch, k in batch.kept)
            db.executemany(INSERT_FOLD, folds)
        if self._first_at[0] < 0:
            self._first_at = self._first_of_all(db)  # before anybody else is put in the list
        for new in batch.new:
            insert_session(db, new)
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
        if folded.updated_at != before.updated_at:
            if after.id == self._first:
                self._first_at, self._lags = (folded.updated_at, after.id), True
            else:
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
        """Note that this session's place in the list was just written. Whoever was first may have stayed there without
        its time being written: it is now, for from here on the two are compared."""
        if self._lags:
            db.execute(_PLACE, self._first_at)
            self._lags = False
        place = (stored.folded.updated_at, stored.id)
        if place >= self._first_at:
            self._first, self._first_at = stored.id, place

    def _first_of_all(self, db: apsw.Connection) -> tuple[int, str]:
        """Who is first, and since when: another process may have left its time as it was, too."""
        sql = "SELECT updated_at, id, folded FROM perdure_sessions ORDER BY updated_at DESC, id DESC LIMIT 1"
        for at, id, folded in all_of(db.execute(sql)):
            with suppress(ValueError):  # a head of another version, or a damaged one: the column has to do
                at = max(at, unpacked(folded).updated_at)
            db.execute(_PLACE, (at, id))
            return at, id
        return self._first_at

    def _earlier(self, db: apsw.Connection) -> Callable[[Stored, str, int], Earlier | None]:
        def find(stored: Stored, key: str, count: int) -> Earlier | None:
            for stretch, upto in walk(stored):
                row = db.execute(
                    "SELECT seq FROM perdure_keys WHERE stretch = ? AND key = ? AND seq <= ?",
                    (stretch, key, upto),
                ).fetchone()
                if row:
                    last = min(upto, row[0] - 1 + count)
                    page = walking.events(db, self._speaking, stretch, row[0] - 1, last, count)
                    return Earlier(row[0], tuple(page.events))
            return None

        return find

    def _own(self, db: apsw.Connection) -> Callable[[Stored, int, int], Sequence[Event]]:
        def read(stored: Stored, first: int, count: int) -> Sequence[Event]:
            last = first - 1 + count
            return walking.events(db, self._speaking, stored.stretch, first - 1, last, count).events

        return read

    # Reading

    def events(self, stretch: int, after: int, upto: int, limit: int, backwards: bool) -> PageOfEvents:
        with self._speaking:
            return walking.events(self._reading, self._speaking, stretch, after, upto, limit, backwards)

    def seals(self, stretch: int, after: int, upto: int, limit: int) -> list[walking.Seal]:
        with self._speaking:
            return walking.seals(self._reading, self._speaking, stretch, after, upto, limit)

    def drop(self, stretch: int, seqs: Sequence[int]) -> None:
        with self._transaction as db:
            ids = ((stretch << STRETCH | seq,) for seq in seqs)
            db.executemany("DELETE FROM perdure_events WHERE id = ? AND seal IS NULL", ids)

    def keys(self, stretch: int) -> dict[str, int]:
        with self._speaking:
            rows = self._reading.execute("SELECT key, seq FROM perdure_keys WHERE stretch = ?", (stretch,))
            return dict(all_of(rows))

    def rederive(self, stored: Stored, keys: Mapping[str, int]) -> bool:
        with self._transaction as db:
            present = db.execute("SELECT head FROM perdure_sessions WHERE id = ?", (stored.id,)).fetchone()
            if present != (stored.head,):
                return False
            db.execute("DELETE FROM perdure_keys WHERE stretch = ?", (stored.stretch,))
            db.executemany(INSERT_KEY, [(stored.stretch, key, seq) for key, seq in keys.items()])
            db.execute("DELETE FROM perdure_sessions WHERE stretch = ?", (stored.stretch,))
            insert_session(db, stored)
            return True

    def check(self) -> list[Trouble]:
        try:
            lines = [row[0] for row in all_of(self._reading.execute("PRAGMA integrity_check(20)"))]
        except apsw.Error as error:
            lines = [str(error)]
        found = [Trouble(f"{self.path}: {line}") for line in lines if line != "ok"]
        if found:
            # The list may pass over sessions without an error from SQLite: from here on it is not relied on.
            with self._speaking:
                found += [Trouble(line) for line in self._what_is_spared()[1]]
        else:
            found += self._longer_than_its_pages()
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

    def _longer_than_its_pages(self) -> Iterator[Trouble]:
        size = self.path.stat().st_size  # first: a file only grows by pages that are known of before
        pages = self._read_one("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        if size > pages:
            why = f"{self.path} is {size - pages} bytes longer than its pages; what lies there is none of the store's"
            yield Trouble(why, lasting=False)

    def is_listed(self, stored: Stored) -> bool:
        h = stored.folded
        values = (
            stored.head,
            h.state,
            h.project_key,
            h.title,
            h.runnable_at,
            *[h.updated_at] * 3,
            stored.stretch,
        )
        row = self._ask(lambda db: db.execute(_IS_LISTED, values).fetchone())
        return row is None or bool(row[0])

    def strays(self) -> list[tuple[int, int]]:
        with self._speaking:
            found = [(stretch, count) for stretch, count in all_of(self._reading.execute(_STRAYS))]
            self._speaking.damaged |= bool(found)
            return found

    def missing_indexes(self) -> list[str]:
        with self._speaking:
            there = dict(
                all_of(self._reading.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index'"))
            )
        return [name for name, sql in migrate.indexes("sqlite").items() if there.get(name) != sql]

    def make_index(self, name: str) -> None:
        with self._transaction as db:
            db.execute(f"DROP INDEX IF EXISTS {name}")
            db.execute(migrate.indexes("sqlite")[name])

    def copy_to(self, target: Path) -> None:
        with self._speaking:
            source = self._connect()
            try:
                copy_database(source, target, self._vfs)
            finally:
                self._let_go(source)

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
                    now = all_of(db.execute("PRAGMA data_version"))[0][0]
                    # Asked for after the version: whoever begins to follow from here on looks at the head after it,
                    # and what is appended after that look makes another version.
                    names = followed()
                    if now != version and names:
                        version = now
                        moved(heads_of(db, names))
            finally:
                self._let_go(db)


def _allot(db: apsw.Connection) -> Callable[[], int]:
    last: list[int] = []

    def allot() -> int:
        if not last:
            row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'perdure_sessions'").fetchone()
            last.append(row[0] if row else 0)
        last[0] += 1
        return last[0]

    return allot
