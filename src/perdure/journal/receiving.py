"""Rows as they are, into an SQLite file: out of a damaged one, or from another kind of database.

Nothing is admitted here and nothing is folded. Whoever brings rows has proved them, decides between two that claim one
place, and says last which sessions they make up.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

import apsw

from perdure.journal.heads import HeadCache
from perdure.journal.keeping import Keeping
from perdure.journal.opening import all_of
from perdure.journal.rows import link_of
from perdure.journal.store import BlobRow, RawEvent, Stored
from perdure.journal.walking import RAW_EVENT, STRETCH

INSERT_BLOB = "INSERT OR IGNORE INTO perdure_blobs (hash, size, packed, data) VALUES (?, ?, ?, ?)"
INSERT_KEY = "INSERT INTO perdure_keys (stretch, key, seq) VALUES (?, ?, ?)"


class Receiving(Keeping):
    """The part of a store that makes it a `Receiver`."""

    def receive(self, events: Iterable[RawEvent], blobs: Iterable[BlobRow]) -> list[RawEvent]:
        rivals = []
        with self._transaction as db:
            for e in events:
                id = e.stretch << STRETCH | e.seq
                db.execute("INSERT OR IGNORE INTO perdure_events VALUES (?, ?, ?, ?)", (id, *e[2:]))
                if not db.changes() and e[2:] != db.execute(RAW_EVENT, (id,)).fetchone():
                    rivals.append(e)
            db.executemany(INSERT_BLOB, ((b.hash, b.size, b.packed, b.data) for b in blobs))
        return rivals

    def replace(self, event: RawEvent) -> None:
        with self._transaction as db:
            id = event.stretch << STRETCH | event.seq
            db.execute("INSERT OR REPLACE INTO perdure_events VALUES (?, ?, ?, ?)", (id, *event[2:]))

    def remove(self, stretch: int, seq: int) -> None:
        with self._transaction as db:
            db.execute("DELETE FROM perdure_events WHERE id = ?", (stretch << STRETCH | seq,))

    def drop_other_blobs(self, named: Collection[bytes]) -> None:
        with self._transaction as db:
            others = [
                hash for (hash,) in all_of(db.execute("SELECT hash FROM perdure_blobs")) if hash not in named
            ]
            db.executemany("DELETE FROM perdure_blobs WHERE hash = ?", [(hash,) for hash in others])

    def receive_session(self, stored: Stored, keys: Mapping[str, int]) -> None:
        with self._transaction as db:
            db.executemany(INSERT_KEY, [(stored.stretch, key, seq) for key, seq in keys.items()])
            insert_session(db, stored)

    def stretches(self) -> list[tuple[int, int, int]]:
        with self._speaking:
            rows = self._reading.execute(
                "SELECT id >> 32, min(id) & 0xffffffff, max(id) & 0xffffffff FROM perdure_events GROUP BY id >> 32"
            )
            return [(stretch, first, last) for stretch, first, last in all_of(rows)]

    def end_of(self, stretch: int) -> tuple[int, bytes]:
        base = stretch << STRETCH
        with self._speaking:
            last = self._read_one(
                "SELECT max(id) - ? FROM perdure_events WHERE id > ? AND id < ?",
                base,
                base,
                base + (1 << STRETCH),
            )
            seal = self._read_one(
                "SELECT seal FROM perdure_events WHERE id > ? AND id < ? AND seal IS NOT NULL ORDER BY id DESC LIMIT 1",
                base, base + (1 << STRETCH),
            )  # fmt: skip
        return last or 0, link_of(seal) if seal else b""


def insert_session(db: apsw.Connection, s: Stored) -> None:
    h = s.folded
    db.execute(
        "INSERT INTO perdure_sessions (stretch, id, lineage, head, chain, batch, batch_seq, state, project_key, title,"
        " updated_at, runnable_at, folded) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (s.stretch, s.id, json.dumps(s.lineage), s.head, s.chain, s.batch, s.batch_seq, h.state, h.project_key,
         h.title, h.updated_at, h.runnable_at, HeadCache.pack(h)),
    )  # fmt: skip
