"""What the contract's tests say, and how they listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from perdure import events as e
from perdure.codec import encode
from perdure.journal import Journal, Owned, Wanted
from perdure.journal.rows import SALT, Row, checksum, linked
from perdure.journal.store import Append, Page

PATIENCE = 20.0
"""Seconds after which a test stops waiting for what should have come long ago."""

NOBODY = ("", "nosuchsession", "Ünïcode", "\ud800", "a\0b", "'; --", "x" * 10_000, "%", "_")
"""Names no session has."""

NO_IDS = ("Upper", "Ünïcode", "\ud800", "a\0b", "a b", "a/b", "-a", "x" * 65, "a_b", "１")
"""Names no session may have."""

NO_FACTS = (
    "text", None, e.Text("a part"), e.Unknown("SessionCreated"), e.Erased(), e.Unreadable("x"),
    e.MessageSent(parts=(e.Text(b"bytes"),)), e.MessageSent(parts=(e.ToolCall("c", "n", "a"),)),  # type: ignore[arg-type]
    e.MessageSent(parts=[e.Text("list")]), e.SessionPinned(pinned=1), e.RunAsked(how="perhaps"),  # type: ignore[arg-type]
    e.ModeRouted("plan", "forced", score=float("inf")), e.CancelAsked(turn=True),
    e.SessionTagged(tags="abc"), e.TurnStarted(takes=5), e.QuestionAnswered(1, None),  # type: ignore[arg-type]
    e.SettingsChanged(tools=3), e.ToolFinished(1, [], "ok"),  # type: ignore[arg-type]
)  # fmt: skip
"""What could not be read back as it was given."""


def said(text: str = "hello") -> e.MessageSent:
    return e.MessageSent(parts=(e.Text(text),))


def texts(events: Sequence[e.Event]) -> list[str]:
    """What the messages among these say."""
    found = [event.fact.parts[0] for event in events if isinstance(event.fact, e.MessageSent)]
    return [part.text for part in found if isinstance(part, e.Text)]


async def begun(journal: Journal, messages: int = 0, **born: str) -> str:
    """A session with so many messages, called "1", "2"... The first stands at seq 2."""
    session = await journal.create(e.SessionCreated(session=born.pop("session", ""), **born))  # type: ignore[arg-type]
    if messages:
        await journal.append(session, *(said(str(n + 1)) for n in range(messages)))
    return session


async def heard(
    journal: Journal, session: str, count: int, *, after: int = 0, joined: asyncio.Event | None = None
) -> list[e.Event]:
    """Follow until so many events have come. `joined` is set when the first has."""
    found: list[e.Event] = []
    async with asyncio.timeout(PATIENCE), aclosing(following(journal, session, after)) as events:
        async for event in events:
            found.append(event)
            if joined is not None:
                joined.set()
            if len(found) == count:
                break
    return found


def following(journal: Journal, session: str, after: int) -> AsyncGenerator[e.Event, None]:
    events = journal.follow(session, after=after)
    assert isinstance(events, AsyncGenerator)
    return events


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110  a store wakes nobody who does not follow
            await asyncio.sleep(0.005)


async def answering(owned: Owned, *tools: str) -> e.Seq:
    """A turn in which the model has asked for these tools. Returns the turn."""
    sent = (await owned._journal.append(owned.session, said("do it"))).first
    turn = (await owned.append(e.TurnStarted((sent,))))[-1].seq
    call = (await owned.append(e.ModelCalled(turn)))[-1].seq
    parts = tuple(e.ToolCall(name, "run", "{}") for name in tools)
    await owned.append(e.ModelReplied(call, parts))
    return turn


async def expire(journal: Journal, process: str) -> None:
    """The lease of a process runs out, as if it had slept."""
    row = await journal.read_store(journal.store.process, process)
    assert row is not None
    await journal.write(journal.store.renew, row, -1.0)


async def stretch_of(journal: Journal, session: str) -> int:
    stored = await journal.read_store(journal.store.session, session)
    assert stored is not None
    return stored.stretch


async def of_newer_build(journal: Journal, session: str) -> Row:
    """The row of a fact with a name that this build has never heard."""
    stored = await journal.read_store(journal.store.session, session)
    assert stored is not None
    known = encode(e.Event(stored.head + 1, 5, 0, None, e.SessionPinned()))
    plain = known.replace(b'{"kind":"SessionPinned"}', b'{"kind":"DreamDreamt","of":["electric","sheep"]}')
    salt = bytes(SALT)
    return Row(stored.head + 1, plain, checksum(plain), salt + linked(stored.chain, salt, plain))


def but(append: Append, **changes: object) -> Append:
    """The same append but for these."""
    return replace(append, **changes)  # type: ignore[arg-type]


async def pages_forwards(journal: Journal, session: str, limit: int) -> list[Page]:
    pages = [await journal.read(session, limit=limit)]
    while pages[-1].more:
        pages.append(await journal.read(session, after=pages[-1].upto, limit=limit))
        assert pages[-1].events
    return pages


async def pages_backwards(journal: Journal, session: str, limit: int) -> list[Page]:
    pages = [await journal.last(session, limit=limit)]
    while pages[-1].more:
        pages.append(await journal.last(session, before=pages[-1].events[0].seq, limit=limit))
        assert pages[-1].events
    return pages


async def all_listed(journal: Journal, wanted: Wanted) -> list[str]:
    """All pages of a list."""
    found: list[str] = []
    place = wanted.after
    while page := await journal.sessions(Wanted(wanted.states, wanted.project, place, wanted.limit)):
        found += [x.id for x in page]
        place = page[-1].place
    return found
