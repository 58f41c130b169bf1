"""Gathering: nothing is lost or reordered, and nothing is left behind, whatever end it comes to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from perdure.agent.pieces import MOST, gathered

pytestmark = pytest.mark.anyio


class Source:
    """Yields so many numbers, breathing after each, and then ends, fails or is silent for ever."""

    def __init__(self, count: int, end: str = "ends") -> None:
        self.count, self.end = count, end
        self.yielded, self.is_closed = 0, False

    async def __call__(self) -> AsyncIterator[int]:
        try:
            for number in range(self.count):
                self.yielded += 1
                yield number
                await asyncio.sleep(0)
            if self.end == "fails":
                raise ValueError("broken")
            if self.end == "is silent":
                await asyncio.Event().wait()
        finally:
            self.is_closed = True


def nothing_runs() -> bool:
    return not any(task.get_name().startswith("perdure") for task in asyncio.all_tasks())


@pytest.mark.parametrize("pause", [0.0, 0.001, 0.05])
@pytest.mark.parametrize("count", [0, 1, 7, 3 * MOST + 1])
async def test_everything_comes_once_and_in_order(count: int, pause: float) -> None:
    source = Source(count)
    batches = [batch async for batch in gathered(source(), asyncio.Event(), pause)]
    assert [number for batch in batches for number in batch] == list(range(count))
    assert all(batches)
    assert source.is_closed
    assert nothing_runs()


async def test_what_came_before_a_failure_comes_before_it() -> None:
    found: list[int] = []

    async def take() -> None:
        async for batch in gathered(Source(5, "fails")(), asyncio.Event(), 0.0):
            found.extend(batch)

    with pytest.raises(ValueError, match="broken"):
        await take()
    assert found == list(range(5))
    assert nothing_runs()


async def test_it_stops_while_the_source_is_silent() -> None:
    source, stop, found = Source(3, "is silent"), asyncio.Event(), []
    asyncio.get_running_loop().call_later(0.05, stop.set)
    async with asyncio.timeout(5):
        async for batch in gathered(source(), stop, 0.0):
            found += batch
    assert found == [0, 1, 2]
    assert source.is_closed
    assert nothing_runs()


async def test_a_source_that_is_quicker_than_the_disk_has_to_wait() -> None:
    source = Source(100 * MOST)
    async with aclosing(gathered(source(), asyncio.Event(), 0.0)) as batches:
        await anext(batches)
        for _ in range(10 * MOST):
            await asyncio.sleep(0)
        assert source.yielded <= 3 * MOST
    assert source.is_closed
    assert nothing_runs()


async def test_whoever_stops_taking_leaves_nothing_behind() -> None:
    source = Source(3, "is silent")
    async with aclosing(gathered(source(), asyncio.Event(), 0.0)) as batches:
        assert (await anext(batches))[0] == 0
    assert source.is_closed
    assert nothing_runs()
