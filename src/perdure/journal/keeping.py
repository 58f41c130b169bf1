"""What an SQLite file keeps beside the events: content, kept folds, leases and the desk.

Each is a last value under a name. None of it says what has happened: content is named by a fact, a kept fold can be
folded anew, a lease runs out, and what lies on the desk is no fact.
"""

from __future__ import annotations

import apsw

from perdure.journal.clock import boot_id
from perdure.journal.opening import SqliteFile, all_of
from perdure.journal.store import BlobRow, Kept, ProcessRow

INSERT_FOLD = (
    "INSERT OR REPLACE INTO perdure_folds (stretch, view, version, upto, state) VALUES (?, ?, ?, ?, ?)"
)


class Keeping(SqliteFile):
    """The part of a store that is found by its name."""

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
            return next((Kept(*row) for row in all_of(rows)), None)

    def all_kept(self, stretch: int) -> list[Kept]:
        with self._speaking:
            rows = self._reading.execute(
                "SELECT view, version, upto, state FROM perdure_folds WHERE stretch = ? ORDER BY view, upto",
                (stretch,),
            )
            return [Kept(*row) for row in all_of(rows)]

    def keep(self, stretch: int, kept: Kept) -> None:
        with self._transaction as db:
            db.execute("DELETE FROM perdure_folds WHERE stretch = ? AND view = ?", (stretch, kept.view))
            db.execute(INSERT_FOLD, (stretch, kept.view, kept.version, kept.upto, kept.state))

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
