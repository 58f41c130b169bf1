"""`kill -9` of a process that runs turns, at any moment: what a viewer was shown is stored, and the next one goes on.

The model is a server on a real socket that refuses what real providers refuse. `PERDURE_ROUNDS=full` kills 500 times;
`PERDURE_SEED` repeats a run as far as chance in other hands allows.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perdure import events as e
from perdure import journal
from perdure.testing.journals import faults, whole
from perdure.tools.leftover import find
from tests.fakes.provider import SPEAKING, FakeProvider, Speech, listening
from tests.kill.lives import FULL, SEED, digest, message
from tests.kill.template import Child, Template
from tests.laws.turns import unanswered
from tests.postgres import fresh_database

pytestmark = pytest.mark.anyio

PLACES = {"openai": "sqlite", "anthropic": "sqlite", "openai-responses": "postgres"}
ROUNDS = 168 if FULL else 8
PER_SESSION = 8
MOMENTS = (
    "",
    "",
    "ModelCalled",
    "ModelSpoke",
    "ModelSpoke",
    "ModelReplied",
    "ToolStarted",
    "ToolSpoke",
    "ToolFinished",
)
"""A process is killed when a viewer is first shown this; or at any moment."""
STORY = "옛날 옛적에, once upon a time, היה היה פעם: " + " ".join(f"word{n}" for n in range(60))
EFFECT = "echo begun $PERDURE_CALL >> effects; sleep 0.03; echo one; sleep 0.03; echo two; setsid sleep 1000 & sleep 0.03"


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with Template("tests.kill.agents") as template:
        yield template


def script(chance: Random) -> Any:
    """It works once for each question, and then tells a story."""
    count = iter(range(1_000_000))

    def answer(body: dict[str, Any]) -> Speech:
        pause = chance.choice((0.0, 0.002, 0.004))
        n = next(count)  # no two answers begin alike
        last = json.dumps((body.get("messages") or body["input"])[-2:])
        if "begun" not in last and "unknown" not in last and "two" not in last:
            call = (f"call_{n}", "shell", json.dumps({"command": EFFECT}))
            return Speech(f"{n} looks. I shall have a look. " * 5, "Let me think. " * 5, (call,), pause)
        return Speech(f"{n} tells. {STORY}", "Well, well. " * 3, pause=pause)

    return answer


@pytest.mark.parametrize("provider", PLACES)
async def test_every_word_shown_is_stored_every_message_answered_and_no_effect_begun_twice(
    template: Template, tmp_path: Path, provider: str
) -> None:
    print(f"PERDURE_SEED={SEED}")
    kills, number = 0, 0
    url = f"sqlite:///{tmp_path}/perdure.db" if PLACES[provider] == "sqlite" else fresh_database()
    while kills < ROUNDS:
        chance = Random(f"{SEED} {provider} {number}")
        async with listening(script(chance)) as fake:
            sessions = Sessions(template, url, tmp_path / str(number), chance, provider, fake)
            kills += await sessions.one()
        number += 1
    print(f"{provider}: {kills} processes were killed, {number} sessions are whole")


class Sessions:
    def __init__(
        self, template: Template, url: str, workspace: Path, chance: Random, provider: str, fake: FakeProvider
    ) -> None:
        self._template, self._url, self._workspace, self._chance = template, url, workspace, chance
        self._provider, self._fake = provider, fake
        self._shown: dict[int, str] = {}

    async def one(self) -> int:
        """A session that is killed again and again, then one process that lives to its end."""
        self._workspace.mkdir()
        async with await journal.open(self._url) as outside:
            session = await outside.create()
            for number in range(PER_SESSION):
                if number % 2 == 0:
                    role = self._chance.choice(("prompt", "prompt", "steer"))
                    await outside.append(session, message(f"work {number}", role=role))
                # In a thread: the fake provider answers from this one's loop.
                await asyncio.to_thread(self._killed, self._start(session))
            last = self._start(session)
            last.tell()
            *said, closed = await asyncio.to_thread(last.end)
            assert closed == "closed"
            self._note(said[1:])
            self._template.forget(last)
            events = await whole(outside, session)
            assert await faults(outside, session) == []
        self._compare(session, events)
        return PER_SESSION

    def _start(self, session: str) -> Child:
        address = self._fake.address + SPEAKING[self._provider]
        return self._template.start(
            "serve", url=self._url, workspace=str(self._workspace), session=session, provider=self._provider,
            address=address,
        )  # fmt: skip

    def _killed(self, child: Child) -> None:
        assert child.hear() == "begun"
        kind, said = self._chance.choice(MOMENTS), []
        longest = 2.0 if kind else self._chance.random() * self._chance.choice((0.15, 0.8))
        for one in child.heard(until=time.monotonic() + longest):
            said.append(one)
            # What an earlier process did is shown first, and comes again: it is this one's life that is to end.
            if one[2] == kind and one[0] not in self._shown:
                break
        self._note([*said, *child.kill()])
        self._template.forget(child)

    def _note(self, said: list[Any]) -> None:
        for seq, fact, _ in said:
            assert self._shown.setdefault(seq, fact) == fact, "nobody is shown two things at one place"

    def _compare(self, session: str, events: list[e.Event]) -> None:
        there = {event.seq: digest(event.fact) for event in events}
        assert {seq: fact for seq, fact in self._shown.items() if there.get(seq) != fact} == {}
        assert {x.fact.outcome for x in events if isinstance(x.fact, e.TurnEnded)} == {"completed"}
        assert unanswered(events) == []
        assert self._fake.refused == []
        asked = json.dumps(self._fake.requests[-1], ensure_ascii=False)
        for event in events:
            if isinstance(event.fact, e.ModelLost):
                words = [part.text.strip() for part in event.fact.parts if isinstance(part, e.Text)]
                assert all(word in asked for word in words), "what was shown is in the requests that follow"
        effects = self._workspace / "effects"
        begun = effects.read_text().split("\n")[:-1] if effects.exists() else []
        started = [x.seq for x in events if isinstance(x.fact, e.ToolStarted)]
        assert len(begun) == len(set(begun))
        assert set(begun) <= {f"begun {session}:{seq}" for seq in started}
        assert [seq for seq in started if find(f"{session}:{seq}")] == []
