"""Turns end exactly one way, whatever is killed: the agent dies around every append, and is spoken to before each.

`PERDURE_ROUNDS=full` does so on every store and kills at pairs of appends, and hundreds of times by chance.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from perdure import events as e
from perdure.testing.clock import ManualClock
from tests.kill.lives import FULL, SEED
from tests.laws.stores import MATERIALS, connections
from tests.laws.turns import Lives, Plan, unanswered

pytestmark = pytest.mark.anyio

Begin = Callable[[str, Plan], Lives]
WORK = e.MessageSent((e.Text("some work, please"),))
MORE = e.MessageSent((e.Text("안녕, more work 👩‍👩‍👧"),))
STEER = e.MessageSent((e.Text("rather like this"),), role="steer")
NOTE = e.MessageSent((e.Text("by the way"),), role="note")


@pytest.fixture
async def begin(tmp_path: Path) -> AsyncIterator[Begin]:
    lives: list[Lives] = []

    def begin(material: str, plan: Plan) -> Lives:
        clock, home = ManualClock(), tmp_path / str(len(lives))
        home.mkdir()
        lives.append(Lives(connections(material, home, clock), clock, home, plan))
        return lives[-1]

    yield begin
    for life in lives:
        await life.close()


async def lived(begin: Begin, material: str, plan: Plan) -> list[e.Event]:
    lives = begin(material, plan)
    events = await lives.all(await lives.begin(WORK, MORE))
    assert lives.deaths == sum(at <= plan.count for at in plan.kills)
    await lives.close()
    return events


def some(points: Sequence[int]) -> list[int]:
    """All of them at full size; otherwise a third, another one each time."""
    return list(points) if FULL else sorted(Random(SEED).sample(points, len(points) // 3))


def outcomes(events: list[e.Event]) -> list[str]:
    return [event.fact.outcome for event in events if isinstance(event.fact, e.TurnEnded)]


@pytest.mark.parametrize("material", MATERIALS)
async def test_killed_around_every_append_every_message_is_answered_once(begin: Begin, material: str) -> None:
    plan = Plan()
    whole = await lived(begin, material, plan)
    assert outcomes(whole) == ["completed"] * 2
    assert unanswered(whole) == []
    points = [(at, moment) for at in range(1, plan.count + 1) for moment in ("before", "after")]
    if not FULL:
        points = Random(SEED).sample(points, 30 if material == "memory" else 6)
    for at, moment in points:
        print(f"killed {moment} commit {at}")
        events = await lived(begin, material, Plan({at: moment}))
        assert outcomes(events) == ["completed"] * 2
        assert unanswered(events) == []


@pytest.mark.parametrize(
    "said", [(MORE,), (STEER,), (NOTE, STEER)], ids=["prompt", "steer", "note and steer"]
)
async def test_whoever_speaks_before_any_append_is_answered(
    begin: Begin, said: tuple[e.AnyFact, ...]
) -> None:
    plan = Plan()
    await lived(begin, "memory", plan)
    for at in some(range(1, plan.count + 1)):
        events = await lived(begin, "memory", Plan({}, {at: said}))
        assert set(outcomes(events)) == {"completed"}
        assert unanswered(events) == []
        killed = await lived(begin, "memory", Plan({at: "after"}, {at: said}))
        assert set(outcomes(killed)) == {"completed"}
        assert unanswered(killed) == []


async def test_cancelled_before_any_append_a_turn_ends_and_the_next_message_is_answered(begin: Begin) -> None:
    plan = Plan()
    await lived(begin, "memory", plan)

    def cancel(turn: e.Seq) -> tuple[e.AnyFact, ...]:
        return (e.CancelAsked(turn), MORE) if turn else ()

    cancelled = 0
    for at in some(range(1, plan.count + 1)):
        for kills in ({}, {at: "before"}, {at: "after"}):
            events = await lived(begin, "memory", Plan(kills, {at: cancel}))
            heard = _heard(events)
            cancelled += heard
            assert outcomes(events).count("cancelled") == heard
            assert outcomes(events)[-1] == "completed"
            assert _nothing_begun_after_a_cancel(events)
    assert cancelled


def _heard(events: list[e.Event]) -> bool:
    """Whether somebody cancelled before the end of the turn was on its way."""
    facts = [event.fact for event in events]
    at = next((n for n, fact in enumerate(facts) if isinstance(fact, e.CancelAsked)), None)
    return at is not None and not isinstance(facts[at + 2], e.TurnEnded)  # the message stands between them


def _nothing_begun_after_a_cancel(events: list[e.Event]) -> bool:
    """A call that was on its way when the cancel came is on record, and nobody ever spoke in it."""
    asked = next((event.seq for event in events if isinstance(event.fact, e.CancelAsked)), 0)
    ended = next(
        (event.seq for event in events if isinstance(event.fact, e.TurnEnded) and event.seq > asked), 0
    )
    spoken = [x.fact.call if isinstance(x.fact, e.ModelSpoke) else x.fact.tool
              for x in events if isinstance(x.fact, e.ModelSpoke | e.ToolSpoke)]  # fmt: skip
    return not asked or not any(asked < of < ended for of in spoken)


@pytest.mark.parametrize("material", MATERIALS)
async def test_killed_now_and_then_and_spoken_to(begin: Begin, material: str) -> None:
    for number in range({"memory": 300, "sqlite": 100, "postgres": 50}[material] if FULL else 3):
        print(f"PERDURE_SEED={SEED}, life {number}")
        chance = Random(f"{SEED} {material} {number}")
        kills = {
            chance.randrange(1, 60): chance.choice(("before", "after")) for _ in range(chance.randrange(8))
        }
        says = {chance.randrange(1, 40): (chance.choice((WORK, MORE, STEER, NOTE)),) for _ in range(4)}
        events = await lived(begin, material, Plan(kills, says))
        assert set(outcomes(events)) == {"completed"}
        assert unanswered(events) == []
