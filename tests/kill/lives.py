"""What sessions go through: messages, turns, pieces, content of their own. Each step says what it made durable."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random

from perdure.codec import pack
from perdure.errors import SessionNotFound
from perdure.events import (
    AnyFact,
    Event,
    MessageSent,
    ModelCalled,
    ModelLost,
    ModelReplied,
    ModelSpoke,
    SessionRenamed,
    Text,
    ToolCall,
    ToolFinished,
    ToolSpoke,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)
from perdure.journal import Journal, Owned, blob_of

FULL = os.environ.get("PERDURE_ROUNDS") == "full"
SEED = int(os.environ.get("PERDURE_SEED", "0")) or int.from_bytes(os.urandom(4), "big")
"""Another one each time; a failure prints it, and PERDURE_SEED brings it back."""

Ack = tuple[str, int, str | None, list[str]]
"""Session, first seq, key, and what was appended, by digest."""


def digest(fact: object) -> str:
    return sha256(pack(fact)).hexdigest()[:16]


def message(text: str, **more: object) -> MessageSent:
    return MessageSent(parts=(Text(text),), **more)  # type: ignore[arg-type]


@dataclass
class Life:
    """Works on the sessions of one journal, and tells `ack` of everything that was acknowledged."""

    journal: Journal
    chance: Random
    name: str
    ack: Callable[[Ack], None]
    longest: int = 20_000
    _number: int = field(default=0)

    def words(self, most: int) -> str:
        return "".join(self.chance.choices("abcdefgh 漢ñ😀\n", k=self.chance.randrange(most)))

    async def append(
        self, session: str, *facts: AnyFact, key: str | None = None, blobs: tuple[bytes, ...] = ()
    ) -> int:
        done = await self.journal.append(session, *facts, key=key, blobs=blobs)
        self.ack((session, done.first, key, [digest(fact) for fact in facts]))
        return done.first

    async def create(self) -> str:
        session = await self.journal.create(key=self._key())
        born = (await self.journal.read(session, limit=1)).events[0]
        self.ack((session, 1, born.key, [digest(born.fact)]))
        return session

    async def talk(self, session: str) -> None:
        """Something that anyone may append."""
        match self.chance.randrange(4):
            case 0:
                await self.append(session, message(self.words(300) or "!"))
            case 1:
                await self.append(
                    session, message(self.words(self.longest) or "!"), message("and"), key=self._key()
                )
            case 2:
                content = self.chance.randbytes(self.chance.randrange(1, 3 * self.longest))
                said = MessageSent(parts=(Text("see"), blob_of(content)))
                await self.append(session, said, key=self._key(), blobs=(content,))
            case _:
                await self.append(session, SessionRenamed(title=self.words(40)))

    def _key(self) -> str:
        self._number += 1
        return f"{self.name}-{self._number}"

    async def own(self, owned: Owned, *facts: AnyFact) -> int:
        events = (await owned.append(*facts))[-len(facts) :]
        self.ack((owned.session, events[0].seq, None, [digest(fact) for fact in facts]))
        return events[0].seq

    async def turn(self, owned: Owned) -> None:
        """A message, and the turn that answers it, in pieces, with a tool."""
        asked = await self.append(owned.session, message(self.words(300) or "?"))
        turn = await self.own(owned, TurnStarted(takes=(asked,)))
        call = await self.own(owned, ModelCalled(turn=turn))
        said = [self.words(200) for _ in range(self.chance.randrange(6))]
        for number, text in enumerate(said, 1):
            await self.own(owned, ModelSpoke(call=call, number=number, text=text))
        uses = (ToolCall("c1", "shell", "{}"),)
        reply = ModelReplied(
            call=call, parts=(Text("".join(said)), *uses), pieces=len(said), usage=Usage(input=7, output=3)
        )
        await self.own(owned, reply)
        tool = await self.own(owned, ToolStarted(turn=turn, call_id="c1", name="shell", arguments="{}"))
        printed = [self.words(self.longest) for _ in range(self.chance.randrange(3))]
        for number, text in enumerate(printed, 1):
            await self.own(owned, ToolSpoke(tool=tool, number=number, text=text))
        finished = ToolFinished(
            turn=turn,
            call_id="c1",
            outcome="ok",
            tool=tool,
            parts=(Text("".join(printed)),),
            pieces=len(printed),
        )
        await self.own(owned, finished, TurnEnded(turn=turn, outcome="completed"))

    async def tidy(self, owned: Owned) -> None:
        """Close what an owner that was killed left open."""
        standing = (await self.journal.head(owned.session)).head.standing
        events = [event async for event in self.journal.events(owned.session)]
        pieces = Counter(
            event.fact.call if isinstance(event.fact, ModelSpoke) else event.fact.tool
            for event in events
            if isinstance(event.fact, ModelSpoke | ToolSpoke)
        )
        for call in standing.calls:
            await self.own(owned, ModelLost(call=call.seq, reason="interrupted", pieces=pieces[call.seq]))
        for owed in standing.owed:
            outcome = ToolFinished(
                turn=standing.turn, call_id=owed.call_id, outcome="unknown", tool=owed.tool or None,
                pieces=pieces[owed.tool],
            )  # fmt: skip
            await self.own(owned, outcome)
        if standing.turn:
            await self.own(owned, TurnEnded(turn=standing.turn, outcome="interrupted"))


async def unheard(journal: Journal, acks: list[Ack]) -> list[str]:
    """What was acknowledged and is not there, or not as it was."""
    said: list[str] = []
    there: dict[str, dict[int, Event]] = {}
    for session, first, key, digests in acks:
        if session not in there:
            try:
                there[session] = {event.seq: event async for event in journal.events(session)}
            except SessionNotFound:
                there[session] = {}
        for seq, expected in enumerate(digests, first):
            event = there[session].get(seq)
            # A store whose answers may be lost gives a key of its own to what has none.
            if event is None or digest(event.fact) != expected or (key and seq == first and event.key != key):
                said.append(f"{session} {seq}: {expected} {key} was acknowledged, {event} is there")
    return said
