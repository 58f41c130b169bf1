"""What is appended: an agent's turns, as lawful facts.

A turn is a user's message of 200 bytes, an assistant's reply of 400 bytes with a tool call, and a tool's result of
2 KB, with the four small facts that the grammar asks for between them. The agent commits it in six appends, as
`agent/run.py` would: whatever has to be durable before the next thing may begin is an append of its own.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from perdure import events as e

FACTS = 7
"""Facts in a turn."""
APPENDS = 6
"""Appends, that is commits, in a turn."""


class Step(NamedTuple):
    """What becomes durable in one commit."""

    facts: tuple[e.AnyFact, ...]
    by_owner: bool


def turn(before: int, number: int) -> list[Step]:
    """The appends of turn `number`, which begins after seq `before`."""
    asked, started, called, _, running, *_ = range(before + 1, before + 1 + FACTS)
    call_id = f"call_{number:08}"
    arguments = (
        '{"path": "' + text(number, 160).replace("\n", " ").replace('"', "'").replace("\\", "/") + '"}'
    )
    reply = (e.Text(text(number + 1, 200)), e.ToolCall(call_id, "read_file", arguments))
    result = e.ToolFinished(
        turn=started, call_id=call_id, outcome="ok", parts=(e.Text(text(number + 2, 2048)),), tool=running, micros=5120
    )  # fmt: skip
    return [
        Step((e.MessageSent(parts=(e.Text(text(number, 200)),)),), False),
        Step((e.TurnStarted(takes=(asked,)), e.ModelCalled(turn=started, model="model", provider="provider")), True),
        Step((e.ModelReplied(call=called, parts=reply, usage=e.Usage(1200, 90, 1000), finish="tool_calls"),), True),
        Step((e.ToolStarted(turn=started, call_id=call_id, name="read_file", arguments=arguments),), True),
        Step((result,), True),
        Step((e.TurnEnded(turn=started, outcome="completed"),), True),
    ]  # fmt: skip


def steps(before: int) -> Iterator[Step]:
    """Appends without end, for a session whose last seq is `before` and in which no turn is running."""
    number = 0
    while True:
        yield from turn(before, number)
        before += FACTS
        number += 1


def text(number: int, size: int) -> str:
    """`size` bytes of ordinary text, another one for each number."""
    library = _library()
    at = number * 7919 % (len(library) - size)
    return library[at : at + size]


def output(size: int) -> bytes:
    """What a coding agent's tools print most: source files, one after the other."""
    return _library()[:size].encode()


@cache
def _library() -> str:
    """The source of Python's own library, in ASCII so that characters are bytes."""
    folder = Path(sysconfig.get_path("stdlib"))
    files = sorted(folder.glob("*.py"))
    Random(7).shuffle(files)
    sources = (file.read_text("utf-8", "replace") for file in islice(files, 120))
    return "".join(sources).encode("ascii", "ignore").decode()
