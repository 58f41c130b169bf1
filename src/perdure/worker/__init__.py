"""Whoever runs turns: looks which sessions owe something, takes them, runs them, and lets go of them.

    async with await perdure.start("sqlite:///sessions.db", model=model) as agent:
        session = await agent.create()
        await agent.send(session, "Hello.")

A wake is a hint and carries nothing; the journal is asked all the same, twice a second, for what other processes have
left behind or sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from types import TracebackType

from perdure import journal as journals
from perdure.agent.carry import Agent
from perdure.agent.decide import OnCrash, WaitUntil
from perdure.agent.run import run
from perdure.errors import NotOwner, OwnedElsewhere, PerdureError, SessionError
from perdure.journal import Journal
from perdure.journal.owning import Kind
from perdure.models import Model
from perdure.models.opening import open_model
from perdure.policy.retrying import Retrying
from perdure.runtime import Runtime
from perdure.tools import Tool

log = logging.getLogger("perdure.worker")

LOOK_EVERY = 0.5
"""Seconds between two looks at the journal when nobody says anything."""
PAUSE_AFTER_ERROR = 5.0
"""Seconds for which a session that could not be run at all is left alone."""


class Worker:
    """Runs the turns of one journal's sessions in this process, many sessions at once."""

    def __init__(self, journal: Journal, agent_for: Callable[[str], Agent | None]) -> None:
        """`agent_for` says who answers in a session; None, if nobody here does."""
        self._journal = journal
        self._agent_for = agent_for
        self._leave = asyncio.Event()
        self._news = asyncio.Event()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._shunned: dict[str, float] = {}
        self._looking = asyncio.create_task(self._look(), name="perdure-worker")

    def wake(self) -> None:
        self._news.set()

    async def close(self, deadline: float = 0.0) -> None:
        """Begin nothing more; give what runs so many seconds to end, and interrupt what is left then."""
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)
        if self._running and deadline:
            await asyncio.wait(self._running.values(), timeout=deadline)
        self._leave.set()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _look(self) -> None:
        while True:
            try:
                for session in await self._journal.runnable(limit=1000):
                    agent = self._agent_for(session)
                    if agent and session not in self._running and self._is_welcome(session):
                        task = asyncio.create_task(self._run(agent, session), name=f"perdure-run-{session}")
                        self._running[session] = task
            except PerdureError as why:
                log.error("cannot look for work", extra={"why": str(why)})
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._news.wait()
            self._news.clear()

    def _is_welcome(self, session: str) -> bool:
        return asyncio.get_running_loop().time() >= self._shunned.pop(session, 0.0)

    async def _run(self, agent: Agent, session: str) -> None:
        try:
            owned = await self._journal.take(session)
            try:
                rest = await run(agent, self._journal, owned, self._leave)
            finally:
                await owned.release()
            if isinstance(rest, WaitUntil):
                wait = (rest.at - self._journal.clock.wall()) / 1e6
                asyncio.get_running_loop().call_later(max(wait, 0.0), self.wake)
        except (NotOwner, OwnedElsewhere):
            self._shun(session, LOOK_EVERY)  # somebody else runs it
        except SessionError as why:
            log.error("cannot be run", extra={"session": session, "why": str(why)})
            self._shun(session, PAUSE_AFTER_ERROR)
        except Exception:
            log.exception("cannot be run", extra={"session": session})
            self._shun(session, PAUSE_AFTER_ERROR)
        finally:
            del self._running[session]
            self.wake()  # something may have come after the last look

    def _shun(self, session: str, seconds: float) -> None:
        self._shunned[session] = asyncio.get_running_loop().time() + seconds


class Started(Runtime, AbstractAsyncContextManager["Started"]):
    """A front desk and a worker in one process."""

    def __init__(self, journal: Journal, agent_for: Callable[[str], Agent | None], deadline: float) -> None:
        self.worker = Worker(journal, agent_for)
        self.deadline = deadline
        super().__init__(journal, self.worker.wake)

    async def close(self) -> None:
        try:
            await self.worker.close(self.deadline)
        finally:
            await self.journal.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def start(
    url: str,
    *,
    model: Model | str,
    tools: Iterable[Tool] = (),
    system: str = "",
    workspace: Path | None = None,
    on_crash: OnCrash = "continue",
    kind: Kind = "library",
    retrying: Retrying | None = None,
    deadline: float = 8.0,
) -> Started:
    """Open a journal, and run what its sessions owe in this process, until closed.

    `model` is one of yours, or a name such as `anthropic:...`, whose key is in the environment.
    """
    if isinstance(model, str):
        model = open_model(model, {}, os.environ)
    journal = await journals.open(url, kind=kind)
    agent = Agent(
        model, workspace or Path.cwd(), journal.clock, {tool.name: tool for tool in tools}, system,
        retrying or Retrying(), on_crash,
    )  # fmt: skip
    return Started(journal, lambda _: agent, deadline)
