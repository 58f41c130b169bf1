"""An agent whose process dies around its commits, and a person who speaks in between."""

from __future__ import annotations

import asyncio
import fcntl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure import events as e
from perdure.agent.carry import Agent
from perdure.agent.decide import WaitUntil
from perdure.agent.run import run
from perdure.grammar import offences
from perdure.journal import Journal
from perdure.journal.store import Append, Appended, Store
from perdure.models import Request
from perdure.models.scripted import Answer, Call, Fail, ScriptedModel, Think
from perdure.testing.clock import ManualClock
from perdure.testing.journals import faults, whole
from perdure.tools import Done, Output, Place
from perdure.views.context import ModelSaid, ToolSaid, UserSaid


class Killed(Exception):
    """The process is no more."""


@dataclass
class Plan:
    """What happens around the commits of one session's owner, counted from 1 over all processes."""

    kills: Mapping[int, str] = field(default_factory=dict)
    """`before` or `after` that commit."""
    says: Mapping[int, Sequence[e.AnyFact] | Callable[[e.Seq], Sequence[e.AnyFact]]] = field(
        default_factory=dict
    )
    """What a person appends before it."""
    count: int = 0


class Fated:
    """A store as one process has it, until that process dies at a commit."""

    def __init__(self, store: Store, others: Store, plan: Plan) -> None:
        self._store, self._others, self._plan = store, others, plan
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        if self.dead:
            raise Killed
        if not any(append.epoch for append in appends):
            return self._store.commit(appends)
        self._plan.count += 1
        fate = self._plan.kills.get(self._plan.count)
        if said := self._plan.says.get(self._plan.count):
            self._speak(appends[0].session, said)
        if fate == "before":
            self._die()
        outcomes = self._store.commit(appends)
        if fate == "after":
            self._die()
        return outcomes

    def _speak(self, session: str, said: Any) -> None:
        stored = self._others.session(session)
        assert stored is not None
        facts = said(stored.folded.standing.turn) if callable(said) else said
        if facts:
            [outcome] = self._others.commit([Append(session, tuple(facts))])
            assert isinstance(outcome, Appended), outcome

    def _die(self) -> None:
        self.dead = True
        raise Killed


class Effects:
    """A tool whose every run is counted."""

    description, parameters = "", {}

    def __init__(self, name: str, repeatable: bool, begun: list[str]) -> None:
        self.name, self.repeatable, self._begun = name, repeatable, begun

    async def run(self, arguments: Mapping[str, object], place: Place) -> AsyncIterator[Output | Done]:
        self._begun.append(place.call)
        yield Output("one ")
        await asyncio.sleep(0)
        yield Output("two")
        yield Done()


def brain(request: Request) -> Answer:
    """It works once for each question that asks for it, and then answers what it was asked last."""
    last = request.messages[-1]
    if isinstance(last, UserSaid) and "work" in str(last.parts[-1]):
        n = len(request.messages)
        return [
            Think("hm, hm"),
            "Let me see what there is. ",
            Call("strike", {}, f"a{n}"),
            Call("look", {}, f"b{n}"),
        ]
    return f"That was all there is to say of {len(request.messages)} messages."


