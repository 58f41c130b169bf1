"""Many processes on one store: nobody is refused, and everything acknowledged is there, once.

`PERDURE_ROUNDS=full` keeps them at it for a minute; `PERDURE_SEED` repeats what they say, though not who is first.
"""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure import journal
from perdure.events import Event, MessageSent, RecordImported
from perdure.journal import Journal, blob_of
from perdure.journal.care import doctor
from perdure.journal.sqlite import CHECKPOINT_PAGES
from tests.kill.lives import FULL, SEED, Ack, message, unheard
from tests.kill.template import Child, Template

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with Template() as template:
        yield template


async def test_eight_processes_on_one_file_beside_foreign_ones(template: Template, tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    url = f"sqlite:///{path}"
    sessions = await begin(url, 32)
    foreign = [
        template.start(job, path=str(path), seconds=0.02) for job in ("read_on_and_off", "write_on_and_off")
    ]
    assert [child.hear() for child in foreign] == ["open", "open"]
    acks = await at_work(template, url, 8, sessions, 60.0 if FULL else 1.5)
    for child in foreign:
        child.tell("stop")
        assert child.end()[-1]["rounds"] > 0
    await look_at(url, sessions, acks)


async def test_four_processes_on_one_session(template: Template, store_url: str) -> None:
    [session] = await begin(store_url, 1)
    acks = await at_work(template, store_url, 4, [session], 10.0 if FULL else 1.5)
    await look_at(store_url, [session], acks)


async def begin(url: str, count: int) -> list[str]:
    async with await journal.open(url) as first:
        return [await first.create() for _ in range(count)]


async def at_work(template: Template, url: str, count: int, sessions: list[str], seconds: float) -> list[Ack]:
    """What so many processes were told while all of them appended at once. That one was refused is an error."""
    print(f"PERDURE_SEED={SEED}")
    children = [
        template.start("contend", url=url, name=f"p{n}", seed=SEED + n, sessions=sessions, at_once=4)
        for n in range(count)
    ]
    assert [child.hear() for child in children] == ["open"] * count
    with ThreadPoolExecutor(count) as listeners:
        heard = [listeners.submit(child.end) for child in children]
        tell(children, "go")
        await asyncio.sleep(seconds)
        tell(children, "stop")
    said: list[Any] = [value for each in heard for value in each.result()]
    assert [child.status for child in children] == [0] * count, said[-1]
    acks = [tuple(value) for value in said if isinstance(value, list)]
    slowest = max(value["slowest"] for value in said if isinstance(value, dict))
    print(f"{count} processes: {len(acks) / seconds:.0f} appends/s, the slowest took {slowest * 1000:.0f} ms")
    return acks


def tell(children: list[Child], word: str) -> None:
    for child in children:
        child.tell(word)


async def look_at(url: str, sessions: list[str], acks: list[Ack]) -> None:
    """Everything acknowledged is there, once, and nothing else; no seq is passed over; all is in order."""
    async with await journal.open(url, announce=pytest.fail) as after:
        assert await unheard(after, acks) == []
        events = {session: [event async for event in after.events(session)] for session in sessions}
        for session, each in events.items():
            assert [event.seq for event in each] == list(range(1, len(each) + 1)), session
        there = [data_of(event) for each in events.values() for event in each[1:]]
        assert len(there) == len(set(there)) == len(acks) > 0
        assert await troubles(after) == []


def data_of(event: Event) -> str:
    assert isinstance(event.fact, RecordImported)
    return event.fact.data


async def troubles(after: Journal) -> list[str]:
    # PostgreSQL's server for tests does not sync, and doctor says so.
    return [str(f) async for f in doctor(after, mend=False) if "off on this server" not in f.what]


async def test_a_log_that_grows_under_a_foreign_reader_is_told_of_and_shrinks_again(
    template: Template, tmp_path: Path
) -> None:
    path = tmp_path / "perdure.db"
    log = Path(f"{path}-wal")
    async with await journal.open(f"sqlite:///{path}", durability="process") as running:
        session = await running.create()
        reader = template.start("read_and_hold", path=str(path))
        assert reader.hear() == "reading"
        while log.stat().st_size <= 4 * CHECKPOINT_PAGES * 8192:
            content = os.urandom(4 << 20)
            said = (*message("see").parts, blob_of(content))
            await running.append(session, MessageSent(parts=said), blobs=[content])
        [trouble] = await troubles(running)
        assert str(log) in trouble
        assert "close it and the file shrinks" in trouble
        reader.tell("let go")
        assert reader.hear() == "gone"
        for _ in range(2):  # one that is followed by a complete checkpoint, one that begins the log anew
            await running.append(session, message("on"))
        assert await troubles(running) == []
        assert log.stat().st_size <= 2 * CHECKPOINT_PAGES * 8192
