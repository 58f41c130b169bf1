"""Pages, forks, and content of every kind, back as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256

import pytest

from perdure import errors
from perdure import events as e
from perdure.journal import Journal, Wanted, blob_of
from perdure.journal.store import Append, BlobRow
from perdure.testing.contract.place import Place
from perdure.testing.contract.telling import (
    NO_FACTS,
    NO_IDS,
    NOBODY,
    answering,
    begun,
    pages_backwards,
    pages_forwards,
    said,
    stretch_of,
    texts,
)
from perdure.testing.journals import faults, refolded, replay, whole
from perdure.testing.lively import NASTY, lawful


class Reading(Place):
    async def test_pages_in_either_direction_add_up_across_forks(self, journal: Journal) -> None:
        for limit in (1, 2, 3, 7, 100):
            root = await begun(journal, 6)
            middle = await journal.fork(root, at=5)
            await journal.append(middle, *(said(f"m{n}") for n in range(4)))
            leaf = await journal.fork(middle, at=8)
            await journal.append(leaf, *(said(f"l{n}") for n in range(3)))
            early = await journal.fork(leaf, at=3)
            for session, length in ((root, 7), (middle, 10), (leaf, 12), (early, 4)):
                events = await whole(journal, session)
                assert [x.seq for x in events] == list(range(1, length + 1))
                assert [
                    x for page in await pages_forwards(journal, session, limit) for x in page.events
                ] == events
                back = await pages_backwards(journal, session, limit)
                assert [x for page in reversed(back) for x in page.events] == events
                assert await faults(journal, session) == []
            assert texts(await whole(journal, leaf)) == ["1", "2", "3", "4", "m0", "m1", "l0", "l1", "l2"]

    async def test_before_the_first_there_is_nothing(self, journal: Journal) -> None:
        session = await begun(journal, 3)
        for before in (1, 0, -5):
            page = await journal.last(session, before=before)
            assert (page.events, page.upto, page.more) == ([], 0, False)

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

    async def test_a_limit_is_at_least_one(self, journal: Journal) -> None:
        session = await begun(journal, 1)
        asks: list[Callable[[int], Awaitable[object]]] = [
            lambda limit: journal.read(session, limit=limit),
            lambda limit: journal.last(session, limit=limit),
            lambda limit: journal.sessions(Wanted(limit=limit)),
            lambda limit: journal.runnable(limit=limit),
        ]
        for ask in asks:
            for limit in (0, -1, -(1 << 40)):
                with pytest.raises(errors.NotStorable, match="at least 1"):
                    await ask(limit)

    async def test_a_session_that_is_not_there_is_not_found_by_anyone(self, journal: Journal) -> None:
        await begun(journal)
        asks: list[Callable[[str], Awaitable[object]]] = [
            lambda session: journal.append(session, said()),
            journal.read,
            journal.last,
            journal.head,
            journal.fork,
            journal.take,
            lambda session: journal.kept(session, "v", 1),
            journal.resolve,
            lambda session: anext(journal.follow(session)),
        ]
        for session in NOBODY:
            for ask in asks:
                with pytest.raises(errors.SessionNotFound):
                    await ask(session)
        assert await journal.count() == 1

    async def test_an_id_is_lower_case_letters_and_digits(self, journal: Journal) -> None:
        for id in NO_IDS:
            with pytest.raises(errors.NotStorable, match="is no id"):
                await journal.create(e.SessionCreated(session=id))
            assert await journal.count() == 0

    async def test_an_append_of_nothing_is_refused(self, journal: Journal) -> None:
        session = await begun(journal)
        with pytest.raises(errors.NotStorable, match="at least one fact"):
            await journal.append(session)

    async def test_what_could_not_be_read_back_is_not_stored(self, journal: Journal) -> None:
        session = await begun(journal)
        for fact in NO_FACTS:
            with pytest.raises(errors.NotStorable):
                await journal.append(session, said("before"), fact)  # type: ignore[arg-type]
        assert len(await whole(journal, session)) == 1
        assert not (await journal.head(session)).head.read_only

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

    async def test_any_text_is_kept_as_it_is(self, journal: Journal, another: Journal) -> None:
        for n, text in enumerate(NASTY):
            project = f"{text} {n}"
            born = e.SessionCreated("", "api", f"/w/{text}", project, title=text, persona=text)
            session = await journal.create(born, said(text))
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
            assert [x.id for x in await another.sessions(Wanted(project=project))] == [session]

    async def test_two_halves_of_a_character_are_that_character(
        self, journal: Journal, another: Journal
    ) -> None:
        session = await begun(journal)
        halves = "\ud83d" + "\ude00"
        appended = await journal.append(session, said(halves), key="k")
        assert texts(appended.events) == texts(await whole(another, session)) == ["\U0001f600"]
        assert (await another.append(session, said(halves), key="k")).repeated
        assert (await another.append(session, said("\U0001f600"), key="k")).repeated
        owned = await journal.take(session)
        append = Append(session, (e.TaskSet(halves),), epoch=owned.epoch, number=1)
        assert not (await journal.submit(append)).repeated
        assert (await journal.submit(append)).repeated

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
