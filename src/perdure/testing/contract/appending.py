"""Creating sessions and appending to them: all of it or nothing, in order, once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from perdure import errors
from perdure import events as e
from perdure.journal import Journal, blob_of
from perdure.journal.names import ALPHABET, LENGTH
from perdure.journal.store import Append
from perdure.testing.clock import ManualClock
from perdure.testing.contract.place import Place
from perdure.testing.contract.telling import (
    PATIENCE,
    answering,
    begun,
    said,
    texts,
)
from perdure.testing.journals import faults, whole


class Appending(Place):
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

    async def test_a_key_that_is_none_is_refused(self, journal: Journal) -> None:
        session = await begun(journal)
        for key in ("", "k" * 10_000, "a\0b", "\ud800", 5):
            with pytest.raises(errors.NotStorable, match="key"):
                await journal.append(session, said(), key=key)  # type: ignore[arg-type]
            assert len(await whole(journal, session)) == 1

    async def test_what_is_no_content_is_refused(self, journal: Journal) -> None:
        session = await begun(journal)
        for content in ("x", 5, None):
            with pytest.raises(errors.NotStorable, match="a blob is bytes, not"):
                await journal.append(session, said(), blobs=[b"good", content])  # type: ignore[list-item]
        assert len(await whole(journal, session)) == 1

    async def test_what_is_no_name_of_a_session_names_none(self, journal: Journal) -> None:
        await begun(journal)
        for name in (None, 5, b"x"):
            for ask in (journal.append(name, said()), journal.head(name), journal.resolve(name)):  # type: ignore[arg-type]
                with pytest.raises(errors.SessionNotFound):
                    await ask

    async def test_a_key_may_be_any_text_of_two_hundred_characters(self, journal: Journal) -> None:
        session = await begun(journal)
        for key in ("k" * 200, "ключ", "👨‍👩‍👧", "K", "k", " ", "'"):
            assert not (await journal.append(session, said(key), key=key)).repeated
            assert (await journal.append(session, said(key), key=key)).repeated

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