class Lives:
    """One session in one process after another."""

    def __init__(self, another: Callable[[], Store], clock: ManualClock, home: Path, plan: Plan) -> None:
        self._another, self._clock, self._home, self._plan = another, clock, home, plan
        self.begun: list[str] = []
        self.shown: list[e.Event] = []
        self.requests: list[Request] = []
        self.calls = 0
        self.deaths = 0
        self.open: list[Journal] = []

    async def begin(self, *facts: e.AnyFact) -> str:
        journal = Journal(self._another(), self._clock, self._home / "processes")
        self.open.append(journal)
        return await journal.create(e.SessionCreated("turns"), *facts)

    def _answer(self, request: Request) -> Answer:
        self.requests.append(request)
        self.calls += 1
        return ["I was about to ", Fail("overloaded")] if self.calls == 2 else brain(request)

    async def live(self, session: str, leave_after: int = 0) -> bool:
        """One process: until it may rest, or dies. True if it rests for good."""
        fated = Fated(self._another(), self.open[0].store, self._plan)
        journal = Journal(fated, self._clock, self._home / "processes", lease=1e6)
        self.open.append(journal)
        tools = {t.name: t for t in (Effects("strike", False, self.begun), Effects("look", True, self.begun))}
        model = ScriptedModel([self._answer] * 100)
        agent = Agent(model, self._home, self._clock, tools, pause=0.0, chance=lambda: 0.5)
        watching = asyncio.create_task(self._watch(journal, session))
        try:
            owned = await journal.take(session)
            rest = await run(agent, journal, owned, asyncio.Event())
            await owned.release()
        except Killed:
            self.deaths += 1
            assert journal.process._life is not None
            fcntl.flock(
                journal.process._life._fd, fcntl.LOCK_UN
            )  # as the kernel does for a process that dies
            return False
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if isinstance(rest, WaitUntil):
            self._clock.advance((rest.at - self._clock.wall()) / 1e6)
            return False
        return True

    async def _watch(self, journal: Journal, session: str) -> None:
        async with aclosing(journal.follow(session)) as events:
            async for event in events:
                self.shown.append(event)

    async def all(self, session: str) -> list[e.Event]:
        """One process after the other, until nothing is owed; then what the journal holds, without a fault."""
        for _ in range(200):
            rested = await self.live(session)
            if rested and (await self.open[0].head(session)).head.runnable_at is None:
                break
        else:
            raise AssertionError("it never comes to rest")
        events = await whole(self.open[0], session)
        assert await faults(self.open[0], session) == []
        assert list(offences(events)) == []
        self._compare(session, events)
        return events

    def _compare(self, session: str, events: list[e.Event]) -> None:
        stored = {event.seq: event for event in events}
        assert [shown for shown in self.shown if stored.get(shown.seq) != shown] == []
        started = {f"{session}:{x.seq}": x.fact for x in events if isinstance(x.fact, e.ToolStarted)}
        assert max(Counter(self.begun).values(), default=0) <= 1
        assert set(self.begun) <= set(started)
        once = Counter(fact.call_id for fact in started.values() if not fact.repeatable)
        assert max(once.values(), default=0) <= 1
        for request in self.requests:
            valid(request)

    async def close(self) -> None:
        for journal in self.open:
            if isinstance(journal.store, Fated):
                journal.store.dead = False
        await asyncio.gather(*(journal.close() for journal in self.open), return_exceptions=True)


def valid(request: Request) -> None:
    """What every provider asks of a conversation."""
    wishes: list[str] = []
    for before, message in zip([None, *request.messages], request.messages, strict=False):
        if isinstance(message, ToolSaid):
            assert message.call_id in wishes
            wishes.remove(message.call_id)
            continue
        assert not wishes, f"{wishes} have no result"
        assert message.parts
        assert type(before) is not type(message)
        if isinstance(message, ModelSaid):
            wishes = [part.call_id for part in message.parts if isinstance(part, e.ToolCall)]
            assert len(set(wishes)) == len(wishes)
    assert not wishes
    assert isinstance(request.messages[0], UserSaid)
    assert isinstance(request.messages[-1], UserSaid | ToolSaid)


def unanswered(events: Sequence[e.Event]) -> list[int]:
    """Messages owed an answer that no answered call took, or came after in the turn that did."""
    turn, taken, answered = 0, {}, set()
    calls: dict[int, int] = {}
    for event in events:
        match event.fact:
            case e.TurnStarted(takes=takes):
                turn = event.seq
                taken |= dict.fromkeys(takes, turn)
            case e.ModelCalled(takes=takes):
                taken |= dict.fromkeys(takes, turn)
                calls[event.seq] = turn
            case e.ModelReplied(call=call):
                answered.add(calls[call])
            case _:
                pass
    owed = [x.seq for x in events if isinstance(x.fact, e.MessageSent) and x.fact.role != "note"]
    return [seq for seq in owed if taken.get(seq) not in answered]
