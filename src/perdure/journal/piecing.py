"""Putting the events of one stretch together again, by their chain.

Rows that were found in a damaged file prove by their checksum what they say, not where they belong: a wrong bit in a
row's number puts it into another session, an old page brings back what was erased since. The chain tells. Of several
rows that claim one place the one that continues it is right, and one that the next fact passes over does not belong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from perdure.events import (
    Erased,
    Event,
    ModelCalled,
    ModelLost,
    ModelReplied,
    ModelSpoke,
    RecordErased,
    ToolFinished,
    ToolSpoke,
    ToolStarted,
)
from perdure.journal.rows import SALT, checksum, event_in, link_of, linked, plain_bytes
from perdure.journal.store import RawEvent, Receiver, Stored, walk

STEP = 1000


@dataclass(slots=True)
class Pieced:
    """What became of a stretch."""

    kept: int = 0
    last: int = 0
    """The last seq there is, and the last one of a fact."""
    last_fact: int = 0
    link: bytes = b""
    missing: list[str] = field(default_factory=list)
    strays: int = 0
    """Rows that another session's number had been damaged into."""
    pieces: set[int] = field(default_factory=set)
    """Since the last fact."""
    to_erase: dict[int, str] = field(default_factory=dict)
    """Records that a fact says were erased, with their links."""


def piece_together(
    store: Receiver, stretch: int, begin: int, start: bytes, rivals: dict[int, list[RawEvent]]
) -> Pieced:
    """Keep the rows of a stretch that belong to it, and say which are missing between them. `start` is the link
    before its first fact."""
    pieced = Pieced(link=start, last=begin, last_fact=begin)
    calls: dict[int, _Call] = {}
    places = _with_next(_places(store, stretch, rivals))
    for seq, candidates, following in places:
        chosen = _chosen(candidates, following, pieced.link)
        if chosen is None:
            store.remove(stretch, seq)
            pieced.strays += 1
            continue
        if chosen is not candidates[0]:
            store.replace(chosen)
        event = event_in(seq, chosen.data, chosen.checksum)
        _note_gap(pieced, seq, chosen, event)
        pieced.kept += not isinstance(event.fact, Erased)
        pieced.last = seq
        if chosen.seal is None:
            pieced.pieces.add(seq)
        else:
            pieced.last_fact, pieced.link = seq, link_of(chosen.seal)
            pieced.pieces.clear()
        if isinstance(event.fact, RecordErased):
            pieced.to_erase[event.fact.record] = event.fact.hash
        pieced.missing += _pieces_missing(calls, event)
    for call, pieces in calls.items():
        pieced.missing += pieces.missing(call, max(pieces.numbers, default=0))
    return pieced


def _places(
    store: Receiver, stretch: int, rivals: dict[int, list[RawEvent]]
) -> Iterator[tuple[int, list[RawEvent]]]:
    """Every seq at which there is anything, with what claims it; what is stored comes first."""
    after = 0
    while page := store.seals(stretch, after, (1 << 32) - 1, STEP):
        for seq, data, check, seal in page:
            yield seq, [RawEvent(stretch, seq, data, check, seal), *rivals.get(seq, [])]
        after = page[-1][0]


def _with_next(
    places: Iterator[tuple[int, list[RawEvent]]],
) -> Iterator[tuple[int, list[RawEvent], list[RawEvent]]]:
    """Each place with the candidates for the fact that comes next, and with none for the last."""
    waiting: list[tuple[int, list[RawEvent]]] = []
    for place in places:
        if any(one.seal is not None for one in place[1]):
            yield from ((*held, place[1]) for held in waiting)
            waiting = []
        waiting.append(place)
    yield from ((*held, []) for held in waiting)


def _chosen(candidates: list[RawEvent], following: list[RawEvent], link: bytes) -> RawEvent | None:
    facts = [one for one in candidates if one.seal is not None]
    if not facts:
        return candidates[0]
    for one in facts:
        if not one.data:
            return one  # erased: whatever else claims this place is what was erased
    for one in facts:
        if _continues(one, link):
            return one
    for one in facts:
        if any(_continues(after, link_of(one.seal or b"")) for after in following):
            return one
    if any(_continues(after, link) for after in following):
        return None  # the next fact continues the one before: nothing ever stood between them
    return facts[0]


def _continues(one: RawEvent, link: bytes) -> bool:
    if one.seal is None or len(one.seal) <= len(link_of(one.seal)) or not one.data:
        return False
    return linked(link, one.seal[:SALT], plain_bytes(one.data)) == link_of(one.seal)


def _note_gap(pieced: Pieced, seq: int, chosen: RawEvent, event: Event) -> None:
    """A break in the chain is a fact that is missing between the last one and this one. (Where all that is missing is
    pieces, the chain holds.)"""
    if chosen.seal is None or isinstance(event.fact, Erased) or _continues(chosen, pieced.link):
        return
    gone = ranges(n for n in range(pieced.last_fact + 1, seq) if n not in pieced.pieces)
    why = (
        "missing, or pieces of something that is missing"
        if gone
        else "it does not continue what is before it"
    )
    pieced.missing.append(f"seq {gone or seq}: {why}")


def ranges(numbers: Iterable[int]) -> str:
    """`3, 5 to 7`: numbers in ascending order, for people."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in spans)


@dataclass(slots=True)
class _Call:
    numbers: set[int] = field(default_factory=set)

    def missing(self, call: int, said: int) -> list[str]:
        gone = sorted(set(range(1, said + 1)) - self.numbers)
        return [f"pieces {ranges(gone)} of call {call}: missing"] if gone and self.numbers else []


def _pieces_missing(calls: dict[int, _Call], event: Event) -> list[str]:
    match event.fact:
        case ModelCalled() | ToolStarted():
            calls[event.seq] = _Call()
        case ModelSpoke(call=of, number=number) | ToolSpoke(tool=of, number=number):
            calls.setdefault(of, _Call()).numbers.add(number)
        case ModelReplied(call=of, pieces=said) | ModelLost(call=of, pieces=said):
            return calls.pop(of, _Call()).missing(of, said)
        case ToolFinished(tool=int(of), pieces=said):
            return calls.pop(of, _Call()).missing(of, said)
    return []


def blank(store: Receiver, whole: Stored, to_erase: dict[int, str]) -> int:
    """Erase what a fact says was erased, wherever an older page has brought it back, and say how many there were."""
    done = 0
    for record, hash in to_erase.items():
        low = 0
        for stretch, high in walk(whole):
            if low < record <= high:
                for seq, data, _, seal in store.seals(stretch, record - 1, record, 1):
                    if data and seal and (not hash or link_of(seal).hex() == hash):
                        store.replace(RawEvent(stretch, seq, b"", checksum(b""), link_of(seal)))
                        done += 1
            low = high
    return done
