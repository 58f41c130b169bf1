"""What the network does to a turn: what was shown is kept, what may pass is tried again, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure import events as e
from perdure.policy.retrying import SECOND, Retrying
from perdure.testing.journals import faults, whole
from perdure.worker import Started, start
from tests.fakes.provider import KEY, SPEAKING, FakeProvider, Speech, listening, model_at
from tests.laws.turns import unanswered

pytestmark = pytest.mark.anyio

LONG = "Once upon a time there was a very long sentence. " * 3
WHOLE = Speech("And here is all of it.")


def in_turn(*speeches: Speech) -> Callable[[dict[str, Any]], Speech]:
    left = list(speeches)
    return lambda _: left.pop(0) if left else WHOLE


async def started(provider: str, fake: FakeProvider, folder: Path, attempts: int = 5) -> Started:
    return await start(
        f"sqlite:///{folder}/perdure.db", model=model_at(provider, fake), workspace=folder,
        retrying=Retrying(attempts, base=0.01), deadline=0.0,
    )  # fmt: skip


async def told(agent: Started, session: str, *messages: str) -> list[e.Event]:
    for message in messages:
        await agent.send(session, message)
        await agent.settled(session)
    while (await agent.journal.head(session)).head.owner:  # noqa: ASYNC110  (it has still to let go)
        await asyncio.sleep(0.001)
    assert await faults(agent.journal, session) == []
    return await whole(agent.journal, session)


def of(events: Sequence[e.Event], kind: type[Any]) -> list[Any]:
    return [event.fact for event in events if isinstance(event.fact, kind)]


def words(parts: Sequence[Any]) -> str:
    return "".join(part.text for part in parts if isinstance(part, e.Text))


PASSING: dict[str, tuple[Speech, str]] = {
    **{
        f"dropped after {n} events": (Speech(LONG, end="drop", after=n), "connection") for n in (1, 5, 12, 25)
    },
    "a clean end without a finish": (Speech(LONG, end="no finish"), "unfinished"),
    "a clean end after a few words": (Speech(LONG, end="no finish", after=9), "unfinished"),
    "an error in the stream": (Speech(LONG, end="error", after=9), "overloaded"),
    "429": (Speech(status=429, headers=(("retry-after", "1"),), error="rate_limit_error"), "rate_limited"),
    "500": (Speech(status=500), "server"),
    "503": (Speech(status=503), "overloaded"),
    "408": (Speech(status=408), "timeout"),
}


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("provider", SPEAKING)
async def test_what_may_pass_is_tried_again_and_what_was_shown_is_kept(
    tmp_path: Path, provider: str, fault: str
) -> None:
    speech, reason = PASSING[fault]
    async with listening(in_turn(speech)) as fake, await started(provider, fake, tmp_path) as agent:
        session = await agent.create()
        events = await told(agent, session, "Tell me.")
    assert fake.refused == []
    [lost] = of(events, e.ModelLost)
    [replied] = of(events, e.ModelReplied)
    shown = "".join(fact.text for fact in of(events, e.ModelSpoke) if fact.call == lost.call)
    assert lost.reason == reason
    assert lost.error
    assert LONG.startswith(words(lost.parts))
    assert words(lost.parts) == shown
    assert words(replied.parts) == WHOLE.text
    assert [fact.attempt for fact in of(events, e.ModelCalled)] == [1, 2]
    assert [fact.outcome for fact in of(events, e.TurnEnded)] == ["completed"]
    assert unanswered(events) == []
    if fault == "429":
        began = next(x.ts for x in events if isinstance(x.fact, e.ModelLost))
        again = [x.ts for x in events if isinstance(x.fact, e.ModelCalled)][-1]
        assert again - began >= SECOND
    if shown:
        assert shown.strip() in str(fake.requests[1]), "what was shown is in the next request"
        assert "cut off" in str(fake.requests[1])


LASTING: dict[str, tuple[Speech, str]] = {
    "a bad request": (Speech(status=400, error="invalid_request_error", text="s3cret detail"), "bad_request"),
    "a bad key": (Speech(status=401, error="authentication_error", text="s3cret detail"), "unauthorized"),
    "no money": (Speech(status=402, error="billing_error", text="s3cret detail"), "quota"),
}


@pytest.mark.parametrize("fault", LASTING)
@pytest.mark.parametrize("provider", SPEAKING)
async def test_what_does_not_pass_ends_the_turn_with_its_cause_and_the_session_goes_on(
    tmp_path: Path, provider: str, fault: str
) -> None:
    speech, reason = LASTING[fault]
    async with listening(in_turn(speech)) as fake, await started(provider, fake, tmp_path) as agent:
        session = await agent.create()
        events = await told(agent, session, "Tell me.", "And now?")
    ended = of(events, e.TurnEnded)
    assert [(fact.outcome, fact.code) for fact in ended] == [("failed", reason), ("completed", "")]
    assert "s3cret detail" in ended[0].cause
    assert len(fake.requests) == 2
    assert fake.refused == []
    assert "s3cret" not in str(fake.requests[1]), "what went wrong is not the model's business"
    assert KEY not in str(events)


async def test_what_fails_again_and_again_ends_the_turn(tmp_path: Path) -> None:
    async with (
        listening(in_turn(*[Speech(status=500)] * 3)) as fake,
        await started("openai", fake, tmp_path, attempts=3) as agent,
    ):
        session = await agent.create()
        events = await told(agent, session, "Tell me.", "And now?")
    assert len(fake.requests) == 4
    assert [fact.outcome for fact in of(events, e.TurnEnded)] == ["failed", "completed"]
    assert [fact.retry_at is None for fact in of(events, e.ModelLost)] == [False, False, True]


@pytest.mark.parametrize("provider", SPEAKING)
async def test_a_turn_whose_model_stalls_is_cancelled_and_what_was_shown_is_kept(
    tmp_path: Path, provider: str
) -> None:
    stalling = Speech(LONG, end="stall", after=9)
    async with listening(in_turn(stalling)) as fake, await started(provider, fake, tmp_path) as agent:
        session = await agent.create()
        await agent.send(session, "Tell me.")
        async for event in agent.follow(session):
            if isinstance(event.fact, e.ModelSpoke):
                break
        assert await agent.cancel(session, "enough")
        await agent.settled(session)
        events = await told(agent, session, "And now?")
    [lost] = of(events, e.ModelLost)
    assert lost.reason == "cancelled"
    assert words(lost.parts)
    assert LONG.startswith(words(lost.parts))
    assert [fact.outcome for fact in of(events, e.TurnEnded)] == ["cancelled", "completed"]
    assert fake.refused == []
    assert words(lost.parts).strip() in str(fake.requests[-1])
