"""Everything is a fold: in two halves as at once, after every append, and with every derived row gone."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import events as e
from perdure.codec import pack, unpack
from perdure.errors import PerdureError
from perdure.grammar import Standing
from perdure.journal import Journal, Kept, Wanted, open
from perdure.journal.admit import HEAD_VIEW, KEEP_EVERY
from perdure.journal.care import doctor
from perdure.journal.heads import HeadCache, fold
from perdure.journal.store import Append
from perdure.testing.clock import ManualClock
from perdure.testing.journals import faults, refolded, replay, whole
from perdure.testing.lively import lawful
from perdure.views.head import VERSION, Head

NOTHING = Standing()


def standing(events: list[e.Event], since: Standing = NOTHING) -> Standing:
    """What is open, as the facts say it; a head does not look at pieces."""
    for event in events:
        since = since if event.fact.piece else since.after(event)  # type: ignore[union-attr]
    return since


@pytest.mark.parametrize("seed", range(6))
def test_folding_in_two_halves_is_folding_at_once_wherever_it_is_cut(seed: int) -> None:
    events = lawful(seed, 150)
    at_once, stood = fold(events), standing(events)
    assert at_once.standing == stood
    for cut in range(len(events) + 1):
        first, second = events[:cut], events[cut:]
        assert fold(second, fold(first)) == at_once
        assert fold(second, unpack(pack(fold(first)), Head)) == at_once
        assert standing(second, unpack(pack(standing(first)), Standing)) == stood


@given(st.integers(0, 10_000), st.lists(st.integers(0, 80), max_size=6))
def test_folding_in_many_parts_is_folding_at_once(seed: int, cuts: list[int]) -> None:
    events = lawful(seed, 80)
    head, begin = Head(), 0
    for cut in [*sorted(cuts), len(events)]:
        head, begin = unpack(pack(fold(events[begin:cut], head)), Head), cut
    assert head == fold(events)


@given(st.integers(0, 10_000))
def test_pieces_leave_no_trace_in_a_head(seed: int) -> None:
    events = lawful(seed, 80)
    assert fold(events) == fold(event for event in events if not event.fact.piece)  # type: ignore[union-attr]


def test_a_head_does_not_grow_with_what_has_happened() -> None:
    events = [e.Event(1, 5, 0, None, e.SessionCreated("s")), e.Event(2, 5, 0, None, e.OwnerChanged(1, "p"))]
    sizes = []
    for turn in range(300):
        at = 3 + 4 * turn
        events += [
            e.Event(at, 5, 0, None, e.MessageSent((e.Text("x" * 1000),))),
            e.Event(at + 1, 5, 1, None, e.TurnStarted((at,))),
            e.Event(at + 2, 5, 1, None, e.TaskSet("y" * 1000)),
            e.Event(at + 3, 5, 1, None, e.TurnEnded(at + 1, "completed")),
        ]
        if turn in (10, 299):
            sizes.append(len(pack(fold(events))))
    assert sizes[1] <= sizes[0] + 20


# --- in a store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


async def opened(file: Path) -> Journal:
    return await open(f"sqlite:///{file}", clock=ManualClock(), durability="process")


@pytest.mark.anyio
@pytest.mark.parametrize("seed", [1, 2])
async def test_after_every_append_the_head_is_what_the_events_fold_to(file: Path, seed: int) -> None:
    events = lawful(seed, 60)
    async with await opened(file) as journal, await opened(file) as another:
        session = await replay(journal, events[:1])
        for event in events[1:]:
            await replay_one(journal, session, event)
            stored = (await another.head(session)).head
            assert stored == await refolded(another, session)
            assert stored == (await another.sessions())[0].head


async def replay_one(journal: Journal, session: str, event: e.Event) -> None:
    await journal.submit(Append(session, (event.fact,), epoch=event.epoch, key=event.key))  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_a_fork_anywhere_has_the_head_its_past_folds_to(file: Path) -> None:
    events = lawful(11, 3 * KEEP_EVERY, session="parent")
    async with await opened(file) as journal:
        parent = await replay(journal, events, together=50)
        forks = 0
        for at in range(1, len(events), 3):
            try:
                fork = await journal.fork(parent, at=at)
            except PerdureError:
                continue  # something was open there, or the session had moved away
            forks += 1
            assert await faults(journal, fork) == []
        assert forks > 5


Garble = Callable[[apsw.Connection], object]

GARBLED: dict[str, Garble] = {
    "emptied": lambda db: db.execute("UPDATE perdure_sessions SET folded = x''"),
    "torn": lambda db: db.execute("UPDATE perdure_sessions SET folded = substr(folded, 1, 20)"),
    "the same rubbish in all": lambda db: db.execute("UPDATE perdure_sessions SET folded = CAST('[1,{}' AS BLOB)"),
    "of another version": lambda db: db.execute(
        "UPDATE perdure_sessions SET folded = ?", (b"[%d,{}]" % (VERSION + 1),)
    ),
    "no JSON": lambda db: db.execute("UPDATE perdure_sessions SET folded = randomblob(300)"),
    "without kept folds": lambda db: db.execute("DELETE FROM perdure_folds"),
    "with torn kept folds": lambda db: db.execute("UPDATE perdure_folds SET state = substr(state, 1, 10)"),
    "all of it": lambda db: (
        db.execute("DELETE FROM perdure_folds"), db.execute("UPDATE perdure_sessions SET folded = x''"),
    ),
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("how", GARBLED)
async def test_with_every_derived_row_gone_every_answer_stays_the_same(file: Path, how: str) -> None:
    async with await opened(file) as journal:
        sessions = [await replay(journal, lawful(seed, 40 + 90 * seed), together=30) for seed in range(4)]
        for name in ("one", "two"):
            sessions.append(await journal.create(e.SessionCreated("", title=name)))
        sessions.append(await journal.fork(sessions[-1], title="fork"))
        await journal.keep(sessions[0], Kept("mine", 1, 3, b"kept"))
        before = await answers(journal, sessions)
    db = apsw.Connection(str(file))
    GARBLED[how](db)
    db.close()
    async with await opened(file) as journal:
        assert await answers(journal, sessions) == before
        for session in sessions:
            assert await faults(journal, session) == []
        await journal.append(sessions[-1], e.SessionPinned())
        fork = await journal.fork(sessions[-2], at=1)
        assert (await journal.head(fork)).head.title == "two"
        assert [f async for f in doctor(journal) if f.kind == "derived" and not f.mended] == []
        again = await answers(journal, sessions[:-1])
        assert again["heads"] == before["heads"][:-1]
        assert [f async for f in doctor(journal) if f.kind == "derived"] == []


async def damage(journal: Journal) -> list[str]:
    """What the doctor finds beside what is derived: random sessions speak of content that nobody stored."""
    return [str(f) async for f in doctor(journal, mend=False) if f.kind != "derived"]


async def answers(journal: Journal, sessions: list[str]) -> dict[str, list[object]]:
    """What anyone may ask of the store, but for what was kept."""
    ask: dict[str, Callable[[], Awaitable[object]]] = {
        "list": lambda: journal.sessions(),
        "ended": lambda: journal.sessions(Wanted(states=("ended",))),
        "count": lambda: journal.count(Wanted(project="p")),
        "runnable": lambda: journal.runnable(),
        "title": lambda: journal.resolve("one"),
    }
    found: dict[str, list[object]] = {name: [await each()] for name, each in ask.items()}
    found["heads"] = [(await journal.head(session)).head for session in sessions]
    found["events"] = [await whole(journal, session) for session in sessions]
    found["damage"] = [await damage(journal)]
    found["last"] = [(await journal.last(session, limit=3)).events for session in sessions]
    return found


@pytest.mark.anyio
async def test_a_wrong_head_kept_on_the_way_is_found_and_thrown_away(file: Path) -> None:
    async with await opened(file) as journal:
        session = await replay(
            journal, lawful(9, KEEP_EVERY + 40), together=40
        )  # the one in which nothing is erased
        stored = await journal.read_store(journal.store.session, session)
        assert stored is not None
        wrong = Kept(HEAD_VIEW, VERSION, 20, HeadCache.pack(Head(title="wrong")))
        await journal.keep(session, wrong)
        found = [finding async for finding in doctor(journal, session) if finding.kind == "derived"]
        assert [finding.mended for finding in found] == [True]
        assert await journal.read_store(journal.store.all_kept, stored.stretch) == []
        assert [finding async for finding in doctor(journal, session) if finding.kind == "derived"] == []
