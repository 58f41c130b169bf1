"""The row an event is stored as: read back it is the event, or it says what is wrong with it."""

from __future__ import annotations

from hashlib import sha256

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec import encode
from perdure.events import Erased, Event, MessageSent, ModelSpoke, Text, Unknown, Unreadable
from perdure.journal.rows import (
    LINK,
    PACK_FROM,
    SALT,
    checksum,
    event_in,
    is_known,
    link_of,
    linked,
    plain_bytes,
    row_of,
)

CHAIN = bytes(range(LINK))


def said(text: str, seq: int = 7) -> Event:
    return Event(seq, 1_795_000_000_000_000, 0, None, MessageSent((Text(text),)))


def fact_of(event: Event) -> bytes:
    return encode(event).split(b",", 4)[4][:-1]


@pytest.mark.parametrize("length", [0, 1, PACK_FROM - 200, PACK_FROM, 100_000])
def test_a_row_is_read_back_as_the_event_it_was(length: int) -> None:
    event = said("x" * length)
    row, chain = row_of(event, fact_of(event), CHAIN)
    assert event_in(row.seq, row.data, row.checksum) == event
    assert plain_bytes(row.data) == encode(event)
    assert (row.data[:1] == b"[") == (len(encode(event)) < PACK_FROM)
    assert chain == link_of(row.seal or b"") != CHAIN


def test_a_link_covers_what_came_before_the_salt_and_the_bytes() -> None:
    event = said("x" * 10_000)
    row, chain = row_of(event, fact_of(event), CHAIN)
    assert row.seal is not None
    assert len(row.seal) == SALT + LINK
    assert chain == sha256(CHAIN + row.seal[:SALT] + encode(event)).digest()
    assert chain == linked(CHAIN, row.seal[:SALT], encode(event))
    again, other = row_of(event, fact_of(event), CHAIN)
    assert again.data == row.data
    assert other != chain  # by the salt: what was erased cannot be guessed from its link


def test_a_piece_has_no_link_and_can_be_dropped() -> None:
    event = Event(8, 0, 1, None, ModelSpoke(call=5, number=1, text="Let me "))
    row, chain = row_of(event, fact_of(event), CHAIN)
    assert (row.seal, chain) == (None, CHAIN)
    assert event_in(row.seq, row.data, row.checksum) == event


@given(st.integers(0, 59), st.integers(0, 7))
def test_any_changed_bit_is_noticed(at: int, bit: int) -> None:
    event = said("x")
    row, _ = row_of(event, fact_of(event), CHAIN)
    damaged = bytearray(row.data)
    damaged[at % len(damaged)] ^= 1 << bit
    read = event_in(7, bytes(damaged), row.checksum)
    assert read.seq == 7
    assert read.fact == Unreadable(why="its checksum does not match its bytes")
    assert not is_known(read)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"junk", "neither plain nor compressed"),
        (zstd.compress(b"[8,0,0,null]")[:-3], ""),
        (b"[8,0,0", ""),
        (encode(said("x", seq=9)), "the row of 8 holds 9"),
        (zstd.compress(encode(said("x", seq=9))), "the row of 8 holds 9"),
    ],
)
def test_bytes_with_a_good_checksum_can_still_be_unreadable(data: bytes, why: str) -> None:
    read = event_in(8, data, checksum(data))
    assert isinstance(read.fact, Unreadable)
    assert (read.seq, read.epoch, read.key) == (8, 0, None)
    assert read.fact.why.startswith(why)
    assert read.fact.why


def test_an_empty_row_was_erased() -> None:
    assert event_in(8, b"", checksum(b"")).fact == Erased()
    assert isinstance(event_in(8, b"", 1).fact, Unreadable)


def test_a_kind_of_a_newer_version_is_carried() -> None:
    data = b'[8,5,0,"k",{"kind":"NotYetInvented","x":[1]}]'
    read = event_in(8, data, checksum(data))
    assert (read.seq, read.ts, read.key) == (8, 5, "k")
    assert isinstance(read.fact, Unknown)
    assert not is_known(read)


@given(st.binary(max_size=200))
def test_a_checksum_is_a_number_as_databases_count(data: bytes) -> None:
    assert -(1 << 63) <= checksum(data) < 1 << 63
    assert event_in(1, data, checksum(data)).seq == 1
