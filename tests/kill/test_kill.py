"""`kill -9` at any moment: what was acknowledged is there, and the next append works.

`PERDURE_ROUNDS=full` kills hundreds of times; `PERDURE_SEED` repeats a run as far as chance in other hands allows.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from perdure import journal
from perdure.journal import Journal
from perdure.journal.care import broken_rows, doctor
from perdure.journal.reading import stored_session
from tests.kill.jobs import FILE_POINTS
from tests.kill.lives import FULL, SEED, Ack, Life, unheard
from tests.kill.template import Child, Template

pytestmark = pytest.mark.anyio

ROUNDS = {"sqlite": 300 if FULL else 10, "postgres": 100 if FULL else 4}
TOGETHER = 10
"""Rounds on one store: the later ones begin with what the earlier ones left behind."""
POINTS = ["any moment", "any moment", "an acknowledgement", "before a commit", "after a commit"]


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with Template() as template:
        yield template


class Rounds:
    """One store that is killed again and again, and everything that it ever acknowledged."""

    def __init__(self, template: Template, url: str, home: Path, seed: str) -> None:
        self._template, self._url, self._home = template, url, home
        self._chance = Random(seed)
        self._points = POINTS + list(FILE_POINTS) * url.startswith("sqlite")
        self.acks: list[Ack] = []
        self.kills = 0

    async def one(self, number: int) -> None:
        point = self._chance.choice(self._points)
        child = self._template.start(
            "live", url=self._url, processes=str(self._home / "processes"), seed=number,
            sessions=sorted({ack[0] for ack in self.acks}), point=point,
            times=self._chance.randrange(1, 60), steps=self._chance.choice([2, 5, 100]),
        )  # fmt: skip
        new = self._killed(child, point)
        assert all(isinstance(said, list) or said in ("begun", "open", "closed") for said in new), new[-1]
        self.kills += child.status == -9
        self._template.forget(child)
        self.acks += [tuple(said) for said in new if isinstance(said, list)]
        await self._look_at(f"round {number}, killed at {point!r}")

    def _killed(self, child: Child, point: str) -> list[object]:
        said: list[object] = []
        if point == "any moment":
            assert child.hear() == "begun"
            said += child.heard(until=time.monotonic() + self._chance.random() * 0.2)
            return said + child.kill()
        if point == "an acknowledgement":
            number = self._chance.randrange(1, 60)
            for value in child.heard():
                said.append(value)
                if len(said) == number:
                    return said + child.kill()
        return said + child.end()

    async def _look_at(self, about: str) -> None:
        async with await journal.open(self._url, announce=pytest.fail) as after:
            assert [str(f) async for f in doctor(after, mend=False) if f.kind != "note"] == [], about
            for session in sorted({ack[0] for ack in self.acks}):
                stored = stored_session(after.store, session)
                assert list(broken_rows(after.store, stored)) == [], about
            assert await unheard(after, self.acks) == [], about
            for session in sorted({ack[0] for ack in self.acks})[-6:]:
                await self._goes_on(after, session, about)

    async def _goes_on(self, after: Journal, session: str, about: str) -> None:
        life = Life(after, self._chance, about, lambda ack: self.acks.append(ack))
        await life.talk(session)
        owned = await after.take(session)
        await life.tidy(owned)
        await life.turn(owned)
        await owned.release()


async def test_whatever_was_acknowledged_to_a_process_that_was_killed_is_there(
    template: Template, store_url: str, tmp_path: Path
) -> None:
    kind = store_url.partition(":")[0].removesuffix("ql")
    print(f"PERDURE_SEED={SEED}")
    number = kills = acknowledged = 0
    while kills < ROUNDS[kind]:
        home = tmp_path / str(number)
        home.mkdir()
        rounds = Rounds(
            template, store_url.replace("perdure.db", f"{number}/perdure.db"), home, f"{SEED} {number}"
        )
        while rounds.kills < min(TOGETHER, ROUNDS[kind] - kills):
            # Some come to an end before the point where they would have been killed: these do not count.
            await rounds.one(SEED % 1_000_000 * 1000 + number)
            number += 1
        kills, acknowledged = kills + rounds.kills, acknowledged + len(rounds.acks)
    print(f"{kind}: {kills} of {number} processes were killed, {acknowledged} acknowledgements are all there")


async def test_an_owner_that_was_killed_is_replaced_at_once(
    template: Template, store_url: str, tmp_path: Path
) -> None:
    async with await journal.open(store_url, lease=3600.0) as after:
        session = await after.create()
        for epoch in (1, 4):  # 2 is our taking, 3 our letting go
            child = template.start(
                "idle", url=store_url, processes=str(tmp_path / "processes"), session=session
            )
            assert child.hear() == epoch
            child.kill()
            owned = await after.take(session)
            assert owned.epoch == epoch + 1
            await owned.release()
