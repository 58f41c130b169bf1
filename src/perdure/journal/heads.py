"""Heads to and from their stored form. A head is derived: one that is old or will not parse is folded anew."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from msgspec import Struct

from perdure.codec import pack, unpack
from perdure.events import Event
from perdure.views.head import VERSION, Head

log = logging.getLogger("perdure.journal")


class Packed(Struct, frozen=True, array_like=True):
    version: int
    head: Head


class HeadCache:
    """Remembers what the last few stored heads decode to; the bytes in the row decide whether it still holds."""

    EMPTY = Head()
    _MOST = 512

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}

    @staticmethod
    def pack(head: Head) -> bytes:
        return pack(Packed(VERSION, head))

    def packed(self, head: Head) -> bytes:
        data = self.pack(head)
        self._remember(data, head)
        return data

    def read(self, data: bytes, events: Callable[[], Iterable[Event]]) -> Head:
        """The head in `data`, or a fresh fold of `events()` if this build cannot take it as it is."""
        known = self._known.get(data)
        if known is not None:
            return known
        try:
            packed = unpack(data, Packed)
            if packed.version == VERSION:
                self._remember(data, packed.head)
                return packed.head
        except ValueError as why:
            log.warning("load error", extra={"what": "head", "why": str(why)})
        # Not remembered: the same damaged bytes (none at all, for one) may stand in several sessions' rows.
        return fold(events())

    def clear(self) -> None:
        self._known.clear()

    def _remember(self, data: bytes, head: Head) -> None:
        if len(self._known) >= self._MOST:
            self._known.clear()
        self._known[data] = head


def unpacked(data: bytes) -> Head:
    """The head that `HeadCache.pack` was given. Raises `ValueError` for other bytes."""
    return unpack(data, Packed).head


def fold(events: Iterable[Event], head: Head = HeadCache.EMPTY) -> Head:
    for event in events:
        head = head.after(event)
    return head
