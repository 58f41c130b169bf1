"""Reading a session across the stretches it is made of."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from operator import attrgetter

from perdure.errors import SessionNotFound
from perdure.events import Event, Unreadable
from perdure.journal.admit import HEAD_VIEW
from perdure.journal.heads import fold, unpacked
from perdure.journal.names import is_id
from perdure.journal.rows import link_of
from perdure.journal.store import Fork, Lineage, Page, Store, Stored, walk
from perdure.views.head import VERSION, Head

log = logging.getLogger("perdure.journal")

STEP = 1000
_KIND = attrgetter("fact.__class__")


def stored_session(store: Store, session: str) -> Stored:
    stored = store.session(session) if is_id(session) else None
    if stored is None:
        raise SessionNotFound(session)
    return stored


def forwards(store: Store, session: str, after: int, limit: int) -> Page:
    return _noticed(session, _forwards(store, stored_session(store, session), after, limit))


def backwards(store: Store, session: str, before: int | None, limit: int) -> Page:
    return _noticed(session, _backwards(store, stored_session(store, session), before, limit))


def _noticed(session: str, page: Page) -> Page:
    """Reading goes on around what is damaged, so the log says what was."""
    if Unreadable in map(_KIND, page.events):  # all of it in C: this is on the way of every event
        for event in page.events:
            if isinstance(event.fact, Unreadable):
                log.error("load error", extra={"session": session, "seq": event.seq, "why": event.fact.why})
    return page


def _forwards(store: Store, stored: Stored, after: int, limit: int) -> Page:
    events: list[Event] = []
    for stretch, upto in walk(stored):
        if after >= upto:
            continue
        if len(events) == limit:  # every stretch holds a fact at least
            return Page(events, events[-1].seq, True)
        page = store.events(stretch, after, upto, limit - len(events), False)
        events += page.events
        if page.more:
            return Page(events, events[-1].seq, True)
        after = upto
    return Page(events, stored.head, False)


def _backwards(store: Store, stored: Stored, before: int | None, limit: int) -> Page:
    last = stored.head if before is None else max(min(before - 1, stored.head), 0)
    events: list[Event] = []
    for stretch, low, high in reversed(list(spans(stored, last))):
        if len(events) == limit:
            return Page(events, last, True)
        page = store.events(stretch, low, high, limit - len(events), True)
        events = page.events + events
        if page.more:
            return Page(events, last, True)
    return Page(events, last, False)


def everything(store: Store, stored: Stored, upto: int, *, after: int = 0) -> Iterator[Event]:
    """Every event with after < seq <= upto, a page at a time."""
    for stretch, start, high in spans(stored, upto):
        low, more = max(start, after), high > after
        while more:
            page = store.events(stretch, low, high, STEP, False)
            yield from page.events
            low, more = page.events[-1].seq if page.events else high, page.more


def forked(store: Store, session: str, at: int | None) -> Fork:
    """All that a session which leaves this one at `at` has to know: nothing is copied."""
    stored = stored_session(store, session)
    if at is None or at == stored.head:
        return Fork(_cut(stored, stored.head), stored.head, stored.chain, stored.folded)
    return Fork(_cut(stored, at), at, chain_at(store, stored, at), head_at(store, stored, at))


def head_at(store: Store, stored: Stored, at: int) -> Head:
    """What the head was at `at`, folded from the last one that was kept before it."""
    for stretch, _, high in reversed(list(spans(stored, at))):
        if kept := store.kept(stretch, HEAD_VIEW, VERSION, high):
            since = unpacked(kept.state)
            return fold((e for e in everything(store, stored, at, after=kept.upto)), since)
    return fold(everything(store, stored, at))


def spans(stored: Stored, upto: int) -> Iterator[tuple[int, int, int]]:
    """(stretch, after, upto) of each stretch, as far as `upto`."""
    low = 0
    for stretch, high in walk(stored):
        if low < min(high, upto):
            yield stretch, low, min(high, upto)
        low = high


def _cut(stored: Stored, at: int) -> Lineage:
    return tuple((stretch, high) for stretch, _, high in spans(stored, at))


def chain_at(store: Store, stored: Stored, at: int) -> bytes:
    """The link of the last fact up to `at`. Pieces have none, and a place at rest has few of them before it."""
    for stretch, low, high in reversed(list(spans(stored, at))):
        while high > low:
            since = max(low, high - 64)
            links = [link_of(seal) for _, _, _, seal in store.seals(stretch, since, high, 64) if seal]
            if links:
                return links[-1]
            high = since
    return b""
