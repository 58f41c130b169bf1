"""Gathering what streams in, so that each stored piece holds what arrived in one moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")

PAUSE = 0.05
"""Seconds that a piece stays open after its first word. It stays open longer while the piece before is being stored."""
MOST = 1000
"""Items that wait to be stored before the source has to wait."""


async def gathered(
    source: AsyncIterator[T], stop: asyncio.Event, pause: float = PAUSE
) -> AsyncGenerator[list[T], None]:
    """What `source` yields, in batches. Ends when the source does, with its error if it failed; or soon after `stop`.

    What arrived is always yielded first, and the source is closed at the end, whatever the end is.
    """
    waiting: list[T] = []
    moved, room = asyncio.Event(), asyncio.Event()

    async def pump() -> None:
        async with aclosing(source) as items:  # type: ignore[type-var]
            async for item in items:
                waiting.append(item)
                moved.set()
                if len(waiting) >= MOST:
                    room.clear()
                    await room.wait()

    pumping = asyncio.create_task(pump(), name="perdure-pump")
    stopping = asyncio.create_task(stop.wait(), name="perdure-stop")
    for task in (pumping, stopping):
        task.add_done_callback(lambda _: moved.set())
    try:
        while not (pumping.done() or stopping.done()):
            await moved.wait()
            moved.clear()
            if waiting:
                await asyncio.wait({pumping, stopping}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                batch, waiting[:] = list(waiting), []
                room.set()
                yield batch
        if waiting:
            yield list(waiting)
        if pumping.done():
            pumping.result()
    finally:
        pumping.cancel()
        stopping.cancel()
        await asyncio.gather(pumping, stopping, return_exceptions=True)
