"""Carrying out a move, yielding facts as they become true.

`yield` is the commit point: `run` makes the facts durable before it asks for the next ones, and sends back what is new
in the journal. So what is yielded before an effect is on disk before the effect begins, and whatever anybody is shown
was stored first.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import random

from perdure import events as e
from perdure.agent.decide import OnCrash
from perdure.agent.pieces import PAUSE
from perdure.agent.stopping import Stop
from perdure.journal.clock import Clock
from perdure.models import Model, Request, ToolText
from perdure.policy.retrying import Retrying
from perdure.tools import Tool
from perdure.views.context import Message

Facts = AsyncGenerator[tuple[e.AnyFact, ...], Sequence[e.Event]]
"""Yields what is to become durable together; receives everything that is new in the journal since."""


@dataclass(frozen=True, slots=True)
class Agent:
    """Who answers, and how."""

    model: Model
    workspace: Path
    clock: Clock
    tools: Mapping[str, Tool] = field(default_factory=dict)
    system: str = ""
    retrying: Retrying = field(default_factory=Retrying)
    on_crash: OnCrash = "continue"
    chance: Callable[[], float] = random
    pause: float = PAUSE
    """How long a piece stays open, in seconds."""

    def request(self, messages: Sequence[Message]) -> Request:
        tools = [ToolText(tool.name, tool.description, tool.parameters) for tool in self.tools.values()]
        return Request(messages, self.system, tools)


@dataclass(frozen=True, slots=True)
class Here:
    """What a move needs to know of where it is carried out."""

    session: str
    turn: e.Seq
    stop: Stop
    messages: Callable[[], Sequence[Message]]
    """What the model is to be shown, as of now."""
    may_act: Callable[[], None]
    """Raises `NotOwner` where the lease has run out. Asked immediately before an effect."""


def seq_of(news: Sequence[e.Event], kind: type[e.Fact]) -> e.Seq:
    """Where the fact of this kind that was just yielded has come to stand."""
    return next(event.seq for event in reversed(news) if isinstance(event.fact, kind))
