"""Living a script while processes die around its appends, and asking whether anything of it shows."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from msgspec import structs

from perdure import events as e
from perdure.errors import NotOwner, SessionExists
from perdure.journal import Journal, Owned, blob_of
from perdure.journal.store import Append, Appended, Store
from perdure.testing.clock import ManualClock
from perdure.testing.contract.telling import expire
from perdure.testing.journals import faults, whole
from tests.laws.scripts import Step, renumbered

Moment = Literal["before", "after"]
"""Of a death: before the append reached the store, or once it had, while the answer was on its way."""
LEASE = 10.0


class Killed(Exception):
    """The process is no more, or what it asked for is never answered."""


class Fated:
    """A store whose next commit, if a moment is set, is not answered."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fate: Moment | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        fate, self.fate = self.fate, None
        if fate == "before":
            raise Killed
        outcomes = self._store.commit(appends)
        if fate == "after":
            raise Killed
        return outcomes


@dataclass
class Told:
    """A session as far as its script has come."""

    facts: list[tuple[e.AnyFact, str | None]] = field(default_factory=list)
    """What would be there if nothing ever went wrong, each with its key."""
    places: dict[int, int] = field(default_factory=dict)
    """Where those facts came to stand."""
    head: int = 0

    def note(self, step: Step, begin: int) -> None:
        """The facts of the step stand behind `begin`."""
        for n, fact in enumerate(step.facts):
            self.facts.append((fact, step.key if not n else None))
            self.places[len(self.facts)] = begin + 1 + n
        self.head = begin + len(step.facts)


class Due(NamedTuple):
    """What is appended next, as it is said here, and the seq behind which it will stand."""

    facts: tuple[Any, ...]
    begin: int


