"""Whoever runs turns: finds what is owed, wherever it was said, and leaves nothing behind.

`PERDURE_ROUNDS=full` counts what is left after 1,000 turns that ended in every way.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from random import Random

import psutil
import pytest

from perdure import events as e
from perdure import journal
from perdure.models.scripted import Answer, BreakOff, Call, Fail, Pause, ScriptedModel
from perdure.policy.retrying import Retrying
from perdure.testing.journals import whole
from perdure.tools.shell import Shell
from perdure.worker import Started, start
from tests.kill.lives import FULL, SEED, message

pytestmark = pytest.mark.anyio

TURNS = 1000 if FULL else 50


async def started(folder: Path, *script: Answer, delay: float = 0.0) -> Started:
    model = ScriptedModel([*script, *["Done."] * 2000], delay=delay)
    return await start(
        f"sqlite:///{folder}/perdure.db", model=model, tools=[Shell()], workspace=folder,
        retrying=Retrying(attempts=2, base=0.0), deadline=0.0,
    )  # fmt: skip


async def outcomes(agent: Started, session: str) -> list[str]:
    events = await whole(agent.journal, session)
    return [event.fact.outcome for event in events if isinstance(event.fact, e.TurnEnded)]


async def test_what_another_process_sent_is_answered_without_a_wake(tmp_path: Path) -> None:
    async with (
        await started(tmp_path) as agent,
        await journal.open(f"sqlite:///{tmp_path}/perdure.db") as other,
    ):
        session = await other.create(e.SessionCreated(""), message("hello"))
        async with asyncio.timeout(10):
            async for event in other.follow(session):
                if isinstance(event.fact, e.TurnEnded):
                    break
        assert await outcomes(agent, session) == ["completed"]


async def test_sessions_are_run_beside_each_other(tmp_path: Path) -> None:
    together = asyncio.Barrier(5)

    class Meeting(ScriptedModel):
        async def stream(self, request):  # type: ignore[no-untyped-def]
            await together.wait()  # nobody answers before all have been asked
            async for said in super().stream(request):
                yield said

    async with await start(
        f"sqlite:///{tmp_path}/perdure.db", model=Meeting(["Yes."] * 5), workspace=tmp_path
    ) as agent:
        sessions = [await agent.create() for _ in range(5)]
        async with asyncio.timeout(20):
            for session in sessions:
                await agent.send(session, "hello")
            for session in sessions:
                await agent.settled(session)
        assert [await outcomes(agent, session) for session in sessions] == [["completed"]] * 5


@pytest.mark.parametrize(
    ("script", "until"),
    [
        ([[Pause(1000)]], e.ModelCalled),
        ([["some words", Pause(1000)]], e.ModelSpoke),
        ([[Call("shell", {"command": "echo one; sleep 1000"})]], e.ToolSpoke),
        ([[Fail("overloaded", retry_after=1000.0)]], e.ModelLost),
    ],
    ids=["before the first word", "in the middle", "while a tool runs", "while it waits to try again"],
)
async def test_a_cancel_from_another_process_ends_the_turn(
    tmp_path: Path, script: list[Answer], until: type[e.Fact]
) -> None:
    async with (
        await started(tmp_path, *script) as agent,
        await journal.open(f"sqlite:///{tmp_path}/perdure.db") as other,
    ):
        session = await agent.create()
        await agent.send(session, "hello")
        async for event in agent.follow(session):
            if isinstance(event.fact, until):
                break
        turn = (await other.head(session)).head.standing.turn
        await other.append(session, e.CancelAsked(turn))
        async with asyncio.timeout(10):
            await agent.settled(session)
        await agent.send(session, "and now?")
        await agent.settled(session)
        assert await outcomes(agent, session) == ["cancelled", "completed"]


async def test_an_interrupt_stops_the_turn_and_is_answered_next(tmp_path: Path) -> None:
    async with await started(tmp_path, ["some words", Pause(1000)], "Better.") as agent:
        session = await agent.create()
        await agent.send(session, "hello")
        async for event in agent.follow(session):
            if isinstance(event.fact, e.ModelSpoke):
                break
        urgent = await agent.send(session, "rather this", how="interrupt")
        async with asyncio.timeout(10):
            await agent.settled(session)
        events = await whole(agent.journal, session)
    assert [x.fact.takes for x in events if isinstance(x.fact, e.TurnStarted)] == [(2,), (urgent,)]
    assert [x.fact.outcome for x in events if isinstance(x.fact, e.TurnEnded)] == ["cancelled", "completed"]


async def test_messages_stored_for_later_are_answered_when_somebody_asks(tmp_path: Path) -> None:
    async with await started(tmp_path) as agent:
        session = await agent.create()
        await agent.send(session, "not yet", run=False)
        await agent.settled(session)
        assert await outcomes(agent, session) == []
        await agent.go_on(session)
        await agent.settled(session)
        assert await outcomes(agent, session) == ["completed"]


async def test_two_processes_send_at_the_same_moment_and_both_are_answered_in_one_order(
    tmp_path: Path,
) -> None:
    async with (
        await started(tmp_path) as agent,
        await journal.open(f"sqlite:///{tmp_path}/perdure.db") as other,
    ):
        session = await agent.create()
        for number in range(200 if FULL else 10):
            await asyncio.gather(
                agent.send(session, f"here {number}"), other.append(session, message(f"there {number}"))
            )
        await agent.settled(session)
        events = await whole(agent.journal, session)
        sent = [x.seq for x in events if isinstance(x.fact, e.MessageSent)]
        assert [seq for x in events if isinstance(x.fact, e.TurnStarted) for seq in x.fact.takes] == sent
        assert set(await outcomes(agent, session)) == {"completed"}
        model = agent.worker._agent_for(session).model
        assert isinstance(model, ScriptedModel)
        last = str(model.requests[-1].messages)
        places = [last.index(f"{who} {n}'") for n in range(10) for who in ("here", "there")]
        assert len(set(places)) == 20


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    print(f"PERDURE_SEED={SEED}")
    chance = Random(SEED)
    ways: list[Answer] = [
        "Done.", [Fail("bad_request")], [Fail("overloaded")], ["half", BreakOff()],
        [Call("shell", {"command": "echo one; sleep 1000 & true"})], [Call("nothing")], ["words ", Pause(1000)],
        [Call("shell", {"command": "sleep 1000"})],
    ]  # fmt: skip
    script = [chance.choice(ways) for _ in range(4 * TURNS)]
    async with await started(tmp_path, *script) as agent:
        session = await agent.create()
        ended: Counter[str] = Counter()
        counted = []
        for number in range(TURNS):
            if number in (TURNS // 5, TURNS - 1):
                counted.append(await _counted(agent, session))
            await agent.send(session, "go on")
            while (await agent.journal.head(session)).head.runnable_at is not None:
                try:
                    async with asyncio.timeout(0.15):
                        await agent.settled(session)
                except TimeoutError:
                    await agent.cancel(session)
        ended.update(await outcomes(agent, session))
    assert set(ended) == {"completed", "failed", "cancelled"}
    assert counted[0] == counted[1]
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("perdure")]


async def _counted(agent: Started, session: str) -> dict[str, int]:
    while (await agent.journal.head(session)).head.owner or agent.worker._running:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    me = psutil.Process()
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": len([t for t in threading.enumerate() if not t.name.startswith(("asyncio_", "waitpid"))]),
        "descriptors": me.num_fds(),
        "children": len(me.children(recursive=True)),
    }
