"""A store against the one in memory: whatever is done over two connections, both give the same answers and errors.

`PERDURE_ROUNDS=full` tries many more ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from perdure import events as e
from perdure.journal import Kept, Wanted, blob_of
from perdure.journal.store import Append
from perdure.testing.clock import ManualClock
from perdure.testing.contract.telling import all_listed, said, stretch_of
from perdure.testing.journals import faults, whole
from perdure.testing.lively import MAKERS, NASTY, Scene
from tests.facts import FACTS
from tests.kill.lives import FULL
from tests.laws.sides import LEASE, Side
from tests.laws.stores import connections

SIZES = {"sqlite": (600, 60), "postgres": (150, 60)} if FULL else {"sqlite": (20, 30), "postgres": (5, 30)}
"""Examples, and steps in each."""

WHO = st.integers(0, 1)
IDS = ("abcdef", "abcdef-1", "abcdefgh", "abcxyz", "zzz")
SESSIONS = st.sampled_from(IDS)
TITLES = st.sampled_from(["", "One", "abcdef", "Zwei\0 \ud800", *NASTY[:6]])
PROJECTS = st.sampled_from(["", "p", "/ü \udc80\0"])
KEYS = st.sampled_from([None, None, None, "k", "l", "ключ", "", "\ud800"])
SEQS = st.integers(-1, 20) | st.just(1 << 40)
LIMITS = st.integers(0, 4) | st.just(500)
STATES = st.none() | st.lists(
    st.sampled_from(["active", "archived", "ended", "trashed", "moved"]), max_size=3
).map(tuple)
CHANCE = st.integers(0, 1 << 30)
BY_ANYONE = st.sampled_from([kind for kind in MAKERS if kind.by == "anyone"] + [e.MessageSent] * 8)
BY_OWNER = st.sampled_from([kind for kind in MAKERS if kind.by == "owner"])


class Both(RuleBasedStateMachine):
    """The model is the store in memory; `material` is the one that is looked at."""

    material = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self.home = TemporaryDirectory()
        self.clock = ManualClock()
        self.runner = asyncio.Runner()
        self.keyed: list[tuple[str, str, tuple[Any, ...]]] = []
        home = Path(self.home.name)
        self.model, self.real = [
            Side(connections(material, home, self.clock), self.clock, home)
            for material in ("memory", self.material)
        ]
        for side in (self.model, self.real):
            self.runner.run(side.open())

    def both(self, ask: Callable[[Side], Awaitable[object]]) -> Any:
        expected = self.runner.run(self.model.answer(ask))
        assert self.runner.run(self.real.answer(ask)) == expected
        return expected

    def scene(self, session: str, seed: int) -> Scene:
        """Where the session stands, for whoever makes facts that fit."""

        async def look() -> Scene:
            journal, scene = self.model.journals[0], Scene(seed, session)
            if session in await journal.read_store(journal.store.ids, "", 50):
                scene.events = await whole(journal, session)
                scene.standing = (await journal.head(session)).head.standing
                for event in scene.events:
                    scene._count(event.fact)
                scene.events += [e.Event(0, 0, 0, None, e.Erased())] * (
                    scene.standing.seq - len(scene.events)
                )
            return scene

        return self.runner.run(look())

    def facts(self, session: str, seed: int, kinds: list[type[e.Fact]]) -> tuple[Any, ...]:
        scene, made = self.scene(session, seed), []
        for kind in kinds:
            made.append(MAKERS[kind][1](scene) or said(str(seed)))
            scene.add(made[-1])
        return tuple(made)

    # Append

    @rule(who=WHO, session=SESSIONS, title=TITLES, project=PROJECTS, key=KEYS, messages=st.integers(0, 2))
    def create(
        self, who: int, session: str, title: str, project: str, key: str | None, messages: int
    ) -> None:
        born = e.SessionCreated(session, project_key=project, title=title)
        more = [said(f"hello {n}") for n in range(messages)]
        self.both(lambda side: side.journals[who].create(born, *more, key=key))

    @rule(who=WHO, session=SESSIONS, seed=CHANCE, kinds=st.lists(BY_ANYONE, min_size=1, max_size=3), key=KEYS)
    def say(self, who: int, session: str, seed: int, kinds: list[type[e.Fact]], key: str | None) -> None:
        facts = self.facts(session, seed, kinds)
        self.both(lambda side: side.journals[who].append(session, *facts, key=key))
        if key:
            self.keyed.append((session, key, facts))

    @precondition(lambda self: self.keyed)
    @rule(data=st.data(), who=WHO, session=SESSIONS, same=st.booleans())
    def say_again(self, data: st.DataObject, who: int, session: str, same: bool) -> None:
        of, key, facts = data.draw(st.sampled_from(self.keyed))
        facts = facts if same else (*facts[1:], e.SessionPinned())
        self.both(lambda side: side.journals[who].append(of if same else session, *facts, key=key))

    @rule(who=WHO, session=SESSIONS, fact=FACTS, epoch=st.integers(0, 3), number=st.integers(0, 3))
    def anything(self, who: int, session: str, fact: Any, epoch: int, number: int) -> None:
        append = Append(session, (fact,), epoch=epoch, number=number)
        self.both(lambda side: side.journals[who].submit(append))

    @rule(who=WHO, session=SESSIONS, content=st.binary(max_size=50), times=st.sampled_from([1, 1000]))
    def say_with_content(self, who: int, session: str, content: bytes, times: int) -> None:
        content *= times
        blob = blob_of(content)
        self.both(lambda side: side.journals[who].append(session, e.MessageSent((blob,)), blobs=[content]))
        self.both(lambda side: side.journals[1 - who].blob(blob))

    @rule(who=WHO, session=SESSIONS, parent=SESSIONS, at=st.none() | SEQS, title=TITLES)
    def fork(self, who: int, session: str, parent: str, at: int | None, title: str) -> None:
        self.both(lambda side: side.journals[who].fork(parent, at=at, title=title, session=session))

    # Own

    @rule(who=WHO, session=SESSIONS)
    def take(self, who: int, session: str) -> None:
        self.both(lambda side: side.take(who, session))

    @precondition(lambda self: self.model.owned)
    @rule(data=st.data(), seed=CHANCE, kinds=st.lists(BY_OWNER | BY_ANYONE, min_size=1, max_size=3))
    def own(self, data: st.DataObject, seed: int, kinds: list[type[e.Fact]]) -> None:
        held = data.draw(st.sampled_from(list(self.model.owned)))
        facts = self.facts(held[1], seed, kinds)
        self.both(lambda side: side.owned[held].append(*facts))

    @precondition(lambda self: self.model.owned)
    @rule(data=st.data(), pieces=st.integers(0, 3))
    def own_a_turn(self, data: st.DataObject, pieces: int) -> None:
        held = data.draw(st.sampled_from(list(self.model.owned)))
        turn, call = (n + self.scene(held[1], 0).seq for n in (1, 2))
        facts = (
            said("?"), e.TurnStarted((turn - 1,)), e.ModelCalled(turn), *(e.ModelSpoke(call, n + 1, "!") for n in range(pieces)),
            e.ModelReplied(call, (e.Text("!" * pieces),), pieces=pieces), e.TurnEnded(turn, "completed"),
        )  # fmt: skip
        self.both(lambda side: side.owned[held].append(*facts))

    @precondition(lambda self: self.model.owned)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(list(self.model.owned)))
        self.both(lambda side: side.owned[held].release())

    @precondition(lambda self: self.model.owned)
    @rule(data=st.data())
    def may_act(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(list(self.model.owned)))
        assert self.model.owned[held].may_act() is self.real.owned[held].may_act()

    @rule(who=WHO)
    def restart(self, who: int) -> None:
        self.both(lambda side: side.restart(who))

    @rule()
    def sleep_past_every_lease(self) -> None:
        self.clock.advance(LEASE + 1)
        self.both(lambda side: side.expire())

    @rule(seconds=st.sampled_from([0.5, 1, 60, -5, -3600]))
    def let_time_pass_or_set_the_clock(self, seconds: float) -> None:
        if seconds > 0:
            self.clock.advance(seconds)
        else:
            self.clock.set_wall(self.clock.wall() + round(seconds * 1e6))

    # Read

    @rule(who=WHO, session=SESSIONS, seq=SEQS, limit=LIMITS)
    def read(self, who: int, session: str, seq: int, limit: int) -> None:
        self.both(lambda side: side.journals[who].read(session, after=seq, limit=limit))
        self.both(lambda side: side.journals[who].last(session, before=seq, limit=limit))
        self.both(lambda side: side.journals[who].last(session, limit=limit))

    @rule(who=WHO, session=SESSIONS, after=st.integers(0, 20))
    def follow(self, who: int, session: str, after: int) -> None:
        count = sum(event.seq > after for event in self.scene(session, 0).events)
        self.both(
            lambda side: (
                side.heard(who, session, after, count or 1) if count else side.journals[who].head(session)
            )
        )
        self.both(lambda side: side.heard(who, session, 1 << 40, 1))

    @rule(who=WHO, states=STATES, project=st.none() | PROJECTS, limit=st.integers(1, 4))
    def list(self, who: int, states: Any, project: str | None, limit: int) -> None:
        wanted = Wanted(states, project, limit=limit)
        self.both(lambda side: all_listed(side.journals[who], wanted))
        self.both(lambda side: side.journals[who].count(wanted))

    @rule(
        who=WHO,
        name=st.sampled_from(
            [*IDS, "abc", "abcde", "ABCDEF", "abcdefg", "zz", "One", "nobody", "", "hello 0"]
        )
        | TITLES,
    )
    def resolve(self, who: int, name: str) -> None:
        self.both(lambda side: side.journals[who].resolve(name))

    @rule(who=WHO, limit=st.integers(0, 5))
    def runnable(self, who: int, limit: int) -> None:
        self.both(lambda side: side.journals[who].runnable(limit=limit))

    # What is kept beside them

    @rule(who=WHO, session=SESSIONS, view=st.sampled_from("vw"), version=st.integers(1, 2), upto=SEQS)
    def keep(self, who: int, session: str, view: str, version: int, upto: int) -> None:
        self.both(lambda side: side.journals[who].keep(session, Kept(view, version, upto, b"kept")))

    @rule(who=WHO, session=SESSIONS, view=st.sampled_from("vw"), version=st.integers(1, 2))
    def kept(self, who: int, session: str, view: str, version: int) -> None:
        self.both(lambda side: side.journals[who].kept(session, view, version))

    @rule(who=WHO, name=TITLES, value=st.none() | st.binary(max_size=9))
    def put_on_desk(self, who: int, name: str, value: bytes | None) -> None:
        self.both(lambda side: side.journals[who].put_on_desk("draft", name, value))
        self.both(lambda side: side.journals[1 - who].desk("draft", name))

    @rule(who=WHO, session=SESSIONS)
    def drop_the_pieces_of_closed_calls(self, who: int, session: str) -> None:
        scene = self.scene(session, 0)
        still = {c.seq for c in scene.standing.calls} | {o.tool for o in scene.standing.owed}
        seqs = [
            x.seq
            for x in scene.events
            if not isinstance(x.fact, e.ModelSpoke | e.ToolSpoke) or _of(x.fact) not in still
        ]  # facts among them, which are not dropped

        async def drop(side: Side) -> None:
            journal = side.journals[who]
            await journal.write(journal.store.drop, await stretch_of(journal, session), seqs)

        if scene.events:
            self.both(drop)

    # After every step

    @invariant()
    def each_connection_lists_the_same(self) -> None:
        for who in (0, 1):
            self.both(lambda side: side.journals[who].sessions())  # noqa: B023

    def teardown(self) -> None:
        try:
            for session in IDS:
                self.both(lambda side: whole(side.journals[0], session))  # noqa: B023
                self.both(lambda side: faults(side.journals[1], session))  # noqa: B023
        finally:
            for side in (self.model, self.real):
                self.runner.run(side.close())
            self.runner.close()
            self.home.cleanup()


def _of(fact: e.ModelSpoke | e.ToolSpoke) -> int:
    return fact.call if isinstance(fact, e.ModelSpoke) else fact.tool


@pytest.mark.timeout(3600 if FULL else 120)
@pytest.mark.parametrize("material", SIZES)
def test_whatever_is_done_a_store_answers_as_the_one_in_memory_does(material: str) -> None:
    examples, steps = SIZES[material]
    machine = type("Both", (Both,), {"material": material})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
