"""Events are read around a page that is damaged, wherever it lies on the way."""

from pathlib import Path

import pytest

from perdure import journal
from perdure.events import Event, RecordImported, Unreadable
from perdure.journal.clock import SystemClock
from perdure.journal.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

PAGE = 8192
COUNT = 60


async def a_store(path: Path) -> list[Event]:
    async with await journal.open(f"sqlite:///{path}", durability="process") as opened:
        session = await opened.create()
        for number in range(2, COUNT + 1):
            await opened.append(session, RecordImported(source=f"number-{number:04}", data="x" * 900))
        return [event async for event in opened.events(session)]


@pytest.mark.parametrize("hit", [2, 30, COUNT])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("limit", [7, 100])
async def test_what_is_intact_is_read_and_what_is_not_has_its_place(
    tmp_path: Path, hit: int, backwards: bool, limit: int
) -> None:
    path = tmp_path / "perdure.db"
    events = await a_store(path)
    content = path.read_bytes()
    at = content.index(b"number-%04d" % hit) // PAGE * PAGE
    path.write_bytes(content[:at] + b"\xff" * PAGE + content[at + PAGE :])
    # The first event lies beside the second.
    intact = [e for e in events if b"number-%04d" % max(e.seq, 2) not in content[at : at + PAGE]]
    assert len(intact) < COUNT
    store = SqliteStore(path, SystemClock())
    try:
        found: list[Event] = []
        after, upto = 0, COUNT
        while (page := store.events(1, after, upto, limit, backwards)).events:
            found = page.events + found if backwards else found + page.events
            assert len(page.events) <= limit
            assert page.more == (0 < len(found) < COUNT)
            after, upto = (0, found[0].seq - 1) if backwards else (found[-1].seq, COUNT)
        assert [event.seq for event in found] == list(range(1, COUNT + 1))
        assert [event for event in found if not isinstance(event.fact, Unreadable)] == intact
        assert [seal[0] for seal in store.seals(1, 0, COUNT, COUNT)] == list(range(1, COUNT + 1))
    finally:
        store.close()
