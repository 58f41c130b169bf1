"""The other side: the raw drivers, doing the least that a journal of one's own would have to do.

One row for each fact, of the very bytes that Perdure stores, and one head row updated beside them, in one commit.
No checksum, no chain, no index, no law: whatever Perdure adds is what the ratio shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

PAGE = 8192


class BareSqlite:
    """apsw with prepared statements, the page size and the log that Perdure uses."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self.db = apsw.Connection(str(path))
        self.db.execute(f"PRAGMA page_size = {PAGE}")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {synchronous}")
        self.db.execute("PRAGMA cache_size = -16000")
        self.db.set_busy_timeout(60_000)
        self.db.execute("CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        self.db.execute("CREATE TABLE IF NOT EXISTS heads (id INTEGER PRIMARY KEY, head INTEGER, at INTEGER)")
        self.db.execute("INSERT OR IGNORE INTO heads VALUES (1, 0, 0)")
        self.seq = 0

    def append(self, rows: Sequence[bytes]) -> None:
        execute = self.db.execute
        execute("BEGIN IMMEDIATE")
        for data in rows:
            self.seq += 1
            execute("INSERT INTO events (id, data) VALUES (?, ?)", (self.seq, data))
        execute("UPDATE heads SET head = ?, at = ? WHERE id = 1", (self.seq, self.seq))
        execute("COMMIT")

    def insert(self, rows: Sequence[bytes]) -> None:
        """Without a head: what the limit for unsynced appends is measured against."""
        execute = self.db.execute
        execute("BEGIN IMMEDIATE")
        for data in rows:
            self.seq += 1
            execute("INSERT INTO events (id, data) VALUES (?, ?)", (self.seq, data))
        execute("COMMIT")

    def close(self) -> None:
        self.db.close()


class BarePostgres:
    """psycopg with prepared statements."""

    def __init__(self, url: str, table: str = "bare") -> None:
        import psycopg

        self.db: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._table = table
        execute: Any = self.db.execute
        execute(f"CREATE TABLE IF NOT EXISTS {table}_events (id BIGINT PRIMARY KEY, data BYTEA NOT NULL)")
        execute(f"CREATE TABLE IF NOT EXISTS {table}_heads (id BIGINT PRIMARY KEY, head BIGINT, at BIGINT)")
        execute(f"INSERT INTO {table}_heads VALUES (1, 0, 0) ON CONFLICT DO NOTHING")
        self.seq = 0
        self._insert: Any = f"INSERT INTO {table}_events (id, data) VALUES (%s, %s)"
        self._update: Any = f"UPDATE {table}_heads SET head = %s, at = %s WHERE id = 1"

    def append(self, rows: Sequence[bytes]) -> None:
        with self.db.transaction():
            for data in rows:
                self.seq += 1
                self.db.execute(self._insert, (self.seq, data), binary=True)
            self.db.execute(self._update, (self.seq, self.seq), binary=True)

    def notifying(self, rows: Sequence[bytes]) -> None:
        """With the wake that others wait for, in the same transaction."""
        with self.db.transaction():
            for data in rows:
                self.seq += 1
                self.db.execute(self._insert, (self.seq, data), binary=True)
            self.db.execute(self._update, (self.seq, self.seq), binary=True)
            self.db.execute("SELECT pg_notify('bare', '1')")

    def pipelined(self, rows: Sequence[bytes]) -> None:
        """Everything in one round trip, as few write it."""
        with self.db.pipeline():
            self.append(rows)

    def close(self) -> None:
        self.db.close()
