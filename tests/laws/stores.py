"""The three stores, for tests that ask the same of each of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import psycopg

from perdure.journal.clock import Clock
from perdure.journal.memory import MemoryStore
from perdure.journal.postgres import PostgresStore
from perdure.journal.sqlite import SqliteStore
from perdure.journal.store import Store
from tests.postgres import fresh_database

MATERIALS = ("memory", "sqlite", "postgres")


def connections(material: str, home: Path, clock: Clock) -> Callable[[], Store]:
    """An empty store: each call of what this returns is another connection to it."""
    if material == "memory":
        store = MemoryStore(clock)
        return lambda: store
    if material == "sqlite":
        return lambda: SqliteStore(home / "perdure.db", clock, durability="process")
    address = emptied()
    return lambda: PostgresStore(address, clock)


@cache
def _address() -> str:
    return fresh_database()


def emptied() -> str:
    """The address of a database without sessions: a new one for each test would take longer than the tests."""
    with psycopg.connect(_address(), autocommit=True) as db:
        found = db.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'perdure_%'").fetchall()
        if kept := [name for (name,) in found if name != "perdure_store"]:
            db.execute(f"TRUNCATE {', '.join(kept)}")
    return _address()
