"""The journal contract over every store there is, by two connections of one process."""

from pathlib import Path

import apsw
import pytest

from perdure.journal import Journal, open
from perdure.journal.memory import MemoryStore
from perdure.journal.rows import Row, event_in, link_of
from perdure.testing.clock import ManualClock
from perdure.testing.contract import JournalContract


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
        stored.chain = link_of(row.seal) if row.seal else stored.chain


class TestSqlite(JournalContract):
    async def open_another(self, home: Path, clock: ManualClock) -> Journal:
        return await open(f"sqlite:///{home}/a store/perdüre.db", clock=clock)

    async def inject(self, journal: Journal, session: str, row: Row) -> None:
        db = apsw.Connection(journal.store.path.as_posix())  # type: ignore[attr-defined]
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
