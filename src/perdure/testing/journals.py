"""What a test asks of a journal as a whole: everything in it, its chain, its head folded anew, a copy of a session."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import structs

from perdure.events import Erased, Event, SessionCreated
from perdure.grammar import offences
from perdure.journal import Journal
from perdure.journal.heads import fold
from perdure.journal.rows import LINK, SALT, link_of, linked, plain_bytes
from perdure.journal.store import Append, Store, Stored, walk
from perdure.testing.clock import ManualClock
from perdure.views.head import Head

STEP = 200


async def whole(journal: Journal, session: str) -> list[Event]:
    return [event async for event in journal.events(session)]


async def refolded(journal: Journal, session: str) -> Head:
    """The head as the journal's events alone say it is."""
    return fold(await whole(journal, session))


async def faults(journal: Journal, session: str) -> list[str]:
    """Whatever is wrong with a session, in sentences: its order, its grammar, its chain, its head."""
    events = await whole(journal, session)
    listed = await journal.head(session)
    found = list(offences(events))
    found += [f"{b.seq} follows {a.seq}" for a, b in pairwise(events) if b.seq <= a.seq]
    if not events or listed.upto < events[-1].seq:
        found.append(f"the head is at {listed.upto}, the last event at {events[-1].seq if events else 0}")
    if fold(events) != listed.head:
        found.append("the head is not what its events fold to")
    return found + await journal.read_store(broken_links, journal.store, session)


def broken_links(store: Store, session: str) -> list[str]:
    """The chain computed anew from the stored bytes: every fact covers the one before it, back to the first."""
    stored = store.session(session)
    if stored is None:
        return [f"there is no session {session}"]
    found: list[str] = []
    chain = b""
    for seq, data, seal in _sealed(store, stored):
        if seal is None:
            continue
        if len(seal) == SALT + LINK and linked(chain, seal[:SALT], plain_bytes(data)) != link_of(seal):
            found.append(f"{seq}: its link does not follow from the link before it and its bytes")
        elif len(seal) != SALT + LINK and data:
            found.append(f"{seq}: its seal has {len(seal)} bytes")
        chain = link_of(seal)
    if chain != stored.chain:
        found.append("the chain does not end where the session's row says")
    return found


def _sealed(store: Store, stored: Stored) -> list[tuple[int, bytes, bytes | None]]:
    found: list[tuple[int, bytes, bytes | None]] = []
    low = 0
    for stretch, upto in walk(stored):
        while page := store.seals(stretch, low, upto, STEP):
            found += [(seq, data, seal) for seq, data, _, seal in page]
            low = page[-1][0]
        low = upto
    return found


async def replay(
    journal: Journal,
    events: Sequence[Event],
    session: str = "",
    *,
    together: int = 1,
    clock: ManualClock | None = None,
) -> str:
    """Append the facts of a recorded session to a new one, called `session` or as it was, and return its id.

    The facts stand at the seqs they had, if none is missing; and at the times they had, if `clock` is the journal's and
    each is appended by itself. `together` is how many may share an append.
    """
    born = events[0].fact
    if not isinstance(born, SessionCreated):
        raise ValueError("a recorded session begins with SessionCreated")
    if any(isinstance(event.fact, Erased) for event in events):
        raise ValueError("an erased record cannot be appended again")
    at = 0
    if clock:
        clock.set_wall(events[at].ts)
    id = await journal.create(structs.replace(born, session=session or born.session), key=events[0].key)
    for append in _appends(id, events[1:], together):
        at += len(append.facts)
        if clock:
            clock.set_wall(events[at].ts)
        await journal.submit(append)
    return id


def _appends(id: str, events: Sequence[Event], together: int) -> list[Append]:
    """One owner, and one key at the front, to each."""
    found: list[Append] = []
    for event in events:
        last = found[-1] if found else None
        full = last is None or len(last.facts) >= together or event.key is not None
        if last is None or full or (event.epoch and last.epoch not in (0, event.epoch)):
            found.append(Append(id, (event.fact,), epoch=event.epoch, key=event.key))  # type: ignore[arg-type]
        else:
            found[-1] = Append(
                id,
                (*last.facts, event.fact),  # type: ignore[arg-type]
                epoch=event.epoch or last.epoch,
                key=last.key,
            )
    return found
