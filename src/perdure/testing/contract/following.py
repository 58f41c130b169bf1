"""Everything past a place, in order, once, for ever, whoever appends."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from perdure import errors
from perdure import events as e
from perdure.journal import Journal
from perdure.testing.contract.place import Place
from perdure.testing.contract.telling import (
    PATIENCE,
    begun,
    following,
    heard,
    said,
    stretch_of,
    texts,
    until,
)
from perdure.testing.journals import faults, whole


class Following(Place):
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
        async with asyncio.timeout(PATIENCE), aclosing(following(another, session, 0)) as events:
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
        async with asyncio.timeout(PATIENCE), aclosing(following(another, session, call)) as events:
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
