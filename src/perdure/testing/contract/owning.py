"""One process runs a session; one that was replaced finds out and has changed nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import errors
from perdure import events as e
from perdure.journal import Journal, blob_of
from perdure.journal.clock import boot_id
from perdure.journal.store import Append, ProcessRow
from perdure.testing.clock import ManualClock
from perdure.testing.contract.place import Place
from perdure.testing.contract.telling import (
    begun,
    but,
    expire,
    said,
)
from perdure.testing.journals import faults, whole


class Owning(Place):
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
        await (await journal.take(session)).append(e.PhaseChanged(6, "prepare"))
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

    async def test_an_owner_whose_lock_nobody_sees_is_gone_when_its_lease_is(self, journal: Journal) -> None:
        session = await begun(journal)
        await journal.append(
            session, e.OwnerChanged(epoch=1, process="faraway", owner_kind="worker", host="far")
        )
        row = ProcessRow("faraway", "{}", "far", boot_id(), "/nowhere.lock", False)
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
        assert not owned.may_act()  # another may have had the session in between
        again = await journal.take(owned.session)
        assert again.may_act()
        with pytest.raises(errors.NotOwner):
            await owned.append(e.SessionPinned())

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

    async def test_an_owner_s_append_out_of_turn_is_refused(self, journal: Journal) -> None:
        for number in (2, 3, 900):
            session = await begun(journal, 1)
            owned = await journal.take(session)
            with pytest.raises(errors.NotOwner, match="follows"):
                await journal.submit(
                    Append(session, (e.TurnStarted((2,)),), epoch=owned.epoch, number=number)
                )
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
