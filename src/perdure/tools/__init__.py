"""What the agent may do. A tool stands beside the text that the model reads about it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from perdure.events import Part


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tool runs, and for which call: the name that its processes carry, `<session>:<seq>`."""

    call: str
    workspace: Path


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool prints while it runs."""

    text: str
    stream: Literal["stdout", "stderr"] = "stdout"


@dataclass(frozen=True, slots=True)
class Done:
    """How a tool ended."""

    ok: bool = True
    parts: tuple[Part, ...] | None = None
    """What the model is told; None: what the tool printed."""
    exit_code: int | None = None


class Tool(Protocol):
    """One thing the agent can do. `run` yields `Output` as it comes and `Done` once, last.

    A tool that is stopped is closed in the middle: it ends what it began in a `finally`. One that is `repeatable`
    changes nothing when it is run again, so after a crash it is.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> dict[str, object]: ...

    @property
    def repeatable(self) -> bool: ...

    def run(self, arguments: Mapping[str, object], place: Place) -> AsyncIterator[Output | Done]: ...
