"""Taking turns: ours and theirs in small blocks, so that whatever else the machine does hits both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from statistics import median
from threading import Thread
from time import perf_counter
from typing import Any

Side = Callable[[], Awaitable[object] | None]
"""One thing to time; what it returns is awaited if it is not None."""


@dataclass(slots=True)
class Times:
    """How long one side took, in seconds, in blocks as they were measured."""

    blocks: list[list[float]] = field(default_factory=list)

    @property
    def all(self) -> list[float]:
        return [time for block in self.blocks for time in block]

    @property
    def p50(self) -> float:
        return median(self.all)

    def quantile(self, q: float) -> float:
        return quantile(self.all, q)


def quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


async def alternate(
    sides: Sequence[Side],
    *,
    blocks: int,
    size: int,
    before: Callable[[int], object] = lambda size: None,
    warm: bool = True,
) -> list[Times]:
    """Time every side `size` times in turn, `blocks` times over, in another order each time.

    `before` is called in front of each round, to make what the sides are going to use. If `warm`, a round is made
    and thrown away first.
    """
    times = [Times() for _ in sides]
    for number in range(1 - warm, blocks + 1):
        before(size)
        turned = number % len(sides)
        for at in (*range(turned, len(sides)), *range(turned)):
            block = await _block(sides[at], size)
            if number:
                times[at].blocks.append(block)
    return times


async def _block(call: Side, size: int) -> list[float]:
    block = []
    for _ in range(size):
        began = perf_counter()
        waiting = call()
        if waiting is not None:
            await waiting
        block.append(perf_counter() - began)
    return block


class Hop:
    """The least a program with an event loop has to do to have blocking work done: to a thread and back."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="bench-hop", daemon=True)
        self._thread.start()

    def __call__(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put((call, answer))
        return answer

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            call, answer = item
            self._loop.call_soon_threadsafe(answer.set_result, call())

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
