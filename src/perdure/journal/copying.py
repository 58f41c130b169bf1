"""All rows of a PostgreSQL store, of one moment, into a store of another kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from perdure.journal.link import Connection, rows
from perdure.journal.store import BlobRow, RawEvent, Receiver, Stored

_EVENTS = "SELECT stretch, seq, data, checksum, seal FROM perdure_events ORDER BY stretch, seq"
_BLOBS = "SELECT hash, size, packed, data FROM perdure_blobs"
_KEYS = "SELECT stretch, key, seq FROM perdure_keys WHERE stretch = ANY ($1::bigint[])"
_DESK = "SELECT kind, name, value FROM perdure_desk"


def copy_rows(
    db: Connection, sessions: str, stored: Callable[[Connection, tuple[Any, ...]], Stored], target: Receiver
) -> None:
    """`sessions` asks for all sessions, and `stored` makes one of a row of the answer. Kept folds are left behind:
    they are folded anew where they are missed."""
    with db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        db.execute("SET LOCAL idle_in_transaction_session_timeout = 0")  # the target may be slow
        for page in _pages(db, _EVENTS, 500):
            target.receive([RawEvent(*row) for row in page], [])
        for page in _pages(db, _BLOBS, 10):
            target.receive([], [BlobRow(*row) for row in page])
        for page in _pages(db, sessions, 500):
            found = [stored(db, row) for row in page]
            keys: dict[int, dict[str, int]] = {s.stretch: {} for s in found}
            for stretch, key, seq in rows(db, _KEYS, list(keys)):
                keys[stretch][key] = seq
            for session in found:
                target.receive_session(session, keys[session.stretch])
        for page in _pages(db, _DESK, 100):
            for kind, name, value in page:
                target.put_on_desk(kind, name, value)


def _pages(db: Connection, sql: str, length: int) -> Iterator[list[tuple[Any, ...]]]:
    with db.cursor("copying", binary=True) as cursor:
        cursor.execute(sql)
        while page := cursor.fetchmany(length):
            yield page
