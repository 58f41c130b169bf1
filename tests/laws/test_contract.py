"""The journal contract over every store there is, by two connections of one process."""

from pathlib import Path

import apsw
import psycopg
import pytest

from perdure.journal import Journal, open
from perdure.journal.memory import MemoryStore
from perdure.journal.rows import Row, event_in, link_of
from perdure.testing.clock import ManualClock
from perdure.testing.contract import JournalContract
from tests.postgres import fresh_database


class TestMemory(JournalContract):
    @pytest.fixture(autouse=True)
    def no_stores(self) -> None:
        self.stores: dict[Path, MemoryStore] = {}

    async def open_another(self, home: Path, clock: ManualClock) -> Journal:
        store = self.stores.setdefault(home, MemoryStore(clock))
        return Journal(store, clock, home / "processes")

    async def inject(self, journal: Journal, session: str, row: Row) -> None:
        store = journal.store
        assert isinstance(store, MemoryStore)
        stored = store._sessions[session]
        store._rows[stored.stretch].append(row)
        event = event_in(row.seq, row.data, row.checksum)
        stored.head, stored.folded = row.seq, stored.folded.after(event)
        stored.chain = link_of(row.seal or b"")


class TestSqlite(JournalContract):
    async def open_another(self, home: Path, clock: ManualClock) -> Journal:
        return await open(f"sqlite:///{home}/a store/perdüre.db", clock=clock)

    async def inject(self, journal: Journal, session: str, row: Row) -> None:
        db = apsw.Connection(journal.store.url.removeprefix("sqlite:///"))
        with db:
            (stretch,) = db.execute(
                "SELECT stretch FROM perdure_sessions WHERE id = ?", (session,)
            ).fetchone()
            db.execute(
                "INSERT INTO perdure_events (id, data, checksum, seal) VALUES (?, ?, ?, ?)",
                (stretch << 32 | row.seq, row.data, row.checksum, row.seal),
            )
            db.execute(
                "UPDATE perdure_sessions SET head = ?, chain = ?, folded = x'' WHERE stretch = ?",
                (row.seq, link_of(row.seal or b""), stretch),
            )
        db.close()


@pytest.fixture(scope="module")
def address() -> str:
    return fresh_database()


class TestPostgres(JournalContract):
    """In one database, emptied before each test: a new one for each would take longer than the tests."""

    @pytest.fixture(autouse=True)
    def _empty(self, address: str) -> None:
        self.address = address
        with psycopg.connect(address, autocommit=True) as db:
            tables = [
                name
                for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'perdure_%'")
            ]
            kept = [name for name in tables if name != "perdure_store"]
            if kept:
                db.execute(f"TRUNCATE {', '.join(kept)}")

    async def open_another(self, home: Path, clock: ManualClock) -> Journal:
        return await open(self.address, clock=clock)

    async def inject(self, journal: Journal, session: str, row: Row) -> None:
        with psycopg.connect(self.address) as db:
            found = db.execute("SELECT stretch FROM perdure_sessions WHERE id = %s", (session,)).fetchone()
            assert found is not None
            db.execute(
                "INSERT INTO perdure_events (stretch, seq, data, checksum, seal) VALUES (%s, %s, %s, %s, %s)",
                (found[0], row.seq, row.data, row.checksum, row.seal),
            )
            db.execute(
                "UPDATE perdure_sessions SET head = %s, chain = %s, folded = '' WHERE stretch = %s",
                (row.seq, link_of(row.seal or b""), found[0]),
            )
