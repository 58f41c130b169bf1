"""From one move to the next, until nothing can be done: the same after a message, a crash, a wait or an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from perdure import events as e
from perdure.agent import decide as d
from perdure.agent.calling import call_model
from perdure.agent.carry import Agent, Facts, Here
from perdure.agent.closing import close_call, close_tool, said_at_once
from perdure.agent.stopping import Stop
from perdure.agent.using import run_tool
from perdure.errors import NotOwner, Refused, StoreError
from perdure.journal import Journal, Owned
from perdure.views.context import Context
from perdure.views.turn import Turn, turn_of

SHUTDOWN = d.EndTurn("interrupted", "Perdure was told to stop", "shutdown")


async def run(agent: Agent, journal: Journal, owned: Owned, leave: asyncio.Event) -> d.WaitUntil | d.Rest:
    """Do what this session owes until it may rest. Once `leave` is set, what runs is interrupted and ended.

    Raises `NotOwner` if another process has taken over: it sees to what is left open here.
    """
    life = Life(agent, journal, owned, leave)
    await life.read()
    async with life.watched():
        while True:
            move = life.next_move()
            if isinstance(move, d.WaitUntil | d.Rest):
                return move
            await life.do(move)


@dataclass
class Life:
    """One run of one session: its turn and its context, kept up with the journal as facts are made durable."""

    agent: Agent
    journal: Journal
    owned: Owned
    leave: asyncio.Event
    turn: Turn = field(default_factory=Turn)
    context: Context = field(default_factory=Context)
    stop: Stop = field(default_factory=Stop)
    failed: d.EndTurn | None = None
    """How the running turn is to end because something broke that it cannot go on without."""

    async def read(self) -> None:
        listed = await self.journal.head(self.owned.session)
        standing, since = listed.head.standing, []
        async for event in self.journal.between(self.owned.session, 0, listed.upto):
            self.context.add(event)
            if standing.turn and event.seq >= standing.turn:
                since.append(event)
        self.turn = turn_of(standing, since)
        self.owned.has_read(listed.upto)

    def next_move(self) -> d.Move:
        s = self.turn.standing
        if not s.turn:
            self.failed = None
            if self.leave.is_set():
                return d.Rest()
        elif not s.cancel and (end := self.failed or (SHUTDOWN if self.leave.is_set() else None)):
            return d.stop(self.turn, end)
        return d.decide(self.turn, self.agent.clock.wall(), self.agent.on_crash)

    async def do(self, move: d.Move) -> None:
        try:
            await self._carry_out(move)
        except (NotOwner, StoreError):
            raise
        except Refused:
            # Somebody was quicker: a message was taken back, a question answered. Look, and decide again.
            if not await self._catch_up():
                raise
        except Exception as why:
            if self.failed or not self.turn.standing.turn:
                raise
            self.failed = d.EndTurn("failed", f"{type(why).__name__}: {why}", "internal")

    async def _carry_out(self, move: d.Move) -> None:
        self.stop.asked.clear()
        if self.leave.is_set():
            self.stop.ask("interrupted")
        async with aclosing(self._facts(move)) as facts:
            try:
                yielded = await anext(facts)
                while True:
                    news = await self.owned.append(*yielded)
                    self._hear(news)
                    yielded = await facts.asend(news)
            except StopAsyncIteration:
                return

    def _hear(self, news: Sequence[e.Event]) -> None:
        for event in news:
            self.turn = self.turn.after(event)
            self.context.add(event)
        if self.turn.standing.cancel:
            self.stop.ask("cancelled")

    async def _catch_up(self) -> bool:
        head = (await self.journal.head(self.owned.session)).upto
        news = [event async for event in self.journal.between(self.owned.session, self.owned.upto, head)]
        self._hear(news)
        self.owned.has_read(head)
        return bool(news)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """While nothing is appended here, a cancel by anybody and the wish to leave are heard all the same."""

        async def cancels() -> None:
            async with aclosing(self.journal.follow(self.owned.session, after=self.owned.upto)) as events:
                async for event in events:
                    if isinstance(event.fact, e.CancelAsked) and event.fact.turn == self.turn.standing.turn:
                        self.stop.ask("cancelled")

        async def leaving() -> None:
            await self.leave.wait()
            self.stop.ask("interrupted")

        tasks = [asyncio.create_task(watch(), name="perdure-watch") for watch in (cancels, leaving)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _facts(self, move: d.Move) -> Facts:
        here = Here(
            self.owned.session, self.turn.standing.turn, self.stop, self.context.messages, self._must_own
        )
        match move:
            case d.CallModel():
                return call_model(self.agent, here, move)
            case d.RunTool(wish=wish):
                begun = (o.tool for o in self.turn.standing.owed if o.call_id == wish.call_id and o.tool)
                return run_tool(self.agent, here, move, next(begun, 0))
            case d.CloseCall():
                return close_call(self.journal, here, move)
            case d.CloseTool():
                return close_tool(self.journal, here, move)
            case _:
                return said_at_once(here, move)

    def _must_own(self) -> None:
        if not self.owned.may_act():
            raise NotOwner(self.owned.session, "the lease has run out")
