"""Killed around every append there is: whoever comes next finds the journal that would have been, and goes on.

`PERDURE_ROUNDS=full` lives hundreds of random lives besides; `PERDURE_SEED` repeats them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import TypeVar

import psycopg
import pytest

from perdure.codec import KINDS
from perdure.journal import Appended, Journal
from perdure.journal.link import Link
from perdure.journal.pipe import Pipe
from perdure.journal.postgres import PostgresStore
from perdure.testing.clock import ManualClock
from perdure.testing.contract.telling import said, texts
from perdure.testing.journals import faults, whole
from tests.kill.lives import FULL, SEED
from tests.laws.crashes import Fated, Killed, Life, Moment
from tests.laws.scripts import Step, by_hand, lively
from tests.laws.stores import MATERIALS, connections, emptied

pytestmark = pytest.mark.anyio

T = TypeVar("T")
Begin = Callable[[str], Life]

SCRIPTS: dict[str, list[Step]] = {
    "by hand": list(by_hand()),
    **{f"lively {seed}": lively(seed, 80) for seed in (5, 20, 7, 0)},
}
LIVES = {"memory": 400, "sqlite": 200, "postgres": 60} if FULL else dict.fromkeys(MATERIALS, 2)
EVERYWHERE = [
    (material, script)
    for material in MATERIALS
    for script in SCRIPTS
    if FULL or material != "postgres" or script in ("by hand", "lively 7")
]


@pytest.fixture
async def begin(tmp_path: Path) -> AsyncIterator[Begin]:
    lives: list[Life] = []

    def begin(material: str) -> Life:
        clock, home = ManualClock(), tmp_path / str(len(lives))
        home.mkdir()
        lives.append(Life(connections(material, home, clock), clock, home))
        return lives[-1]

    yield begin
    await asyncio.gather(*(life.close() for life in lives))


def test_the_scripts_hold_every_kind_of_fact_and_of_append() -> None:
    steps = [step for script in SCRIPTS.values() for step in script]
    assert {type(fact) for step in steps for fact in step.facts} == set(KINDS.values())
    assert {step.how for step in steps} == {"create", "say", "own", "take", "release", "fork"}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("material", MATERIALS)
async def test_who_is_not_killed_lives_by_the_script(begin: Begin, material: str, script: str) -> None:
    life = begin(material)
    for step in SCRIPTS[script]:
        await life.live(step)
    await life.compare()
    assert not life.deaths


@pytest.mark.parametrize(("material", "script"), EVERYWHERE)
async def test_killed_around_every_append_a_journal_is_as_if_nobody_had_been(
    begin: Begin, material: str, script: str
) -> None:
    life = begin(material)
    for step in SCRIPTS[script]:
        await life.live(step, ("before", "after"))
    await life.compare()
    assert life.deaths == 2 * len(SCRIPTS[script])


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("material", MATERIALS)
async def test_whoever_lives_and_hears_no_answer_asks_again_and_it_is_there_once(
    begin: Begin, material: str, script: str
) -> None:
    life = begin(material)
    for step in SCRIPTS[script]:
        await life.ask_again(step)
    await life.compare()
    assert not life.deaths


@pytest.mark.parametrize("material", MATERIALS)
async def test_killed_now_and_then_in_a_random_life(begin: Begin, material: str) -> None:
    deaths = 0
    for number in range(LIVES[material]):
        print(f"PERDURE_SEED={SEED}, life {number}")
        chance = Random(f"{SEED} {material} {number}")
        life = begin(material)
        for step in lively(chance.randrange(1 << 30), 60):
            if chance.random() < 0.1:
                await life.ask_again(step)
            else:
                await life.live(
                    step, chance.choices(("before", "after"), k=chance.choice((0, 0, 0, 0, 1, 2)))
                )
        await life.compare()
        await life.close()
        deaths += life.deaths
    assert deaths


@pytest.mark.parametrize("material", MATERIALS)
async def test_killed_once_in_a_life_wherever_that_is(begin: Begin, material: str) -> None:
    script = SCRIPTS["by hand"]
    points = [(number, moment) for number in range(len(script)) for moment in ("before", "after")]
    for number, moment in points if FULL else Random(SEED).sample(points, 1):
        print(f"PERDURE_SEED={SEED}, killed {moment} append {number}")
        life = begin(material)
        for at, step in enumerate(script):
            await life.live(step, (moment,) if at == number else ())
        await life.compare()
        await life.close()
        assert life.deaths == 1


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("material", MATERIALS)
async def test_appends_that_share_a_commit_die_together_and_are_there_once_when_asked_again(
    tmp_path: Path, material: str, moment: Moment
) -> None:
    clock = ManualClock()
    another = connections(material, tmp_path, clock)
    fated = Fated(another())
    async with Journal(fated, clock, tmp_path) as dying, Journal(another(), clock, tmp_path) as next_one:
        sessions = [await dying.create() for _ in range(3)]

        def ask(journal: Journal, n: int) -> Awaitable[Appended]:
            return journal.append(sessions[n % 3], said(f"{n}a"), said(f"{n}b"), key=str(n))

        fated.fate = moment
        answers = await asyncio.gather(*(ask(dying, n) for n in range(60)), return_exceptions=True)
        lost = [n for n, answer in enumerate(answers) if isinstance(answer, Killed)]
        assert 0 < len(lost) < 60 or {type(answer) for answer in answers} == {Killed}
        for n in range(60):
            assert (await ask(next_one, n)).repeated is (moment == "after" or n not in lost)
        for at, session in enumerate(sessions):
            assert sorted(texts(await whole(next_one, session))) == sorted(
                f"{n}{x}" for n in range(at, 60, 3) for x in "ab"
            )
            assert await faults(next_one, session) == []


class Deaf(Link):
    """A connection to a server that does what it is asked, and breaks before the answer is heard, every other time."""

    heard = True

    def run(self, work: Callable[[Pipe], T], tries: int = 5) -> T:
        def unheard(db: Pipe) -> T:
            done = work(db)
            self.heard = not self.heard
            if not self.heard:
                raise psycopg.OperationalError("the connection is lost")
            return done

        return super().run(unheard, tries)


@pytest.mark.parametrize("script", ["by hand", "lively 7"])
async def test_where_the_wire_breaks_after_every_append_nobody_notices(tmp_path: Path, script: str) -> None:
    clock, address = ManualClock(), emptied()

    def deaf() -> PostgresStore:
        store = PostgresStore(address, clock)
        store._writing = Deaf(address, "power", 5.0)
        return store

    life = Life(deaf, clock, tmp_path)
    for step in SCRIPTS[script]:
        await life.live(step)
    await life.compare()
    await life.close()
