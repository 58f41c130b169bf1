"""One run of a session: it reads where the session stands, and nothing it has read is told to it again."""

import asyncio
from pathlib import Path

import pytest

from perdure import events as e
from perdure import journal
from perdure.agent.carry import Agent
from perdure.agent.run import Life, run
from perdure.errors import NotOwner
from perdure.journal import Journal
from perdure.models.scripted import ScriptedModel
from perdure.testing.clock import ManualClock

pytestmark = pytest.mark.anyio

HELLO = e.MessageSent((e.Text("Hello."),))


def agent_of(running: Journal, folder: Path, *script: str) -> Agent:
    return Agent(ScriptedModel(script), folder, running.clock, pause=0.0)


async def test_what_was_said_between_the_taking_and_the_reading_is_heard_once(tmp_path: Path) -> None:
    async with await journal.open("memory:") as running:
        session = await running.create()
        owned = await running.take(session)
        await running.append(session, HELLO)
        life = Life(agent_of(running, tmp_path), running, owned, asyncio.Event())
        await life.read()
        assert [p.seq for p in life.turn.standing.pending] == [3]
        news = await owned.append(e.TurnStarted((3,)))
        assert [event.seq for event in news] == [4]


async def test_an_owner_whose_lease_has_run_out_begins_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await journal.open("memory:", clock=clock, lease=1e6) as running:
        session = await running.create(e.SessionCreated(""), HELLO)
        owned = await running.take(session)
        agent = agent_of(running, tmp_path, "Never said.")
        clock.advance(2e6)
        with pytest.raises(NotOwner):
            await run(agent, running, owned, asyncio.Event())
        assert isinstance(agent.model, ScriptedModel)
        assert agent.model.requests == []


async def test_a_turn_whose_set_up_breaks_ends_as_failed_with_its_cause_and_the_next_one_works(
    tmp_path: Path,
) -> None:
    class Broken(Agent):
        __slots__ = ()

        def request(self, messages: object) -> object:  # type: ignore[override]
            raise OSError("the project's file cannot be read")

    async with await journal.open("memory:") as running:
        session = await running.create(e.SessionCreated(""), HELLO)
        owned = await running.take(session)
        broken = Broken(ScriptedModel(), tmp_path, running.clock, pause=0.0)
        await run(broken, running, owned, asyncio.Event())
        await running.append(session, HELLO)
        await run(agent_of(running, tmp_path, "Here I am."), running, owned, asyncio.Event())
        ended = [x.fact async for x in running.events(session) if isinstance(x.fact, e.TurnEnded)]
    assert [fact.outcome for fact in ended] == ["failed", "completed"]
    assert "the project's file cannot be read" in ended[0].cause


async def test_told_to_leave_it_ends_what_runs_as_interrupted_and_begins_nothing_more(tmp_path: Path) -> None:
    async with await journal.open("memory:") as running:
        session = await running.create(e.SessionCreated(""), HELLO, HELLO)
        owned = await running.take(session)
        leave = asyncio.Event()
        model = ScriptedModel(["one two three four five"], delay=0.05)
        task = asyncio.create_task(
            run(Agent(model, tmp_path, running.clock, pause=0.0), running, owned, leave)
        )
        async for event in running.follow(session):
            if isinstance(event.fact, e.ModelSpoke):
                break
        leave.set()
        await asyncio.wait_for(task, 10)
        head = (await running.head(session)).head
        facts = [event.fact async for event in running.events(session)]
    assert [(f.outcome, f.code) for f in facts if isinstance(f, e.TurnEnded)] == [("interrupted", "shutdown")]
    assert [p.seq for p in head.standing.pending] == [3]
    [lost] = [f for f in facts if isinstance(f, e.ModelLost)]
    assert lost.reason == "interrupted"
    assert lost.parts