class Life:
    """Lives a script over one store, in one process after another."""

    def __init__(self, another: Callable[[], Store], clock: ManualClock, home: Path) -> None:
        self._another, self._clock, self._home = another, clock, home
        self._told: dict[str, Told] = {}
        self.deaths = 0
        self._leaving: list[asyncio.Task[None]] = []
        self._start()

    def _start(self) -> None:
        self._fated = Fated(self._another())
        self.journal = Journal(self._fated, self._clock, self._home / "processes", lease=LEASE)
        self._owned: dict[str, Owned] = {}

    async def close(self) -> None:
        await asyncio.gather(self.journal.close(), *self._leaving)

    async def live(self, step: Step, deaths: Iterable[Moment] = ()) -> None:
        """Take this step, and die at these moments of it. Whoever comes next goes on from what the journal says."""
        for moment in deaths:
            due = await self._fail(step, moment)
            await self._succeed(step, due)
            if moment == "after":
                await self._find(step, due)
                return
        due = await self._prepare(step)
        await self._do(step, due)
        await self._note(step, due)
        assert await faults(self.journal, step.session) == []

    async def ask_again(self, step: Step) -> None:
        """Take this step, and hear no answer: first because it failed, then although it did not. Then ask again."""
        await self._fail(step, "before")
        due = await self._fail(step, "after")
        await self._find(step, due)
        if step.how == "own":
            assert (await self._do(step, due))[-1].seq == due.begin + len(due.facts)
        assert await faults(self.journal, step.session) == []

    async def compare(self) -> None:
        """Every session is what its script says, but for the takings by those who came after a death."""
        assert await self.journal.count() == len(self._told)
        for session, told in self._told.items():
            assert await faults(self.journal, session) == []
            events = {event.seq: event for event in await whole(self.journal, session)}
            found = [events.pop(place) for place in told.places.values()]
            back = {new: old for old, new in told.places.items()}
            assert [(_plain(renumbered(x.fact, back)), _given(x.key)) for x in found] == [
                (_plain(fact), key) for fact, key in told.facts
            ]
            assert {type(event.fact) for event in events.values()} <= {e.OwnerChanged}

    # One step

    async def _prepare(self, step: Step) -> Due:
        """Be a process that can take this step."""
        session, first = step.session, step.facts[0]
        if step.how == "create":
            return Due(step.facts, 0)
        if step.how == "fork":
            assert isinstance(first, e.ForkedFrom)
            place = self._told[first.parent].places[first.at]
            return Due((structs.replace(first, at=place),), place)
        told = self._told[session]
        if step.how == "take":
            await self.journal.process.leave()
            self._leave(self.journal)
            self._start()
        elif step.how != "say":
            await self._mine(session)
        seqs = range(told.head + 1, told.head + 1 + len(step.facts))
        places = told.places | dict(enumerate(seqs, len(told.facts) + 1))
        facts = tuple(renumbered(fact, places) for fact in step.facts)
        if isinstance(first, e.OwnerChanged):
            epoch = (await self.journal.head(session)).head.standing.epoch + 1
            facts = (structs.replace(first, epoch=epoch),)
        return Due(facts, told.head)

    async def _mine(self, session: str) -> None:
        """Own this session, whose owner may have died."""
        if session not in self._owned:
            self._owned[session] = await self.journal.take(session)
            if told := self._told.get(session):
                told.head = self._owned[session].upto

    async def _do(self, step: Step, due: Due) -> Sequence[e.Event]:
        session, journal = step.session, self.journal
        match step.how:
            case "create":
                await journal.create(*due.facts, key=step.key)
            case "fork":
                parent, at, title = due.facts[0].parent, due.facts[0].at, due.facts[0].title
                await journal.fork(parent, at=at, title=title, session=session)
            case "take":
                self._owned[session] = await journal.take(session)
            case "release":
                await self._owned.pop(session).release()
            case "say":
                return (await journal.append(session, *due.facts, key=step.key, blobs=step.blobs)).events
            case "own":
                owned = self._owned[session]
                since = owned.upto
                news = await owned.append(*due.facts, blobs=step.blobs)
                # All that is new to him, once, with what he appended at the end.
                assert news == [event async for event in journal.between(session, since, owned.upto)]
                return news
        return ()

    async def _note(self, step: Step, due: Due) -> None:
        """It is there, and just as it was said."""
        session = step.session
        if step.how == "create":
            self._told[session] = Told()
        elif step.how == "fork":
            parent = self._told[step.facts[0].parent]
            places = {old: new for old, new in parent.places.items() if new <= due.begin}
            self._told[session] = Told(parent.facts[: len(places)], places)
        told = self._told[session]
        told.note(step, due.begin)
        events = (await self.journal.read(session, after=due.begin, limit=len(due.facts))).events
        assert [_plain(event.fact) for event in events] == [_plain(fact) for fact in due.facts]
        for content in step.blobs:
            assert await self.journal.blob(blob_of(content)) == content
        told.head = (await self.journal.head(session)).upto

    # Death

    async def _fail(self, step: Step, moment: Moment) -> Due:
        due = await self._prepare(step)
        self._fated.fate = moment
        with pytest.raises(Killed):
            await self._do(step, due)
        assert self._fated.fate is None
        return due

    async def _succeed(self, step: Step, due: Due) -> None:
        """The process is dead, or believed to be: another one takes the session. Then the old one wakes up."""
        old, sleeper = self.journal, self._owned.get(step.session)
        self.deaths += 1
        self._start()
        await self._bury(old)
        if step.session in await self.journal.read_store(self.journal.store.ids, "", 10):
            await self._mine(step.session)
            before = await whole(self.journal, step.session)
            assert await faults(self.journal, step.session) == []
            if sleeper is not None:
                for facts in (due.facts, (e.TaskSet("too late"),)):
                    with pytest.raises(NotOwner):
                        await sleeper.append(*facts)
            assert await whole(self.journal, step.session) == before
        self._leave(old)

    def _leave(self, old: Journal) -> None:
        """Let go of what a process that is of no more use holds, while the next one goes on."""
        self._leaving.append(asyncio.create_task(old.close()))

    async def _bury(self, old: Journal) -> None:
        """Its death is seen by its lock, which the kernel lets go of, or by its lease, which runs out."""
        life = old.process._life
        if life is None:
            return
        if self.deaths % 2:
            fcntl.flock(life._fd, fcntl.LOCK_UN)
        else:
            self._clock.advance(LEASE + 1)
            await expire(self.journal, old.process.id)  # a server counts by a clock of its own
            assert not old.process.holds_lease()

    async def _find(self, step: Step, due: Due) -> None:
        """What got no answer is there: by its key, or by its id, or by looking."""
        await self._note(step, due)
        if step.how == "create" and step.key:
            assert await self.journal.create(*due.facts, key=step.key) == step.session
        elif step.how in ("create", "fork"):
            with pytest.raises(SessionExists):
                await self._do(step, due)
        elif step.key:
            again = await self.journal.append(step.session, *due.facts, key=step.key, blobs=step.blobs)
            assert (again.first, again.repeated, again.events) == (due.begin + 1, True, ())


def _plain(fact: Any) -> Any:
    """Without what no script can know: who took a session, and how often it had been taken before."""
    return e.OwnerChanged(0, bool(fact.process) * "p") if isinstance(fact, e.OwnerChanged) else fact


def _given(key: str | None) -> str | None:
    """Without the key that a store gives to what has none, for the case that the answer is lost on the wire."""
    return None if key and key.startswith("once-") else key
