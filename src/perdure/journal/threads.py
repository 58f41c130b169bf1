"""The threads in which blocking work on a store is done: one that writes, one that reads.

Appends that wait while a commit is under way go into the next one together: they share its transaction and its
fsync, so a busy store does more with each sync instead of queueing for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from perdure.errors import StoreUnavailable
from perdure.journal.store import Append, Appended, Store

T = TypeVar("T")

MOST = 256
"""Appends in one transaction: enough to make the sync cheap, few enough that nobody waits long for it."""


class Reader:
    """Runs one blocking call after another, in its own thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._queue: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def __call__(self, call: Callable[..., T], *args: Any) -> T:
        _refuse_if(self._closed)
        answer: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((lambda: call(*args), answer))
        return await answer

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            call, answer = item
            _do(self._loop, call, answer)

    async def close(self) -> None:
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)


class _Handed(NamedTuple):
    append: Append
    settled: Callable[[bool], None] | None


class Writer:
    """Commits appends in groups, in the order in which they came, and runs other writes between the groups."""

    def __init__(self, store: Store, stored: Callable[[Append, Appended], None]) -> None:
        """`stored` is called in the event loop for what has become durable, before its appender hears of it."""
        self._store = store
        self._stored = stored
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._queue: SimpleQueue[tuple[_Handed | Callable[[], Any], asyncio.Future[Any]] | None] = (
            SimpleQueue()
        )
        self._thread = Thread(target=self._run, name="perdure-writer", daemon=True)
        self._thread.start()

    def append(
        self, append: Append, settled: Callable[[bool], None] | None = None
    ) -> asyncio.Future[Appended]:
        """`settled` is told whether it was stored, even if nobody waits for the answer any more."""
        _refuse_if(self._closed)
        answer: asyncio.Future[Appended] = self._loop.create_future()
        self._queue.put((_Handed(append, settled), answer))
        return answer

    async def __call__(self, call: Callable[..., T], *args: Any) -> T:
        _refuse_if(self._closed)
        answer: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((lambda: call(*args), answer))
        return await answer

    def _run(self) -> None:
        while True:
            group: list[tuple[_Handed, asyncio.Future[Any]]] = []
            for item in self._waiting():
                if item is None:
                    self._commit(group)
                    return
                work, answer = item
                if isinstance(work, _Handed):
                    group.append((work, answer))
                else:
                    self._commit(group)
                    group = []
                    _do(self._loop, work, answer)
            self._commit(group)

    def _waiting(self) -> Iterator[tuple[_Handed | Callable[[], Any], asyncio.Future[Any]] | None]:
        yield self._queue.get()
        for _ in range(MOST - 1):
            try:
                yield self._queue.get_nowait()
            except Empty:
                return

    def _commit(self, group: Sequence[tuple[_Handed, asyncio.Future[Any]]]) -> None:
        if not group:
            return
        try:
            outcomes: Sequence[Appended | Exception] = self._store.commit(
                [handed.append for handed, _ in group]
            )
        except Exception as why:
            outcomes = [why] * len(group)
        self._loop.call_soon_threadsafe(self._answer, group, outcomes)

    def _answer(
        self, group: Sequence[tuple[_Handed, asyncio.Future[Any]]], outcomes: Sequence[Appended | Exception]
    ) -> None:
        for ((append, settled), answer), outcome in zip(group, outcomes, strict=True):
            stored = isinstance(outcome, Appended)
            if isinstance(outcome, Appended):
                self._stored(append, outcome)
            if settled is not None:
                settled(stored)
            _settle(answer, *((outcome, None) if stored else (None, outcome)))

    async def close(self) -> None:
        """Return when everything that was handed in before has been dealt with."""
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)


def _refuse_if(closed: bool) -> None:
    if closed:  # nobody is left to answer: whoever waited would wait for ever
        raise StoreUnavailable("journal", "was closed; open it again")


def _do(loop: asyncio.AbstractEventLoop, call: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
    if answer.cancelled():
        return
    try:
        result = call()
    except BaseException as why:
        loop.call_soon_threadsafe(_settle, answer, None, why)
    else:
        loop.call_soon_threadsafe(_settle, answer, result, None)


def _settle(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.cancelled():
        return  # whoever asked has stopped waiting; what was done is done
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
