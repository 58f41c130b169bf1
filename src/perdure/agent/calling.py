"""Calling the model: a request, what it says as it says it, and the one end of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from itertools import count, groupby

from msgspec import structs

from perdure import events as e
from perdure.agent.carry import Agent, Facts, Here, seq_of
from perdure.agent.decide import CallModel
from perdure.agent.pieces import gathered
from perdure.errors import PerdureError
from perdure.models import TRANSIENT, ModelFailed, Reply, Said


async def call_model(agent: Agent, here: Here, move: CallModel) -> Facts:
    model = agent.model
    news = yield (
        e.ModelCalled(
            here.turn, takes=move.takes, model=model.name, provider=model.provider, attempt=move.attempt
        ),
    )
    call, number = seq_of(news, e.ModelCalled), count(1)
    said: list[Said] = []
    if here.stop.asked.is_set():
        yield (lost(call, here.stop.why, said, 0),)
        return
    here.may_act()
    pieces = 0
    try:
        heard = model.stream(agent.request(here.messages()))
        async with aclosing(gathered(heard, here.stop.asked, agent.pause)) as batches:
            async for batch in batches:
                words = [one for one in batch if isinstance(one, Said)]
                said += words
                spoken = [e.ModelSpoke(call, next(number), text, channel) for channel, text in _runs(words)]
                pieces += len(spoken)
                if spoken:
                    yield tuple(spoken)
                if replies := [one for one in batch if isinstance(one, Reply)]:
                    yield (_replied(call, replies[-1], pieces),)
                    return
        if here.stop.asked.is_set():
            yield (lost(call, here.stop.why, said, pieces),)
            return
        raise ModelFailed("unfinished", "the stream ended before the answer did")
    except PerdureError as why:
        if not isinstance(why, ModelFailed):
            raise  # the journal's, not the model's
        failure = why
    except Exception as why:
        # A model that breaks in a way of its own is told of like any other: the session goes on being of use.
        failure = ModelFailed("internal", f"{type(why).__name__}: {why}")
    yield (_failed(agent, lost(call, failure.reason, said, pieces), failure, move.tries),)


def lost(call: e.Seq, reason: e.LostReason, said: Iterable[Said], pieces: int) -> e.ModelLost:
    """The end of a call that came to nothing, with all that had been heard of it."""
    parts = [
        e.Text(text) if channel == "text" else e.Thinking(text)
        for channel, text in _runs(said)
        if channel != "call"
    ]
    return e.ModelLost(call, reason, tuple(parts), pieces=pieces)


def _failed(agent: Agent, fact: e.ModelLost, why: ModelFailed, tries: int) -> e.ModelLost:
    again = None
    if why.reason in TRANSIENT:
        now = agent.clock.wall()
        again = agent.retrying.again_at(now, tries + 1, agent.chance(), why.retry_after)
    return structs.replace(
        fact, status=why.status, error=why.error, retry_at=again, usage=why.usage, response_id=why.response_id
    )


def _replied(call: e.Seq, reply: Reply, pieces: int) -> e.ModelReplied:
    return e.ModelReplied(
        call, _named(call, reply.parts), reply.usage, reply.finish, reply.response_id, pieces
    )


def _named(call: e.Seq, parts: Sequence[e.ReplyPart]) -> tuple[e.ReplyPart, ...]:
    """Every wish with a name of its own: some models give none, or the same one twice."""
    used: set[str] = set()
    named: list[e.ReplyPart] = []
    for place, part in enumerate(parts):
        if isinstance(part, e.ToolCall):
            if not part.call_id or part.call_id in used:
                part = structs.replace(part, call_id=f"call-{call}-{place}")
            used.add(part.call_id)
        named.append(part)
    return tuple(named)


def _runs(words: Iterable[Said]) -> Iterable[tuple[e.Channel, str]]:
    """What was said one after the other in the same channel, in one."""
    for channel, run in groupby(words, lambda one: one.channel):
        yield channel, "".join(one.text for one in run)
