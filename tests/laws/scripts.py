"""Lives of sessions, written down before they are lived: which append follows which, with seqs as they would be if
nothing ever went wrong. `renumbered` says a fact with the seqs that things came to stand at instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import get_annotations
from random import Random
from typing import Literal, TypeVar

from msgspec import Struct, structs

from perdure import events as e
from perdure.grammar import Standing
from perdure.journal import blob_of
from perdure.testing.lively import lawful

T = TypeVar("T", bound=Struct)


@dataclass(frozen=True)
class Step:
    """One append. `take` is another process, that takes the session over from the one before it."""

    how: Literal["create", "say", "own", "take", "release", "fork"]
    session: str
    facts: tuple[e.AnyFact, ...]
    key: str | None = None
    blobs: tuple[bytes, ...] = ()


def renumbered(value: T, places: Mapping[int, int]) -> T:
    """The same, but for every seq it names; those that `places` does not know stay."""
    changes: dict[str, object] = {}
    for name, hint in get_annotations(type(value)).items():
        found = getattr(value, name)
        if "Seq" in str(hint):
            many = isinstance(found, tuple)
            changes[name] = tuple(places.get(x, x) for x in found) if many else places.get(found, found)
        elif isinstance(found, Struct):
            changes[name] = renumbered(found, places)
        elif isinstance(found, tuple):
            changes[name] = tuple(renumbered(x, places) if isinstance(x, Struct) else x for x in found)
    return structs.replace(value, **changes)


def lively(seed: int, length: int) -> list[Step]:
    """The life of a random session that keeps every law, in appends of one to three facts."""
    chance, standing = Random(seed), Standing()
    steps: list[Step] = []
    events = lawful(seed, length, session="main")
    while events:
        some = events[: _together(events, chance)]
        steps.append(_step(some, bool(standing.process), chance))
        for event in some:
            standing = standing.after(event)
        events = events[len(some) :]
    return steps


def _together(events: list[e.Event], chance: Random) -> int:
    """How many of these share an append: a key stands at the front of one, and an owner comes or goes alone."""
    alone = (e.SessionCreated, e.ForkedFrom, e.OwnerChanged)
    if isinstance(events[0].fact, alone) or events[0].key is not None:
        return 1
    most = chance.choice((1, 1, 2, 3))
    fit = [event.key is None and not isinstance(event.fact, alone) for event in events[:most]]
    return fit.index(False) if False in fit else len(fit)


def _step(some: list[e.Event], owned: bool, chance: Random) -> Step:
    facts = tuple(event.fact for event in some)
    session, key = "main", some[0].key
    match facts[0]:
        case e.SessionCreated():
            return Step("create", session, facts, key)
        case e.OwnerChanged(process=process) if process or owned:
            return Step("take" if process else "release", session, facts)
    by_owner = any(fact.by == "owner" for fact in facts)
    if by_owner or (owned and key is None and chance.random() < 0.3):
        return Step("own", session, facts)
    return Step("say", session, facts, key)


def by_hand() -> Iterator[Step]:
    """What the agent's loop and its people append: a turn in pieces with tools and content, forks, and what follows."""
    output, picture = b"printed " * 700, bytes(range(256)) * 20
    said, asked = e.Text("see \ud83d"), (e.ToolCall("c1", "run", "{}"), e.ToolCall("c2", "run", "{}"))

    def own(*facts: e.AnyFact, session: str = "main", blobs: tuple[bytes, ...] = ()) -> Step:
        return Step("own", session, facts, None, blobs)

    def say(
        *facts: e.AnyFact, session: str = "main", key: str | None = None, blobs: tuple[bytes, ...] = ()
    ) -> Step:
        return Step("say", session, facts, key, blobs)

    taken = (e.OwnerChanged(0, "p"),)
    yield Step("create", "main", (e.SessionCreated("main", title="By hand"), e.MessageSent((said,))), "born")
    yield say(e.MessageSent((said, blob_of(picture))), key="seen", blobs=(picture,))  # 3
    yield Step("take", "main", taken)  # 4
    yield own(e.TurnStarted((2, 3)), e.PhaseChanged(5, "prepare"))  # 5, 6
    yield own(e.ModelCalled(5))  # 7
    yield own(e.ModelSpoke(7, 1, "Let "))
    yield own(e.ModelSpoke(7, 2, "me \udc80"))
    yield say(e.MessageSent((e.Text("wait"),), role="steer"))  # 10
    yield own(e.ModelReplied(7, (e.Text("Let me \udc80"), *asked), pieces=2))
    yield own(e.ApprovalAsked(5, "c1", "run", "?"))  # 12
    yield say(e.ApprovalAnswered(12, "once"), key="yes")
    yield own(e.ToolStarted(5, "c1", "run", "{}"))  # 14
    yield own(e.ToolSpoke(14, 1, "prin"), e.ToolSpoke(14, 2, "ted"))
    yield own(e.ToolFinished(5, "c1", "ok", (blob_of(output),), 14, pieces=2), blobs=(output,))  # 17
    yield own(e.ToolFinished(5, "c2", "denied"), e.TaskSet("go on"))
    yield say(e.SessionRenamed("Other"), e.SessionPinned())  # 20, 21
    yield own(e.ModelCalled(5, takes=(10,)))  # 22
    yield own(e.ModelLost(22, "overloaded", retry_at=5))
    yield Step("take", "main", taken)  # 24
    yield own(e.ModelCalled(5))  # 25
    yield own(e.ModelReplied(25, (e.Text("done"),)), e.TurnEnded(5, "completed"))  # 26, 27
    yield Step("release", "main", (e.OwnerChanged(0),))  # 28
    yield Step("fork", "fork", (e.ForkedFrom("fork", "main", 27, "Fork"),))  # 28
    yield say(e.MessageSent((e.Text("on"),)), session="fork", key="on")  # 29
    yield Step("take", "fork", taken)  # 30
    yield own(e.TurnStarted((29,)), e.TurnEnded(31, "failed"), session="fork")
    yield say(e.MessageSent((e.Text("on"),)), key="on")  # 29
    yield Step("take", "main", taken)  # 30
    yield own(e.TurnStarted((29,)))  # 31
    yield own(e.TurnEnded(31, "cancelled"))
    yield Step("fork", "leaf", (e.ForkedFrom("leaf", "fork", 29),))  # 30
    yield say(e.Rewound(10), session="leaf", key="back")
    yield say(e.RewindUndone(31), session="leaf")
