"""The row an event is stored as: its bytes, a checksum of its own, and its link in the chain.

A checksum tells damage (a flipped bit, a torn page) wherever a row is read. The chain tells tampering and loss:
each fact's link covers the link before it, a random salt, and the bytes as first written. Pieces have no link, so
they can be dropped once the fact that holds their whole text is stored. Erasing removes bytes and salt and leaves
the link: what was erased can neither be read nor guessed, and the chain still holds.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import NamedTuple

from backports import zstd
from xxhash import xxh3_64_intdigest

from perdure.codec import decode, enveloped
from perdure.events import Erased, Event, Unknown, Unreadable

PACK_FROM = 4096
"""Rows at least this long are compressed. Below it a page holds several rows and little would be won."""

SALT, LINK = 16, 32
_ZSTD = b"\x28\xb5\x2f\xfd"
_PLAIN = b"["


class Row(NamedTuple):
    seq: int
    data: bytes
    """The event's JSON, or that compressed: the first byte tells which. Empty once erased."""
    checksum: int
    seal: bytes | None
    """Salt and link; the link alone once erased; None for a piece."""


def row_of(event: Event, fact: bytes, chain: bytes) -> tuple[Row, bytes]:
    """The row for an event whose fact was written as `fact`, and the chain after it."""
    plain = enveloped(event, fact)
    data = zstd.compress(plain, 3) if len(plain) >= PACK_FROM else plain
    if event.fact.piece:  # type: ignore[union-attr]  # what is no fact has not been written
        return Row(event.seq, data, checksum(data), None), chain
    salt = os.urandom(SALT)
    link = linked(chain, salt, plain)
    return Row(event.seq, data, checksum(data), salt + link), link


def checksum(data: bytes) -> int:
    """Sixty-four bits of the bytes as stored, signed, as SQL databases count."""
    unsigned = xxh3_64_intdigest(data)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def linked(chain: bytes, salt: bytes, plain: bytes) -> bytes:
    return sha256(chain + salt + plain).digest()


def plain_bytes(data: bytes) -> bytes:
    """The bytes as first written. Raises `ValueError` for bytes that are neither form."""
    if data.startswith(_PLAIN):
        return data
    if not data.startswith(_ZSTD):
        raise ValueError("neither plain nor compressed")
    try:
        return zstd.decompress(data)
    except zstd.ZstdError as why:
        raise ValueError(str(why)) from None


def event_in(seq: int, data: bytes, stored_checksum: int) -> Event:
    """The event in a row. A damaged row is an event too, one that says what is wrong with it."""
    if xxh3_64_intdigest(data) == stored_checksum & 0xFFFFFFFFFFFFFFFF:
        try:
            event = decode(data if data[:1] == _PLAIN else plain_bytes(data))
        except ValueError as why:
            if not data:
                return Event(seq, 0, 0, None, Erased())
            return Event(seq, 0, 0, None, Unreadable(why=str(why)))
        if event.seq == seq:
            return event
        return Event(seq, 0, 0, None, Unreadable(why=f"the row of {seq} holds {event.seq}"))
    return Event(seq, 0, 0, None, Unreadable(why="its checksum does not match its bytes"))


def link_of(seal: bytes) -> bytes:
    return seal[-LINK:]


def is_known(event: Event) -> bool:
    return not isinstance(event.fact, Unknown | Unreadable | Erased)
