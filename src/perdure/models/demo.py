"""A stand-in that needs no key and no network, for looking around: it streams, and uses the tools it is offered.

It goes the way of every other model. It understands a handful of requests, and says of itself what it is.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Callable

from perdure import events as e
from perdure.models import Reply, Request, Said
from perdure.views.context import TAG, ToolSaid, UserSaid

LABEL = "[demo, not a model]"
HELP = (
    f"{LABEL} I am a stand-in and think nothing. I can `list`, `read FILE`, `write FILE: TEXT`, `edit FILE: OLD -> NEW`, "
    "`run COMMAND`, `search TEXT`, and tell `a long story`. For a real model set a key, for example ANTHROPIC_API_KEY."
)
NO_TOOL = f"{LABEL} For this I would need the shell, and I was not offered it."
COMMANDS: list[tuple[str, Callable[..., str]]] = [
    (r"list(?: (?:the )?files)?\W*$", lambda: "ls -la"),
    (r"read (\S+)\W*$", lambda file: f"cat -- {shlex.quote(file)}"),
    (r"write (\S+?): (.*)", lambda file, text: f"printf '%s\\n' {shlex.quote(text)} > {shlex.quote(file)}"),
    (
        r"edit (\S+?): (.*) -> (.*)",
        lambda file, old, new: (
            f"python3 -c 'import sys,pathlib; f=pathlib.Path(sys.argv[1]); t=f.read_text(); assert sys.argv[2] in t; "
            f"f.write_text(t.replace(sys.argv[2], sys.argv[3], 1))' {shlex.quote(file)} {shlex.quote(old)} {shlex.quote(new)}"
        ),
    ),
    (r"run (.+)", lambda command: command),
    (r"search (.+)", lambda text: f"grep -rnI --exclude-dir=.git -- {shlex.quote(text)} ."),
]


class DemoModel:
    """The stand-in."""

    name = "demo"
    provider = "demo"

    def __init__(self, delay: float = 0.01) -> None:
        self._delay = delay

    async def stream(self, request: Request) -> AsyncIterator[Said | Reply]:
        said, call = _answer(request)
        for word in re.findall(r"\S+\s*|\s+", said):
            await asyncio.sleep(self._delay)
            yield Said(word)
        wishes = (call,) if call else ()
        yield Reply((e.Text(said), *wishes), e.Usage(output=len(said.split()), estimated=True), "stop")


def _answer(request: Request) -> tuple[str, e.ToolCall | None]:
    last = request.messages[-1]
    if isinstance(last, ToolSaid):
        printed = "".join(part.text for part in last.parts if isinstance(part, e.Text))
        shown = re.sub(f"</?{TAG}>", "", printed).strip()
        outcome = "That went wrong" if last.failed else "Done"
        return (
            f"{LABEL} {outcome}. {'It printed:' if shown else 'It printed nothing.'}\n\n{shown}".rstrip(),
            None,
        )
    asked = _asked(request)
    if "story" in asked.lower():
        return f"{LABEL} {_story()}", None
    for pattern, command in COMMANDS:
        if match := re.match(pattern, asked, re.IGNORECASE | re.DOTALL):
            if not any(tool.name == "shell" for tool in request.tools):
                return NO_TOOL, None
            arguments = json.dumps({"command": command(*match.groups())})
            return f"{LABEL} Let me do that.", e.ToolCall(f"demo-{len(request.messages)}", "shell", arguments)
    return HELP, None


def _asked(request: Request) -> str:
    """What a person said last: the notes of the runtime are for those who think."""
    said = [
        part.text.strip()
        for m in request.messages
        if isinstance(m, UserSaid)
        for part in m.parts
        if isinstance(part, e.Text)
    ]
    return next((text for text in reversed(said) if text and not text.startswith(f"<{TAG}>")), "")


def _story() -> str:
    begin = "Once upon a time there was a journal that forgot nothing. "
    days = " ".join(
        f"On day {day} somebody pulled the plug, and on day {day + 1} it went on from the very word."
        for day in range(1, 40, 2)
    )
    return begin + days + " And if nobody has deleted it, it is still there today."
