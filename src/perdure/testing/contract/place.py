"""What a test of a store is given: a journal, another one over the same store, and a clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.journal import Journal
from perdure.journal.rows import Row
from perdure.testing.clock import ManualClock


class Place:
    """What a subclass of a contract has to give."""

    pytestmark = pytest.mark.anyio

    async def open_another(self, home: Path, clock: ManualClock) -> Journal:
        """A journal over the one store that belongs to `home`, a folder of the test's own: the first call makes the
        store, every further call with the same `home` is another connection to it."""
        raise NotImplementedError

    async def inject(self, journal: Journal, session: str, row: Row) -> None:
        """Put this row at the end of a session behind the journal's back, as a newer build would have: the row, the
        session's head and chain moved on to it, and a folded head that this build has to fold anew."""
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def journal(self, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Journal]:
        async with await self.open_another(tmp_path, clock) as journal:
            yield journal

    @pytest.fixture
    async def another(self, journal: Journal, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Journal]:
        async with await self.open_another(tmp_path, clock) as another:
            yield another
