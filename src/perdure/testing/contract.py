"""The contract of a store: what `Journal` promises, whatever it keeps its rows in.

A store of your own passes it like ours do. Subclass, open a journal over your store, and let pytest find it:

    class TestMyStore(JournalContract):
        async def open_another(self, home, clock):
            return Journal(MyStore(home / "my.store", clock), clock, home / "processes")

        async def inject(self, journal, session, row):
            ...

It needs pytest with anyio's plugin, and an `anyio_backend` fixture that says "asyncio".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from perdure import errors
from perdure import events as e
from perdure.codec import encode
from perdure.journal import Journal, Owned, Wanted, blob_of
from perdure.journal.names import ALPHABET, LENGTH
from perdure.journal.rows import SALT, Row, checksum, linked
from perdure.journal.store import Append, BlobRow, Kept, Page, ProcessRow
from perdure.testing.clock import ManualClock
from perdure.testing.journals import faults, refolded, replay, whole
from perdure.testing.lively import NASTY, lawful

PATIENCE = 20.0
"""Seconds after which a test stops waiting for what should have come long ago."""


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
    async with asyncio.timeout(PATIENCE), aclosing(_following(journal, session, after)) as events:
        async for event in events:
            found.append(event)
            if joined is not None:
                joined.set()
            if len(found) == count:
                break
    return found


def _following(journal: Journal, session: str, after: int) -> AsyncGenerator[e.Event, None]:
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


class JournalContract:
    """What a store must do. Each method is a sentence that is true of every store."""

    pytestmark = pytest.mark.anyio

    async def open_another(self, home: Path, clock: ManualClock) -> Journal:
        """A journal over the one store that belongs to `home`, a folder of the test's own: the first call makes the
        store, every further call with the same `home` is another connection to it."""
        raise NotImplementedError

    async def inject(self, journal: Journal, session: str, row: Row) -> None:
        """Put this row at the end of a session behind the journal's back, as a newer build would have: the row, the
        session's head and chain moved on to it, and a folded head that this build has to fold anew."""
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def journal(self, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Journal]:
        async with await self.open_another(tmp_path, clock) as journal:
            yield journal

    @pytest.fixture
    async def another(self, journal: Journal, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Journal]:
        async with await self.open_another(tmp_path, clock) as another:
            yield another

    # --- create and append

    async def test_a_session_is_there_once_its_id_is_returned(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await journal.create(e.SessionCreated(session="", title="Work", workspace="/w"), said("hi"))
        assert len(session) == LENGTH
        assert set(session) <= set(ALPHABET)
        events = await whole(another, session)
        assert [event.seq for event in events] == [1, 2]
        assert events[0].fact == e.SessionCreated(session=session, title="Work", workspace="/w")
        assert (await another.head(session)).head.title == "Work"

    async def test_a_session_needs_no_more_than_an_id(self, journal: Journal) -> None:
        session = await journal.create()
        assert [event.fact for event in await whole(journal, session)] == [e.SessionCreated(session=session)]

    async def test_a_session_begins_with_session_created(self, journal: Journal) -> None:
        with pytest.raises(errors.Refused, match="first fact"):
            await journal.create(said())
        assert await journal.count() == 0

    async def test_an_id_is_given_once(self, journal: Journal, another: Journal) -> None:
        await begun(journal, 2, session="given-id")
        with pytest.raises(errors.SessionExists) as refused:
            await another.create(e.SessionCreated(session="given-id"))
        assert refused.value.session == "given-id"
        assert len(await whole(journal, "given-id")) == 3

    async def test_of_two_who_create_one_id_together_one_does(
        self, journal: Journal, another: Journal
    ) -> None:
        born = e.SessionCreated(session="wanted")
        answers = await asyncio.gather(
            *(j.create(born) for j in (journal, another, journal, another)), return_exceptions=True
        )
        assert sorted(type(a).__name__ for a in answers) == ["SessionExists"] * 3 + ["str"]
        assert await faults(journal, "wanted") == []

    async def test_a_thousand_sessions_are_created_together(self, journal: Journal, another: Journal) -> None:
        ids = await asyncio.gather(*((journal, another)[n % 2].create() for n in range(1000)))
        assert len(set(ids)) == await journal.count() == 1000
        assert await faults(journal, ids[123]) == []

    async def test_facts_stand_in_the_order_in_which_they_were_appended_and_none_is_missing(
        self, journal: Journal
    ) -> None:
        session = await begun(journal)
        for n in range(5):
            appended = await journal.append(session, said(f"{n}a"), said(f"{n}b"))
            assert (appended.first, appended.last, appended.head_before) == (2 * n + 2, 2 * n + 3, 2 * n + 1)
            assert [event.seq for event in appended.events] == [appended.first, appended.last]
        events = await whole(journal, session)
        assert [event.seq for event in events] == list(range(1, 12))
        assert texts(events) == [f"{n}{x}" for n in range(5) for x in "ab"]

    async def test_what_append_answers_is_what_is_read_later(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal)
        appended = await journal.append(session, said("x"), e.SessionPinned(), key="k")
        assert list(appended.events) == (await another.read(session, after=1)).events

    async def test_an_event_bears_the_time_at_which_the_store_took_it(
        self, journal: Journal, clock: ManualClock
    ) -> None:
        session = await begun(journal)
        clock.advance(5)
        later = (await journal.append(session, said())).events[0]
        assert later.ts == clock.wall()
        clock.set_wall(5)
        earlier = (await journal.append(session, said())).events[0]
        assert (earlier.ts, earlier.seq) == (5, later.seq + 1)

    async def test_facts_appended_together_are_there_all_or_not_at_all(self, journal: Journal) -> None:
        session = await begun(journal)
        content = b"refused content"
        with pytest.raises(errors.Refused):
            await journal.append(session, said("one"), e.SessionReopened(), said("two"), blobs=[content])
        assert len(await whole(journal, session)) == 1
        with pytest.raises(errors.NotStorable, match="is not in"):
            await journal.blob(blob_of(content))
        assert (await journal.append(session, said("three"))).first == 2

    async def test_many_append_at_once_and_each_gets_a_place_of_its_own(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal)
        appends = (
            (journal, another)[n % 2].append(session, said(f"{n}a"), said(f"{n}b")) for n in range(100)
        )
        answers = await asyncio.gather(*appends)
        assert sorted(a.first for a in answers) == list(range(2, 202, 2))
        by_seq = {event.seq: event for event in await whole(journal, session)}
        for n, answer in enumerate(answers):
            assert texts([by_seq[answer.first], by_seq[answer.last]]) == [f"{n}a", f"{n}b"]
        assert await faults(journal, session) == []

    async def test_what_is_refused_never_fails_its_neighbours(self, journal: Journal) -> None:
        session, ended = await begun(journal), await begun(journal)
        await journal.append(ended, e.SessionEnded())
        await journal.append(session, said("first"), key="used")
        bad: list[Callable[[], Awaitable[object]]] = [
            lambda: journal.append(session, e.CancelAsked(turn=7)),
            lambda: journal.append(ended, said()),
            lambda: journal.append("nosuchsession", said()),
            lambda: journal.append(session, said("other"), key="used"),
            lambda: journal.submit(Append(session, (e.TurnStarted(()),), epoch=3, number=1)),
            lambda: journal.append(session, e.ModeRouted("plan", "forced", score=float("nan"))),
            lambda: journal.append(session, e.MessageSent(parts="no tuple")),  # type: ignore[arg-type]
            lambda: journal.append(session, "no fact"),  # type: ignore[arg-type]
            lambda: journal.create(e.SessionCreated(session=ended)),
            lambda: journal.create(e.SessionCreated(session="", created_at=1 << 70)),
        ]
        answers = await asyncio.gather(
            *(
                work
                for n in range(40)
                for work in (journal.append(session, said(str(n))), bad[n % len(bad)]())
            ),
            return_exceptions=True,
        )
        assert [type(a).__name__ for a in answers[1::2]] == [
            "Refused", "SessionEnded", "SessionNotFound", "AlreadyAppended", "NotOwner",
            "NotStorable", "NotStorable", "NotStorable", "SessionExists", "NotStorable",
        ] * 4  # fmt: skip
        assert not [a for a in answers[::2] if isinstance(a, BaseException)]
        assert texts(await whole(journal, session)) == ["first", *(str(n) for n in range(40))]
        assert await journal.count() == 2
        assert await faults(journal, session) == []

    async def test_one_who_stops_waiting_leaves_the_session_as_good_as_before(self, journal: Journal) -> None:
        session = await begun(journal)
        waiting = [asyncio.create_task(journal.append(session, said(str(n)))) for n in range(20)]
        await asyncio.sleep(0)
        for task in waiting[::2]:
            task.cancel()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        await journal.append(session, said("next"))
        kept = texts(await whole(journal, session))
        assert {"next", *(str(n) for n in range(1, 20, 2))} <= set(kept)
        assert len(set(kept)) == len(kept)
        assert not [a for a in answers[1::2] if isinstance(a, BaseException)]
        assert await faults(journal, session) == []

    async def test_closing_finishes_what_was_handed_in(
        self, journal: Journal, tmp_path: Path, clock: ManualClock
    ) -> None:
        session = await begun(journal)
        other = await self.open_another(tmp_path, clock)
        waiting = [asyncio.create_task(other.append(session, said(str(n)))) for n in range(50)]
        await asyncio.sleep(0)
        await other.close()
        answers = await asyncio.gather(*waiting)
        assert [a.first for a in answers] == list(range(2, 52))
        assert texts(await whole(journal, session)) == [str(n) for n in range(50)]

    async def test_a_closed_journal_says_so_and_may_be_closed_again(
        self, journal: Journal, tmp_path: Path, clock: ManualClock
    ) -> None:
        session = await begun(journal)
        other = await self.open_another(tmp_path, clock)
        await other.close()
        await other.close()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(errors.StoreUnavailable, match="closed"):
                await other.append(session, said())
            with pytest.raises(errors.StoreUnavailable, match="closed"):
                await other.head(session)
        assert len(await whole(journal, session)) == 1

    # --- keys

    async def test_the_same_key_with_the_same_facts_is_answered_with_the_first_place(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal)
        first = await journal.append(session, said("a"), said("\ud800\u2028"), key="k")
        await journal.append(session, said("b"))
        for j in (journal, another):
            again = await j.append(session, said("a"), said("\ud800\u2028"), key="k")
            assert (again.first, again.last, again.repeated, again.events) == (
                first.first,
                first.last,
                True,
                (),
            )
        assert texts(await whole(journal, session)) == ["a", "\ud800\u2028", "b"]

    async def test_the_same_key_with_other_facts_is_refused(self, journal: Journal, another: Journal) -> None:
        session = await begun(journal)
        await journal.append(session, said("a"), said("b"), key="k")
        for facts in (
            [said("c")],
            [said("b"), said("a")],
            [said("a"), said("b"), said("c")],
            [e.SessionPinned()],
        ):
            with pytest.raises(errors.AlreadyAppended) as refused:
                await another.append(session, *facts, key="k")
            assert (refused.value.key, refused.value.seq) == ("k", 2)
        assert texts(await whole(journal, session)) == ["a", "b"]

    async def test_a_key_is_one_session_s_own(self, journal: Journal) -> None:
        one, two = await begun(journal), await begun(journal)
        await journal.append(one, said("a"), key="k")
        assert not (await journal.append(two, said("b"), key="k")).repeated

    async def test_a_key_used_by_several_at_once_is_used_once(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal)
        answers = await asyncio.gather(
            *((journal, another)[n % 2].append(session, said("once"), key="k") for n in range(20))
        )
        assert {a.first for a in answers} == {2}
        assert sum(not a.repeated for a in answers) == 1
        assert texts(await whole(journal, session)) == ["once"]

    async def test_of_several_contents_under_one_key_at_once_one_is_stored(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal)
        answers = await asyncio.gather(
            *((journal, another)[n % 2].append(session, said(str(n)), key="k") for n in range(10)),
            return_exceptions=True,
        )
        assert sorted(type(a).__name__ for a in answers) == ["AlreadyAppended"] * 9 + ["Appended"]
        assert len(texts(await whole(journal, session))) == 1

    async def test_a_key_is_found_again_in_a_fork(self, journal: Journal) -> None:
        parent = await begun(journal)
        await journal.append(parent, said("before"), key="before")
        fork = await journal.fork(await journal.fork(parent))
        again = await journal.append(fork, said("before"), key="before")
        assert (again.first, again.repeated) == (2, True)
        with pytest.raises(errors.AlreadyAppended):
            await journal.append(fork, said("other"), key="before")

    async def test_a_key_used_after_a_fork_is_not_the_other_s(self, journal: Journal) -> None:
        parent = await begun(journal, 1)
        fork = await journal.fork(parent)
        await journal.append(parent, said("p"), key="after")
        assert not (await journal.append(fork, said("f"), key="after")).repeated
        early = await journal.fork(parent, at=2)
        assert not (await journal.append(early, said("e"), key="after")).repeated

    async def test_a_fork_between_two_facts_of_a_key_has_not_the_second(self, journal: Journal) -> None:
        parent = await begun(journal)
        await journal.append(parent, said("a"), said("b"), key="k")
        fork = await journal.fork(parent, at=2)
        with pytest.raises(errors.AlreadyAppended):
            await journal.append(fork, said("a"), said("b"), key="k")

    async def test_a_session_is_created_once_by_its_key(self, journal: Journal, another: Journal) -> None:
        born = e.SessionCreated(session="mine")
        assert await journal.create(born, key="c") == await another.create(born, key="c") == "mine"
        assert len(await whole(journal, "mine")) == 1

    @pytest.mark.parametrize("key", ["", "k" * 10_000, "a\0b", "\ud800"])
    async def test_a_key_that_is_none_is_refused(self, journal: Journal, key: str) -> None:
        session = await begun(journal)
        with pytest.raises(errors.NotStorable, match="key"):
            await journal.append(session, said(), key=key)
        assert len(await whole(journal, session)) == 1

    async def test_a_key_may_be_any_text_of_two_hundred_characters(self, journal: Journal) -> None:
        session = await begun(journal)
        for key in ("k" * 200, "ключ", "👨‍👩‍👧", "K", "k", " ", "'"):
            assert not (await journal.append(session, said(key), key=key)).repeated
            assert (await journal.append(session, said(key), key=key)).repeated

    # --- owning

    async def test_only_an_owner_appends_the_owner_s_facts(self, journal: Journal, another: Journal) -> None:
        session = await begun(journal, 1)
        for epoch in (0, 1, 5):
            with pytest.raises((errors.Refused, errors.NotOwner)):
                await journal.submit(Append(session, (e.TurnStarted((2,)),), epoch=epoch))
        owned = await journal.take(session)
        await another.append(session, said("anyone may"))
        events = await owned.append(e.TurnStarted((2, 4)))
        assert [type(x.fact).__name__ for x in events] == ["MessageSent", "TurnStarted"]
        assert (events[0].epoch, events[1].epoch) == (0, owned.epoch)
        assert await faults(journal, session) == []

    async def test_an_owner_is_told_what_others_appended(self, journal: Journal, another: Journal) -> None:
        session = await begun(journal, 1)
        owned = await journal.take(session)
        turn = (await owned.append(e.TurnStarted((2,))))[-1].seq
        await another.append(session, e.CancelAsked(turn))
        news = await owned.append(e.ModelCalled(turn))
        assert [x.fact for x in news] == [e.CancelAsked(turn), e.ModelCalled(turn)]
        assert [x.fact for x in await owned.append(e.PhaseChanged(turn, "prepare"))] == [
            e.PhaseChanged(turn, "prepare")
        ]

    async def test_while_an_owner_lives_nobody_else_takes_the_session(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal)
        await journal.take(session)
        with pytest.raises(errors.OwnedElsewhere) as refused:
            await another.take(session)
        assert refused.value.owner.startswith("library")
        with pytest.raises(errors.OwnedElsewhere, match="this process"):
            await journal.take(session)
        assert len(await whole(journal, session)) == 2

    async def test_of_two_who_take_a_session_at_once_exactly_one_has_it(
        self, journal: Journal, another: Journal
    ) -> None:
        for _ in range(5):
            session = await begun(journal)
            answers = await asyncio.gather(
                *(j.take(session) for j in (journal, another, another, journal)), return_exceptions=True
            )
            assert sorted(type(a).__name__ for a in answers) == ["Owned"] + ["OwnedElsewhere"] * 3
            assert (await journal.head(session)).head.standing.epoch == 1

    async def test_a_process_takes_many_sessions_at_once(self, journal: Journal) -> None:
        sessions = [await begun(journal) for _ in range(5)]
        owned = await asyncio.gather(*(journal.take(s) for s in sessions))
        assert [o.session for o in owned] == sessions
        assert all(o.may_act() for o in owned)

    async def test_a_session_let_go_of_is_taken_without_waiting(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal, 1)
        first = await journal.take(session)
        await first.release()
        assert (await journal.head(session)).head.owner is None
        second = await another.take(session)
        assert second.epoch > first.epoch
        with pytest.raises(errors.NotOwner):
            await first.append(e.TurnStarted((2,)))
        await second.append(e.TurnStarted((2,)))
        await second.release()
        await second.release()
        await (await journal.take(session)).append(e.PhaseChanged(7, "prepare"))
        assert await faults(journal, session) == []

    async def test_closing_lets_go_of_the_lease(
        self, journal: Journal, tmp_path: Path, clock: ManualClock
    ) -> None:
        session = await begun(journal)
        async with await self.open_another(tmp_path, clock) as other:
            await other.take(session)
        await journal.take(session)

    async def test_an_owner_whose_lease_ran_out_is_replaced_and_cannot_append(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal, 2)
        sleeping = await journal.take(session)
        turn = (await sleeping.append(e.TurnStarted((2,))))[-1].seq
        await expire(another, journal.process.id)
        awake = await another.take(session)
        news = await awake.append(e.PhaseChanged(turn, "prepare"))
        assert news[-1].epoch == awake.epoch == sleeping.epoch + 1
        before = await whole(journal, session)
        for facts in ([e.ModelCalled(turn)], [e.SessionPinned()], [said(), e.TurnEnded(turn, "failed")]):
            with pytest.raises(errors.NotOwner):
                await sleeping.append(*facts, blobs=[b"never stored"])
        assert await whole(journal, session) == before
        with pytest.raises(errors.NotStorable):
            await journal.blob(blob_of(b"never stored"))
        await sleeping.release()
        assert (await journal.head(session)).head.owner is not None
        await awake.release()
        assert (await journal.take(session)).epoch == awake.epoch + 2

    async def test_an_owner_nobody_knows_is_gone(self, journal: Journal) -> None:
        session = await begun(journal)
        await journal.append(session, e.OwnerChanged(epoch=1, process="vanished", owner_kind="worker"))
        assert (await journal.take(session)).epoch == 2

    async def test_an_owner_on_another_machine_is_gone_when_its_lease_is(self, journal: Journal) -> None:
        session = await begun(journal)
        await journal.append(
            session, e.OwnerChanged(epoch=1, process="faraway", owner_kind="worker", host="far")
        )
        row = ProcessRow("faraway", "{}", "far", "", "/nowhere.lock", False)
        await journal.write(journal.store.renew, row, 600.0)
        with pytest.raises(errors.OwnedElsewhere, match="far"):
            await journal.take(session)
        await journal.write(journal.store.renew, row, -1.0)
        assert (await journal.take(session)).epoch == 2

    async def test_a_lease_says_when_it_runs_out(self, journal: Journal, clock: ManualClock) -> None:
        owned = await journal.take(await begun(journal))
        assert owned.may_act()
        clock.advance(journal.process.ttl + 1)
        assert not owned.may_act()
        await journal.process.renew()
        assert owned.may_act()

    async def test_an_owner_s_append_asked_again_is_answered_once(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal, 1)
        owned = await journal.take(session)
        append = Append(
            session, (e.TurnStarted((2,)), e.PhaseChanged(4, "prepare")), epoch=owned.epoch, number=1
        )
        first = await journal.submit(append)
        await another.append(session, said("between"))
        for j in (journal, another):
            again = await j.submit(append)
            assert (again.first, again.last, again.repeated) == (first.first, first.last, True)
        assert len(await whole(journal, session)) == 6
        following = but(append, facts=(e.PhaseChanged(4, "assistant"),), number=2)
        assert (await journal.submit(following)).first == 7

    async def test_an_owner_s_append_asked_again_with_other_facts_is_refused(self, journal: Journal) -> None:
        session = await begun(journal, 1)
        owned = await journal.take(session)
        append = Append(session, (e.TurnStarted((2,)),), epoch=owned.epoch, number=1)
        await journal.submit(append)
        with pytest.raises(errors.AlreadyAppended):
            await journal.submit(but(append, facts=(e.PhaseChanged(4, "prepare"),)))
        together = await asyncio.gather(
            journal.submit(but(append, facts=(e.PhaseChanged(4, "prepare"),), number=2)),
            journal.submit(but(append, facts=(e.TurnEnded(4, "failed"),), number=2)),
            return_exceptions=True,
        )
        assert [type(a).__name__ for a in together] == ["Appended", "AlreadyAppended"]
        assert len(await whole(journal, session)) == 5

    @pytest.mark.parametrize("number", [2, 3, 900])
    async def test_an_owner_s_append_out_of_turn_is_refused(self, journal: Journal, number: int) -> None:
        session = await begun(journal, 1)
        owned = await journal.take(session)
        with pytest.raises(errors.NotOwner, match="follows"):
            await journal.submit(Append(session, (e.TurnStarted((2,)),), epoch=owned.epoch, number=number))
        assert len(await whole(journal, session)) == 3

    async def test_an_owner_that_stopped_waiting_loses_nothing_that_it_appends_next(
        self, journal: Journal
    ) -> None:
        session = await begun(journal, 1)
        owned = await journal.take(session)
        turn = (await owned.append(e.TurnStarted((2,))))[-1].seq
        for n in range(10):
            abandoned = asyncio.create_task(owned.append(e.TaskSet(f"abandoned {n}")))
            for _ in range(n % 4):
                await asyncio.sleep(0)
            abandoned.cancel()
            await asyncio.gather(abandoned, return_exceptions=True)
            news = await owned.append(e.TaskSet(f"kept {n}"))
            assert news[-1].fact == e.TaskSet(f"kept {n}")
        events = await whole(journal, session)
        kept = [x.fact.statement for x in events if isinstance(x.fact, e.TaskSet)]
        assert [k for k in kept if k.startswith("kept")] == [f"kept {n}" for n in range(10)]
        assert len(set(kept)) == len(kept)
        await owned.append(e.TurnEnded(turn, "completed"))
        assert await faults(journal, session) == []

    async def test_an_owner_s_appends_at_once_keep_their_order(self, journal: Journal) -> None:
        session = await begun(journal)
        owned = await journal.take(session)
        await asyncio.gather(*(owned.append(e.TaskSet(str(n))) for n in range(30)))
        facts = [x.fact for x in await whole(journal, session)]
        assert [f.statement for f in facts if isinstance(f, e.TaskSet)] == [str(n) for n in range(30)]

    # --- what the grammar refuses

    async def test_an_approval_is_answered_once(self, journal: Journal, another: Journal) -> None:
        session = await begun(journal)
        owned = await journal.take(session)
        turn = await answering(owned, "c1")
        asked = (await owned.append(e.ApprovalAsked(turn, "c1", "run", "?")))[-1].seq
        with pytest.raises(errors.Refused, match="waits for approval"):
            await owned.append(e.ToolStarted(turn, "c1", "run", "{}"))
        answers = await asyncio.gather(
            *(j.append(session, e.ApprovalAnswered(asked, "once")) for j in (journal, another, another)),
            return_exceptions=True,
        )
        assert sorted(type(a).__name__ for a in answers) == ["Appended", "Refused", "Refused"]
        with pytest.raises(errors.Refused, match=f"approval {asked} is not open"):
            await journal.append(session, e.ApprovalAnswered(asked, "deny"))
        await owned.append(e.ToolStarted(turn, "c1", "run", "{}"))
        assert await faults(journal, session) == []

    async def test_an_answer_to_what_has_expired_is_refused(self, journal: Journal) -> None:
        session = await begun(journal)
        owned = await journal.take(session)
        turn = await answering(owned, "c1")
        asked = (await owned.append(e.ApprovalAsked(turn, "c1", "run", "?")))[-1].seq
        question = (await owned.append(e.QuestionAsked((e.Question("why?"),), turn)))[-1].seq
        await owned.append(e.ApprovalExpired(asked), e.QuestionExpired(question))
        with pytest.raises(errors.Refused, match="not open"):
            await journal.append(session, e.ApprovalAnswered(asked, "once"))
        with pytest.raises(errors.Refused, match="not open"):
            await journal.append(session, e.QuestionAnswered(question, (e.Answer(text="x"),)))

    async def test_an_ended_session_takes_no_message(self, journal: Journal, another: Journal) -> None:
        session = await begun(journal, 1)
        await journal.append(session, e.SessionEnded("done"))
        for j in (journal, another):
            with pytest.raises(errors.SessionEnded):
                await j.append(session, said())
        await journal.append(session, e.SessionReopened())
        await another.append(session, said("again"))
        assert texts(await whole(journal, session)) == ["1", "again"]

    async def test_a_trashed_session_takes_no_message_until_it_is_restored(self, journal: Journal) -> None:
        session = await begun(journal, 1)
        await journal.append(session, e.SessionTrashed())
        with pytest.raises(errors.Refused, match="trash"):
            await journal.append(session, said())
        await journal.append(session, e.SessionRestored())
        await journal.append(session, said())

    async def test_a_turn_that_has_ended_is_not_cancelled(self, journal: Journal) -> None:
        session = await begun(journal, 1)
        owned = await journal.take(session)
        turn = (await owned.append(e.TurnStarted((2,))))[-1].seq
        await journal.append(session, e.CancelAsked(turn))
        await owned.append(e.TurnEnded(turn, "cancelled"))
        with pytest.raises(errors.Refused, match="not running"):
            await journal.append(session, e.CancelAsked(turn))

    async def test_a_message_is_taken_once_and_not_withdrawn_after(self, journal: Journal) -> None:
        session = await begun(journal, 2)
        owned = await journal.take(session)
        await journal.append(session, e.MessageWithdrawn(3))
        with pytest.raises(errors.Refused, match="message 3 is not waiting"):
            await owned.append(e.TurnStarted((2, 3)))
        turn = (await owned.append(e.TurnStarted((2,))))[-1].seq
        with pytest.raises(errors.Refused, match="message 2 is not waiting"):
            await journal.append(session, e.MessageWithdrawn(2))
        with pytest.raises(errors.Refused, match=f"turn {turn} is running"):
            await owned.append(e.TurnStarted(()))

    # --- reading

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
    async def test_pages_in_either_direction_add_up_across_forks(self, journal: Journal, limit: int) -> None:
        root = await begun(journal, 6)
        middle = await journal.fork(root, at=5)
        await journal.append(middle, *(said(f"m{n}") for n in range(4)))
        leaf = await journal.fork(middle, at=8)
        await journal.append(leaf, *(said(f"l{n}") for n in range(3)))
        early = await journal.fork(leaf, at=3)
        for session, length in ((root, 7), (middle, 10), (leaf, 12), (early, 4)):
            events = await whole(journal, session)
            assert [x.seq for x in events] == list(range(1, length + 1))
            assert [x for page in await _forwards(journal, session, limit) for x in page.events] == events
            back = await _backwards(journal, session, limit)
            assert [x for page in reversed(back) for x in page.events] == events
            assert await faults(journal, session) == []
        assert texts(await whole(journal, leaf)) == ["1", "2", "3", "4", "m0", "m1", "l0", "l1", "l2"]

    async def test_a_page_says_how_far_it_goes_and_whether_there_is_more(self, journal: Journal) -> None:
        session = await begun(journal, 9)
        page = await journal.read(session, after=2, limit=3)
        assert ([x.seq for x in page.events], page.upto, page.more) == ([3, 4, 5], 5, True)
        page = await journal.read(session, after=8, limit=3)
        assert ([x.seq for x in page.events], page.upto, page.more) == ([9, 10], 10, False)
        page = await journal.read(session, after=7, limit=3)
        assert ([x.seq for x in page.events], page.upto, page.more) == ([8, 9, 10], 10, False)
        for after in (10, 11, 1 << 40):
            page = await journal.read(session, after=after)
            assert (page.events, page.more) == ([], False)
        assert (await journal.read(session, after=-5, limit=1)).events[0].seq == 1

    async def test_the_last_events_are_read_without_the_first(self, journal: Journal) -> None:
        session = await begun(journal, 9)
        page = await journal.last(session, limit=3)
        assert ([x.seq for x in page.events], page.upto, page.more) == ([8, 9, 10], 10, True)
        page = await journal.last(session, before=4, limit=3)
        assert ([x.seq for x in page.events], page.upto, page.more) == ([1, 2, 3], 3, False)
        page = await journal.last(session, before=1 << 40, limit=100)
        assert (len(page.events), page.more) == (10, False)
        for before in (1, 0, -3):
            page = await journal.last(session, before=before)
            assert (page.events, page.more) == ([], False)

    async def test_what_lies_between_two_places_is_read(self, journal: Journal) -> None:
        session = await begun(journal, 20)
        assert [x.seq async for x in journal.between(session, 4, 9)] == [5, 6, 7, 8, 9]
        assert [x.seq async for x in journal.between(session, 19, 900)] == [20, 21]
        assert [x async for x in journal.between(session, 9, 9)] == []

    @pytest.mark.parametrize("limit", [0, -1, -(1 << 40)])
    async def test_a_limit_is_at_least_one(self, journal: Journal, limit: int) -> None:
        session = await begun(journal, 1)
        for ask in (
            lambda: journal.read(session, limit=limit),
            lambda: journal.last(session, limit=limit),
            lambda: journal.sessions(Wanted(limit=limit)),
            lambda: journal.runnable(limit=limit),
        ):
            with pytest.raises(errors.NotStorable, match="at least 1"):
                await ask()

    @pytest.mark.parametrize(
        "session", ["", "nosuchsession", "Ünïcode", "\ud800", "a\0b", "'; --", "x" * 10_000, "%", "_"]
    )
    async def test_a_session_that_is_not_there_is_not_found_by_anyone(
        self, journal: Journal, session: str
    ) -> None:
        await begun(journal)
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda: journal.append(session, said()),
            lambda: journal.read(session),
            lambda: journal.last(session),
            lambda: journal.head(session),
            lambda: journal.fork(session),
            lambda: journal.take(session),
            lambda: journal.kept(session, "v", 1),
            lambda: journal.resolve(session),
            lambda: anext(journal.follow(session)),
        ]
        for ask in asked:
            with pytest.raises(errors.SessionNotFound):
                await ask()
        assert await journal.count() == 1

    @pytest.mark.parametrize(
        "id", ["Upper", "Ünïcode", "\ud800", "a\0b", "a b", "a/b", "-a", "x" * 65, "a_b", "１"]
    )
    async def test_an_id_is_lower_case_letters_and_digits(self, journal: Journal, id: str) -> None:
        with pytest.raises(errors.NotStorable, match="is no id"):
            await journal.create(e.SessionCreated(session=id))
        assert await journal.count() == 0

    async def test_an_append_of_nothing_is_refused(self, journal: Journal) -> None:
        session = await begun(journal)
        with pytest.raises(errors.NotStorable, match="at least one fact"):
            await journal.append(session)

    @pytest.mark.parametrize(
        "fact",
        [
            "text", None, e.Text("a part"), e.Unknown("SessionCreated"), e.Erased(), e.Unreadable("x"),
            e.MessageSent(parts=(e.Text(b"bytes"),)), e.MessageSent(parts=(e.ToolCall("c", "n", "a"),)),  # type: ignore[arg-type]
            e.MessageSent(parts=[e.Text("list")]), e.SessionPinned(pinned=1), e.RunAsked(how="perhaps"),  # type: ignore[arg-type]
            e.ModeRouted("plan", "forced", score=float("inf")), e.CancelAsked(turn=True), e.SessionTagged(tags="abc"),
            e.TurnStarted(takes=5), e.QuestionAnswered(1, None), e.SettingsChanged(tools=3), e.ToolFinished(1, [], "ok"),  # type: ignore[arg-type]
        ],
    )  # fmt: skip
    async def test_what_could_not_be_read_back_is_not_stored(self, journal: Journal, fact: e.AnyFact) -> None:
        session = await begun(journal)
        with pytest.raises(errors.NotStorable):
            await journal.append(session, said("before"), fact)
        assert len(await whole(journal, session)) == 1
        assert not (await journal.head(session)).head.read_only

    # --- following

    @pytest.mark.parametrize("after", [0, 1, 3, 6])
    async def test_a_follower_gets_everything_past_its_place_in_order_once(
        self, journal: Journal, another: Journal, after: int
    ) -> None:
        session = await begun(journal, 5)
        total = 6 + 60
        followers = [
            asyncio.create_task(heard(j, session, total - after, after=after))
            for j in (journal, another)
            for _ in range(2)
        ]
        for n in range(30):
            await journal.append(session, said(f"j{n}"))
            await another.append(session, said(f"a{n}"))
        expected = (await whole(journal, session))[after:]
        for got in await asyncio.gather(*followers):
            assert got == expected

    async def test_a_follower_at_the_end_waits_for_what_comes(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal, 2)
        for writer in (journal, another):
            head = (await journal.head(session)).upto
            waiting = [asyncio.create_task(heard(j, session, 1, after=head)) for j in (journal, another)]
            await asyncio.sleep(0)
            appended = await writer.append(session, said())
            assert await asyncio.gather(*waiting) == [list(appended.events)] * 2

    async def test_followers_that_come_while_another_appends_miss_nothing(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal)
        followers: list[asyncio.Task[list[e.Event]]] = []
        for n in range(40):
            for j in (journal, another):
                head = (await j.head(session)).upto
                followers.append(asyncio.create_task(heard(j, session, 41 - head, after=head)))
            await (journal, another)[n % 2].append(session, said(str(n)))
        events = await whole(journal, session)
        for got in await asyncio.gather(*followers):
            assert got == (events[-len(got) :] if got else [])

    async def test_followers_never_consume(self, journal: Journal, another: Journal) -> None:
        session = await begun(journal, 3)
        first = await heard(journal, session, 4)
        assert await heard(journal, session, 4) == await heard(another, session, 4) == first

    async def test_a_place_beyond_the_end_is_refused(self, journal: Journal, another: Journal) -> None:
        session = await begun(journal, 2)
        for after in (4, 5, 1 << 40):
            with pytest.raises(errors.CursorAhead) as refused:
                await anext(another.follow(session, after=after))
            assert (refused.value.after, refused.value.head) == (after, 3)

    async def test_a_slow_follower_gets_everything_at_its_own_pace(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal, 3)
        async with asyncio.timeout(PATIENCE), aclosing(_following(another, session, 0)) as events:
            got = [await anext(events) for _ in range(2)]
            for n in range(12):
                await (journal, another)[n % 2].append(session, *(said(f"{n} {m}") for m in range(200)))
            got += [await anext(events) for _ in range(2402)]
        assert got == await whole(journal, session)

    async def test_a_follower_of_a_fork_hears_its_past_and_its_own_future(
        self, journal: Journal, another: Journal
    ) -> None:
        parent = await begun(journal, 4)
        fork = await journal.fork(parent, at=3)
        follower = asyncio.create_task(heard(another, fork, 5))
        await journal.append(parent, said("the parent's"))
        await journal.append(fork, said("the fork's"))
        assert texts(await follower) == ["1", "2", "the fork's"]

    async def test_where_pieces_were_dropped_a_follower_gets_the_whole_text(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal, 1)
        owned = await journal.take(session)
        turn = (await owned.append(e.TurnStarted((2,))))[-1].seq
        call = (await owned.append(e.ModelCalled(turn)))[-1].seq
        for number, text in enumerate(("Let ", "me ", "see"), 1):
            await owned.append(e.ModelSpoke(call, number, text))
        reply = e.ModelReplied(call, (e.Text("Let me see"),), pieces=3)
        await owned.append(reply)
        async with asyncio.timeout(PATIENCE), aclosing(_following(another, session, call)) as events:
            assert (await anext(events)).fact == e.ModelSpoke(call, 1, "Let ")
            everything = range(1, call + 9)
            await journal.write(journal.store.drop, await stretch_of(journal, session), list(everything))
            fresh = await heard(another, session, 1, after=call + 1)
            assert fresh[0].fact == reply
        events_left = await whole(another, session)
        assert [x.seq for x in events_left] == [*range(1, call + 1), call + 4]
        assert await faults(another, session) == []
        await owned.append(e.TurnEnded(turn, "completed"))
        assert await heard(journal, session, call + 2) == await whole(journal, session)

    async def test_leaving_a_follow_leaves_nothing_behind(self, journal: Journal) -> None:
        session = await begun(journal, 3)
        before = asyncio.all_tasks()
        for _ in range(20):
            await heard(journal, session, 4)
        cancelled = [asyncio.create_task(heard(journal, session, 99)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)

        async def quiet() -> bool:
            return asyncio.all_tasks() == before and not journal._following.names()

        await until(quiet)

    # --- forks

    async def test_a_fork_shares_the_past_and_copies_nothing(self, journal: Journal) -> None:
        parent = await begun(journal, 50, title="Parent")
        fork = await journal.fork(parent, title="Fork")
        stretch, old = await stretch_of(journal, fork), await stretch_of(journal, parent)
        page = await journal.read_store(journal.store.events, stretch, 0, 1000, 1000, False)
        assert [x.fact for x in page.events] == [e.ForkedFrom(fork, parent, 51, "Fork")]
        assert stretch != old
        assert (await whole(journal, fork))[:51] == await whole(journal, parent)
        heads = [(await journal.head(s)).head for s in (parent, fork)]
        assert [h.title for h in heads] == ["Parent", "Fork"]
        assert heads[1].parent == parent

    async def test_parent_and_fork_go_on_apart(self, journal: Journal) -> None:
        parent = await begun(journal, 2)
        fork = await journal.fork(parent)
        await journal.append(parent, said("p"))
        await journal.append(fork, said("f"))
        assert texts(await whole(journal, parent)) == ["1", "2", "p"]
        assert texts(await whole(journal, fork)) == ["1", "2", "f"]
        for session in (parent, fork):
            assert await faults(journal, session) == []

    async def test_a_fork_begins_where_nothing_is_open(self, journal: Journal) -> None:
        session = await begun(journal, 1)
        owned = await journal.take(session)
        turn = (await owned.append(e.TurnStarted((2,))))[-1].seq
        for at in (None, turn):
            with pytest.raises(errors.Refused, match="running"):
                await journal.fork(session, at=at)
        for at in (0, -1, turn + 1, 1 << 40):
            with pytest.raises(errors.Refused, match="nothing at"):
                await journal.fork(session, at=at)
        await owned.append(e.TurnEnded(turn, "completed"))
        fork = await journal.fork(session)
        assert (await journal.head(fork)).head.owner is None
        taken = await journal.take(fork)
        await journal.append(fork, said("mine"))
        await taken.append(e.TurnStarted((7 + 1,)))
        assert await faults(journal, fork) == []
        assert await journal.count() == 2

    async def test_a_fork_of_what_is_ended_or_trashed_is_alive(self, journal: Journal) -> None:
        session = await begun(journal, 1)
        await journal.append(session, e.SessionEnded())
        fork = await journal.fork(session)
        await journal.append(fork, said("on"))
        assert (await journal.head(fork)).head.state == "active"

    # --- the list

    async def test_the_list_is_by_activity_and_for_equal_times_by_id(
        self, journal: Journal, another: Journal
    ) -> None:
        sessions = list(await asyncio.gather(*(journal.create() for _ in range(12))))
        expected = sorted(sessions, reverse=True)
        for j in (journal, another):
            assert [x.id for x in await j.sessions()] == expected
        for limit in (1, 5, 11, 12, 13):
            assert await _listed(journal, Wanted(limit=limit)) == expected

    async def test_paging_is_stable_while_the_list_moves(self, journal: Journal, clock: ManualClock) -> None:
        sessions = []
        for _ in range(9):
            clock.advance(1)
            sessions.append(await journal.create())
        first = await journal.sessions(Wanted(limit=3))
        assert [x.id for x in first] == sessions[:-4:-1]
        clock.advance(1)
        await journal.append(sessions[0], said("up"))
        await journal.create()
        place = (first[-1].head.updated_at, first[-1].id)
        assert await _listed(journal, Wanted(limit=2, after=place)) == sessions[-4:0:-1]

    async def test_a_turn_moves_a_session_up_and_its_message_time_only_with_words(
        self, journal: Journal, clock: ManualClock
    ) -> None:
        session = await begun(journal)
        owned = await journal.take(session)

        async def times() -> tuple[int, int]:
            head = (await journal.head(session)).head
            return head.updated_at, head.last_message_at

        async def moved(*facts: e.AnyFact) -> tuple[bool, bool]:
            clock.advance(1)
            before = await times()
            await owned.append(*facts)
            after = await times()
            for old, new in zip(before, after, strict=True):
                assert new in (old, clock.wall())
            return after[0] != before[0], after[1] != before[1]

        assert await times() == (clock.wall(), 0)
        assert await moved(said("x")) == (True, True)
        assert await moved(e.TurnStarted((3,))) == (True, False)
        turn = 4
        assert await moved(e.ModelCalled(turn)) == (True, False)
        assert await moved(e.ModelReplied(5, (e.Text("ok"), e.ToolCall("c", "run", "{}")))) == (True, True)
        assert await moved(e.ToolStarted(turn, "c", "run", "{}")) == (True, False)
        assert await moved(e.ToolFinished(turn, "c", "ok", tool=7)) == (True, False)
        assert await moved(e.TurnEnded(turn, "completed")) == (True, False)
        for fact in (
            e.SessionRenamed("new"), e.SessionPinned(), e.SessionTagged(("a",)), e.SessionArchived(), e.SessionUnarchived(),
            e.SettingsChanged(model="m"), e.SessionRepointed("/w", "p"), e.RulesLoaded("ask", True), e.SessionEnded(),
            e.SessionReopened(), e.SessionTrashed(), e.SessionRestored(), e.RecordErased(3), e.SessionShared("s", 3),
        ):  # fmt: skip
            assert await moved(fact) == (False, False), fact
        before = await times()
        clock.advance(1)
        await owned.release()
        await (await journal.take(session)).release()
        await journal.kept(session, "v", 1)
        assert await times() == before
        clock.set_wall(5)
        await journal.append(session, said("the clock was set back"))
        assert await times() == (before[0], before[0])

    async def test_filters_hide_and_count_says_how_many_there_are(self, journal: Journal) -> None:
        active, archived, ended, trashed = [await begun(journal, project_key="p") for _ in range(4)]
        elsewhere = await begun(journal, project_key="/ü \udc80\0")
        await journal.append(archived, e.SessionArchived())
        await journal.append(ended, e.SessionEnded())
        await journal.append(trashed, e.SessionTrashed())
        for state, expected in (
            ("active", {active, elsewhere}), ("archived", {archived}), ("ended", {ended}), ("trashed", {trashed}), ("moved", set()),
        ):  # fmt: skip
            wanted = Wanted(states=(state,))
            assert {x.id for x in await journal.sessions(wanted)} == expected
            assert await journal.count(wanted) == len(expected)
        assert set(await _listed(journal, Wanted(limit=1, project="p", states=("active", "ended")))) == {
            active,
            ended,
        }
        assert await journal.count(Wanted(project="p")) == 4
        assert await _listed(journal, Wanted(project="/ü \udc80\0")) == [elsewhere]
        assert await journal.count(Wanted(project="nothing")) == 0
        assert await journal.count(Wanted(states=())) == 0
        assert len(await journal.sessions()) == await journal.count() == 5

    async def test_every_session_is_visited_by_its_id(self, journal: Journal) -> None:
        sessions = set(await asyncio.gather(*(journal.create() for _ in range(25))))
        await journal.append(next(iter(sessions)), e.SessionTrashed())
        visited: list[str] = []
        while page := await journal.read_store(journal.store.ids, visited[-1] if visited else "", 7):
            visited += page
        assert visited == sorted(sessions)

    async def test_who_owes_something_is_runnable_the_longest_waiting_first(
        self, journal: Journal, clock: ManualClock
    ) -> None:
        first, second, note, stored = [await begun(journal) for _ in range(4)]
        assert await journal.runnable() == []
        await journal.append(first, said())
        clock.advance(1)
        await journal.append(second, said())
        await journal.append(note, e.MessageSent(parts=(e.Text("n"),), role="note"))
        await journal.append(stored, e.MessageSent(parts=(e.Text("n"),), run=False))
        assert await journal.runnable() == [first, second]
        assert await journal.runnable(limit=1) == [first]
        clock.advance(1)
        await journal.append(stored, e.RunAsked())
        assert set(await journal.runnable()) == {first, second, stored}
        owned = await journal.take(first)
        turn = await answering(owned, "c")
        assert first in await journal.runnable()
        asked = (await owned.append(e.ApprovalAsked(turn, "c", "run", "?")))[-1].seq
        assert first not in await journal.runnable()
        await journal.append(first, e.ApprovalAnswered(asked, "once"))
        assert first in await journal.runnable()
        await owned.append(e.ToolFinished(turn, "c", "denied"), e.ModelCalled(turn))
        call = (await journal.head(first)).upto
        later = clock.wall() + 5_000_000
        await owned.append(e.ModelLost(call, "overloaded", retry_at=later))
        assert first not in await journal.runnable()
        clock.advance(6)
        assert first in await journal.runnable()
        await owned.append(e.TurnEnded(turn, "failed"))
        await journal.append(first, e.MessageWithdrawn(2))
        assert first not in await journal.runnable()

    # --- names

    async def test_a_session_answers_to_its_id_a_prefix_of_six_and_its_title(self, journal: Journal) -> None:
        one = await begun(journal, session="abcdef1234", title="Fix the ünïcode")
        two = await begun(journal, session="abcdxy1234", title="Two")
        assert await journal.resolve("abcdef1234") == one
        assert await journal.resolve("ABCDEF1234") == one
        assert await journal.resolve("abcdef") == one
        assert await journal.resolve("AbCdXy1") == two
        assert await journal.resolve("Fix the ünïcode") == one
        with pytest.raises(errors.PrefixTooShort) as short:
            await journal.resolve("abcd")
        assert short.value.candidates == (one, two)
        with pytest.raises(errors.SessionNotFound) as none:
            await journal.resolve("abcdefzzz")
        assert none.value.candidates == (one,)
        for name in ("fix the ünïcode", "zzzzzz", "Fix", "", "  ", "\ud800", "abcdef1234\0"):
            with pytest.raises(errors.SessionNotFound):
                await journal.resolve(name)

    async def test_a_name_that_several_answer_to_is_refused_and_they_are_told(
        self, journal: Journal, clock: ManualClock
    ) -> None:
        sessions = []
        for n in range(12):
            sessions.append(
                await begun(journal, session=f"same-prefix-{n:02}", title="Twin" if n < 3 else "")
            )
            clock.advance(1)
        with pytest.raises(errors.AmbiguousPrefix) as prefix:
            await journal.resolve("same-prefix")
        assert prefix.value.candidates == tuple(sessions[:10])
        with pytest.raises(errors.AmbiguousPrefix) as title:
            await journal.resolve("Twin")
        assert title.value.candidates == (sessions[2], sessions[1], sessions[0])
        await journal.append(sessions[0], e.SessionTrashed())
        await journal.append(sessions[1], e.SessionRenamed("Other"))
        assert await journal.resolve("Twin") == sessions[2]
        assert await journal.resolve(sessions[0]) == sessions[0]

    async def test_an_id_is_found_before_longer_ones_that_begin_with_it(self, journal: Journal) -> None:
        for id in ("prefix12", "prefix", "prefix1", "pre"):
            await begun(journal, session=id, title="prefix1")
        for id in ("prefix12", "prefix", "prefix1", "pre"):
            assert await journal.resolve(id) == id

    @pytest.mark.parametrize("title", [text for text in NASTY if text.strip()])
    async def test_a_title_may_be_any_text_and_is_found_as_it_is_shown(
        self, journal: Journal, title: str
    ) -> None:
        await begun(journal)
        session = await begun(journal, title=title)
        shown = (await journal.head(session)).head.title
        shown.encode()
        assert await journal.resolve(shown) == session
        assert [x.head.title for x in await journal.sessions() if x.id == session] == [shown]

    # --- content of every kind

    @pytest.mark.parametrize("text", NASTY)
    async def test_any_text_is_kept_as_it_is(self, journal: Journal, another: Journal, text: str) -> None:
        session = await journal.create(
            e.SessionCreated(session="", workspace=f"/w/{text}", project_key=text, title=text, persona=text),
            said(text),
        )
        owned = await journal.take(session)
        turn = await answering(owned, text or "empty")
        call = e.ToolStarted(turn, text or "empty", text, text)
        tool = (await owned.append(call))[-1].seq
        facts = (
            e.ToolSpoke(tool, 1, text), e.ToolFinished(turn, text or "empty", "ok", (e.Text(text),), tool, pieces=1),
            e.SessionTagged((text,)), e.SessionRenamed(text), e.RecordImported(text, text),
        )  # fmt: skip
        await owned.append(*facts)
        events = await whole(another, session)
        assert events[0].fact.workspace == f"/w/{text}"  # type: ignore[union-attr]
        assert tuple(x.fact for x in events[-5:]) == facts
        assert call in [x.fact for x in events]
        assert await faults(another, session) == []
        assert [x.id for x in await another.sessions(Wanted(project=text))] == [session]

    async def test_five_megabytes_are_a_fact_like_any_other(self, journal: Journal, another: Journal) -> None:
        session = await begun(journal)
        long = "".join(f"{n} ü\u2028\0" for n in range(600_000))
        assert len(long.encode()) > 5_000_000
        appended = await journal.append(session, said(long), key="k")
        await journal.append(session, said("after"))
        assert (await journal.append(session, said(long), key="k")).repeated
        assert (await another.read(session, after=1, limit=1)).events == list(appended.events)
        assert texts((await another.last(session, limit=2)).events) == [long, "after"]
        assert await faults(another, session) == []

    @pytest.mark.parametrize("seed", [1, 2, 3])
    async def test_a_long_lawful_session_is_read_as_it_was_written(
        self, journal: Journal, another: Journal, seed: int
    ) -> None:
        events = lawful(seed, 150)
        session = await replay(journal, events, together=1 + seed)
        stored = await whole(another, session)
        assert [(x.seq, x.fact) for x in stored] == [(x.seq, x.fact) for x in events]
        assert await faults(another, session) == []
        assert await refolded(another, session) == (await journal.head(session)).head

    # --- blobs

    async def test_content_is_stored_with_the_fact_that_names_it(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal)
        for content in (
            b"",
            b"small",
            b"text " * 100_000,
            bytes(range(256)) * 99,
            sha256(b"x").digest() * 1000,
        ):
            blob = blob_of(content, "image/png", "ü.png")
            await journal.append(session, e.MessageSent((blob,)), blobs=[content])
            assert await another.blob(blob) == content

    async def test_the_same_content_is_stored_once(self, journal: Journal, another: Journal) -> None:
        one, two = await begun(journal), await begun(journal)
        content = b"the same" * 1000
        fact = e.MessageSent((blob_of(content),))
        await asyncio.gather(
            *(
                (journal, another)[n % 2].append((one, two)[n % 2], fact, blobs=[content, content])
                for n in range(10)
            )
        )
        assert await journal.blob(blob_of(content)) == content

    async def test_content_that_is_missing_or_damaged_is_named(self, journal: Journal) -> None:
        session = await begun(journal)
        with pytest.raises(errors.NotStorable, match="is not in"):
            await journal.blob(blob_of(b"never stored"))
        for packed in (True, False):
            blob = blob_of(b"damaged" + bytes([packed]))
            row = BlobRow(bytes.fromhex(blob.hash), blob.size, packed, b"something else")
            await journal.submit(Append(session, (e.MessageSent((blob,)),), blobs=(row,)))
            with pytest.raises(errors.NotStorable, match="damaged"):
                await journal.blob(blob)
        for hash in ("", "zz", "ab", "\ud800"):
            with pytest.raises(errors.NotStorable):
                await journal.blob(e.Blob(hash, 1))

    # --- kept folds and the desk

    async def test_a_kept_fold_is_found_by_its_view_and_version(
        self, journal: Journal, another: Journal
    ) -> None:
        session, other = await begun(journal, 5), await begun(journal, 5)
        kept = Kept("turn", 3, 4, bytes(range(256)))
        await journal.keep(session, kept)
        await journal.keep(session, Kept("context", 1, 2, b"c"))
        assert await another.kept(session, "turn", 3) == kept
        assert await another.kept(session, "turn", 2) is None
        assert await another.kept(session, "turn", 4) is None
        assert await another.kept(session, "cost", 3) is None
        assert await another.kept(other, "turn", 3) is None
        newer = Kept("turn", 4, 5, b"newer")
        await another.keep(session, newer)
        assert await journal.kept(session, "turn", 4) == newer

    async def test_a_kept_fold_that_is_forgotten_is_gone(self, journal: Journal) -> None:
        session = await begun(journal, 1)
        kept = Kept("turn", 1, 2, b"x")
        await journal.keep(session, kept)
        await journal.write(journal.store.forget, await stretch_of(journal, session), kept)
        assert await journal.kept(session, "turn", 1) is None
        assert await faults(journal, session) == []

    async def test_the_desk_holds_the_last_value(self, journal: Journal, another: Journal) -> None:
        assert await journal.desk("draft", "ü 👨‍👩‍👧") is None
        for value in (b"one", b"", bytes(range(256)) * 1000):
            await journal.put_on_desk("draft", "ü 👨‍👩‍👧", value)
            assert await another.desk("draft", "ü 👨‍👩‍👧") == value
        assert await journal.desk("draft", "ü") is None
        assert await journal.desk("mark", "ü 👨‍👩‍👧") is None
        await another.put_on_desk("draft", "ü 👨‍👩‍👧", None)
        assert await journal.desk("draft", "ü 👨‍👩‍👧") is None
        with pytest.raises(errors.NotStorable):
            await journal.put_on_desk("draft", "\ud800\0", b"x")

    # --- newer builds, damage

    async def test_a_fact_of_a_newer_build_is_carried_and_its_session_only_read(
        self, journal: Journal, another: Journal
    ) -> None:
        session, other = await begun(journal, 2), await begun(journal, 2)
        owned = await journal.take(session)
        await self.inject(journal, session, await _of_newer_build(journal, session))
        for j in (journal, another):
            fact = (await whole(j, session))[-1].fact
            assert isinstance(fact, e.Unknown)
            assert fact.kind == "DreamDreamt"
            assert b"sheep" in fact.data
            assert (await j.head(session)).head.read_only
            for refused in (
                lambda j=j: j.append(session, said()), lambda: owned.append(e.TurnStarted((2,))), lambda j=j: j.fork(session),
            ):  # fmt: skip
                with pytest.raises(errors.SessionReadOnly):
                    await refused()
        assert len(await heard(another, session, 5)) == 5
        assert {x.id for x in await journal.sessions()} == {session, other}
        fork = await journal.fork(session, at=3)
        await journal.append(fork, said("before that fact nothing was unknown"))
        await journal.append(other, said())

    async def test_a_damaged_row_is_an_event_that_says_so(self, journal: Journal, another: Journal) -> None:
        session, other = await begun(journal, 2), await begun(journal, 2)
        row = await _of_newer_build(journal, session)
        flipped = row.data[:-3] + bytes([row.data[-3] ^ 1]) + row.data[-2:]
        await self.inject(journal, session, Row(row.seq, flipped, row.checksum, row.seal))
        events = await whole(another, session)
        assert [x.seq for x in events] == [1, 2, 3, 4]
        assert isinstance(events[-1].fact, e.Unreadable)
        assert texts(events) == ["1", "2"]
        assert await faults(journal, other) == []
        await journal.append(session, said("on"))
        assert texts(await whole(another, session)) == ["1", "2", "on"]


async def _of_newer_build(journal: Journal, session: str) -> Row:
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


async def _forwards(journal: Journal, session: str, limit: int) -> list[Page]:
    pages = [await journal.read(session, limit=limit)]
    while pages[-1].more:
        pages.append(await journal.read(session, after=pages[-1].upto, limit=limit))
        assert pages[-1].events
    return pages


async def _backwards(journal: Journal, session: str, limit: int) -> list[Page]:
    pages = [await journal.last(session, limit=limit)]
    while pages[-1].more:
        pages.append(await journal.last(session, before=pages[-1].events[0].seq, limit=limit))
        assert pages[-1].events
    return pages


async def _listed(journal: Journal, wanted: Wanted) -> list[str]:
    """All pages of a list."""
    found: list[str] = []
    place = wanted.after
    while page := await journal.sessions(Wanted(wanted.states, wanted.project, place, wanted.limit)):
        found += [x.id for x in page]
        place = (page[-1].head.updated_at, page[-1].id)
    return found
