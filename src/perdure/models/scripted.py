"""A model that says what it was told to say: for tests, and for the tests of those who use Perdure.

    ScriptedModel(["Hello.", [Call("shell", {"command": "ls"})], Fail("overloaded"), "Done."])

Each item of the script is one answer: a text, a list of what it consists of, or a function from the request to one of
these. Texts are streamed word by word.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perdure.events import ReplyPart, Text, Thinking, ToolCall, Usage
from perdure.models import ModelFailed, Reason, Reply, Request, Said


@dataclass(frozen=True, slots=True)
class Think:
    """It thinks aloud."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """It wishes to have a tool run."""

    name: str
    arguments: Mapping[str, object] | str = field(default_factory=dict)
    """What the tool is run with; a string is sent as it is, JSON or not."""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """It is silent for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fail:
    """The call fails here."""

    reason: Reason
    error: str = "the script says so"
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class BreakOff:
    """The stream ends here without a finish reason."""


Item = str | Think | Call | Pause | Fail | BreakOff
Answer = str | Sequence[Item] | Callable[[Request], "str | Sequence[Item]"]


class ScriptedModel:
    """Plays a script, one item for each call; when it is over, it says so."""

    def __init__(self, script: Sequence[Answer] = (), *, name: str = "scripted", delay: float = 0.0) -> None:
        self.name = name
        self.provider = "scripted"
        self.requests: list[Request] = []
        """Every request it was sent."""
        self._script = iter(script)
        self._delay = delay

    async def stream(self, request: Request) -> AsyncIterator[Said | Reply]:
        self.requests.append(request)
        answer = next(self._script, "The script is over.")
        said: str | Sequence[Item] = answer(request) if callable(answer) else answer
        parts: list[ReplyPart] = []
        for item in [said] if isinstance(said, str) else said:
            match item:
                case str():
                    for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+", item):
                        await asyncio.sleep(self._delay)
                        yield Said(word)
                    parts.append(Text(item))
                case Think(text):
                    await asyncio.sleep(self._delay)
                    yield Said(text, "thinking")
                    parts.append(Thinking(text))
                case Call(name, arguments, id):
                    told = arguments if isinstance(arguments, str) else json.dumps(arguments)
                    parts.append(ToolCall(id or f"call-{len(self.requests)}-{len(parts)}", name, told))
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case Fail(reason, error, retry_after):
                    raise ModelFailed(reason, error, retry_after=retry_after)
                case BreakOff():
                    return
        words = sum(len(part.text) // 4 + 1 for part in parts if isinstance(part, Text))
        yield Reply(tuple(parts), Usage(output=words, estimated=True), "stop", "")
