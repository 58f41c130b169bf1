"""All rows of a PostgreSQL store, of one moment, into a store of another kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from perdure.journal.pipe import Pipe, Rows
from perdure.journal.store import BlobRow, RawEvent, Receiver, Stored

_EVENTS = "SELECT stretch, seq, data, checksum, seal FROM perdure_events ORDER BY stretch, seq"
_BLOBS = "SELECT hash, size, packed, data FROM perdure_blobs"
_KEYS = "SELECT stretch, key, seq FROM perdure_keys WHERE stretch = ANY ($1::bigint[])"
_DESK = "SELECT kind, name, value FROM perdure_desk"


def copy_rows(
    db: Pipe, sessions: str, stored: Callable[[Pipe, tuple[Any, ...]], Stored], target: Receiver
) -> None:
    """`sessions` asks for all sessions, and `stored` makes one of a row of the answer. Kept folds are left behind:
    they are folded anew where they are missed."""
    db.rows("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    db.rows("SET LOCAL idle_in_transaction_session_timeout = 0")  # the target may be slow
    for page in _pages(db, "events", _EVENTS, 500):
        target.receive([RawEvent(*row) for row in page], [])
    for page in _pages(db, "blobs", _BLOBS, 10):
        target.receive([], [BlobRow(*row) for row in page])
    for page in _pages(db, "sessions", sessions, 500):
        found = [stored(db, row) for row in page]
        keys: dict[int, dict[str, int]] = {s.stretch: {} for s in found}
        for stretch, key, seq in db.rows(_KEYS, list(keys)):
            keys[stretch][key] = seq
        for session in found:
            target.receive_session(session, keys[session.stretch])
    for page in _pages(db, "desk", _DESK, 100):
        for kind, name, value in page:
            target.put_on_desk(kind, name, value)
    db.rows("COMMIT")


def _pages(db: Pipe, name: str, sql: str, length: int) -> Iterator[Rows]:
    db.rows(f"DECLARE perdure_{name} NO SCROLL CURSOR FOR {sql}")
    while page := db.rows(f"FETCH {length} FROM perdure_{name}"):
        yield page
