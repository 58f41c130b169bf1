"""Who the agent thinks with.

A `Model` streams what it says and ends with a `Reply`; or it raises `ModelFailed`, which says what went wrong in a word
that the loop can act on. A model keeps nothing between two calls and never tries again by itself: each attempt is a
fact in the journal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from perdure.errors import PerdureError
from perdure.events import Channel, ReplyPart, Usage
from perdure.views.context import Message

Reason = Literal[
    "connection", "timeout", "overloaded", "rate_limited", "server", "refused", "bad_request", "unauthorized", "quota",
    "context_full", "unfinished", "internal",
]  # fmt: skip

TRANSIENT: frozenset[str] = frozenset(
    ("connection", "timeout", "overloaded", "rate_limited", "server", "unfinished")
)
"""What may pass by itself. Everything else is the same the next time."""


@dataclass(frozen=True, slots=True)
class ToolText:
    """A tool as a model is told of it."""

    name: str
    description: str
    parameters: dict[str, object]
    """A JSON schema of its arguments."""


@dataclass(frozen=True, slots=True)
class Request:
    """All that a model is shown in one call."""

    messages: Sequence[Message]
    system: str = ""
    tools: Sequence[ToolText] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """Words as they arrive."""

    text: str
    channel: Channel = "text"


@dataclass(frozen=True, slots=True)
class Reply:
    """The end of an answer, and all of it."""

    parts: Sequence[ReplyPart] = ()
    usage: Usage = field(default_factory=Usage)
    finish: str = "stop"
    response_id: str = ""


class ModelFailed(PerdureError):
    """A call came to no answer. `reason` says whether trying again can help."""

    def __init__(
        self,
        reason: Reason,
        error: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        usage: Usage | None = None,
        response_id: str = "",
    ) -> None:
        super().__init__(error)
        self.reason: Reason = reason
        self.error = error
        self.status = status
        self.retry_after = retry_after
        """In how many seconds the provider wants to be asked again, if it said so."""
        self.usage = usage or Usage()
        self.response_id = response_id


class Model(Protocol):
    """Somebody who answers. `stream` yields `Said` as words arrive and `Reply` once, last."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[Said | Reply]: ...
