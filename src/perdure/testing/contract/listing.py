"""The list of sessions, their names, what they owe, what is kept beside them."""

from __future__ import annotations

import asyncio

import pytest

from perdure import errors
from perdure import events as e
from perdure.journal import Journal, Wanted
from perdure.journal.rows import Row
from perdure.journal.store import Kept
from perdure.testing.clock import ManualClock
from perdure.testing.contract.place import Place
from perdure.testing.contract.telling import (
    all_listed,
    answering,
    begun,
    heard,
    of_newer_build,
    said,
    stretch_of,
    texts,
)
from perdure.testing.journals import faults, whole
from perdure.testing.lively import NASTY


class Listing(Place):
    async def test_the_list_is_by_activity_and_for_equal_times_by_id(
        self, journal: Journal, another: Journal
    ) -> None:
        sessions = list(await asyncio.gather(*(journal.create() for _ in range(12))))
        expected = sorted(sessions, reverse=True)
        for j in (journal, another):
            assert [x.id for x in await j.sessions()] == expected
        for limit in (1, 5, 11, 12, 13):
            assert await all_listed(journal, Wanted(limit=limit)) == expected

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
        place = first[-1].place
        assert await all_listed(journal, Wanted(limit=2, after=place)) == sessions[-4:0:-1]

    @pytest.mark.parametrize(
        "wanted",
        [
            Wanted(states="active"),  # type: ignore[arg-type]
            Wanted(states=("active", "zz")),
            Wanted(states=5),  # type: ignore[arg-type]
            Wanted(project=5),  # type: ignore[arg-type]
            Wanted(after=(1,)),  # type: ignore[arg-type]
            Wanted(after=("x", 1)),  # type: ignore[arg-type]
            Wanted(after=(1 << 64, "x")),
            Wanted(after=(1, "a\0b")),
            Wanted(after="ab"),  # type: ignore[arg-type]
            Wanted(limit=0),
            Wanted(limit="9"),  # type: ignore[arg-type]
        ],
        ids=str,
    )
    async def test_a_wish_that_makes_no_sense_is_refused(self, journal: Journal, wanted: Wanted) -> None:
        await journal.create()
        for ask in (journal.sessions(wanted), journal.count(wanted)):
            with pytest.raises(errors.NotStorable):
                await ask
        assert len(await journal.sessions(Wanted(states=(), limit=1 << 70))) == 0
        assert len(await journal.sessions(Wanted(limit=1 << 70))) == 1

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
        assert set(await all_listed(journal, Wanted(limit=1, project="p", states=("active", "ended")))) == {
            active,
            ended,
        }
        assert await journal.count(Wanted(project="p")) == 4
        assert await all_listed(journal, Wanted(project="/ü \udc80\0")) == [elsewhere]
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

    async def test_a_title_may_be_any_text_and_is_found_as_it_is_shown(self, journal: Journal) -> None:
        for n, title in enumerate(NASTY):
            session = await begun(journal, title=f"{title} {n}")
            shown = (await journal.head(session)).head.title
            shown.encode()
            assert await journal.resolve(shown) == session
            assert [x.head.title for x in await journal.sessions() if x.id == session] == [shown]

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

    async def test_a_fact_of_a_newer_build_is_carried_and_its_session_only_read(
        self, journal: Journal, another: Journal
    ) -> None:
        session, other = await begun(journal, 2), await begun(journal, 2)
        owned = await journal.take(session)
        await self.inject(journal, session, await of_newer_build(journal, session))
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
        row = await of_newer_build(journal, session)
        flipped = row.data[:-3] + bytes([row.data[-3] ^ 1]) + row.data[-2:]
        await self.inject(journal, session, Row(row.seq, flipped, row.checksum, row.seal))
        events = await whole(another, session)
        assert [x.seq for x in events] == [1, 2, 3, 4]
        assert isinstance(events[-1].fact, e.Unreadable)
        assert texts(events) == ["1", "2"]
        assert await faults(journal, other) == []
        await journal.append(session, said("on"))
        assert texts(await whole(another, session)) == ["1", "2", "on"]
