"""Facts to and from their stored form; old shapes are lifted here, for ever.

The stored form of an event is the JSON of `[seq, ts, epoch, key, fact]`, one line of UTF-8 that any program can
read. The bytes a fact was first written with are never rewritten: what is old is lifted while it is read.

Text with a lone surrogate has no UTF-8. Models and tools produce it all the same, so such a fact (and only such a
one) is written with JSON escapes, by the slower path.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast, get_args

import msgspec

from perdure.errors import NotStorable
from perdure.events import AnyFact, Erased, Event, Fact, Unknown, Unreadable

WRITES = 1
"""The newest shapes of facts this build can write. A store allows up to its own `writes` level, so that processes
of an older build can go on reading beside newer ones."""

KINDS: dict[str, type[Fact]] = {kind.__name__: kind for kind in get_args(AnyFact)}

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


def encode(event: Event) -> bytes:
    """The bytes an event is stored and chained as."""
    if isinstance(event.fact, Unknown | Unreadable | Erased):
        raise NotStorable(f"{type(event.fact).__name__} is how a row is read, not something that happened")
    try:
        data = pack(event)
    except (OverflowError, TypeError, ValueError, RecursionError) as why:
        raise NotStorable(f"{type(event.fact).__name__} cannot be stored: {why}") from why
    # Types are not checked where facts are made. What could not be read back as it is (a string for a tuple, NaN)
    # would be taken for a fact of a newer build, and its session for one that may not be written.
    if decode(data) != event:
        raise NotStorable(f"{type(event.fact).__name__} would not be read back as it is: {str(event.fact)[:200]}")
    return data


def decode(data: bytes) -> Event:
    """The event in these bytes. A fact of a newer build comes back as `Unknown`, whole; bytes that are no event
    raise `ValueError`."""
    try:
        return _decoder()(data)
    except (ValueError, RecursionError):
        return _decode_slowly(data)


@cache
def _decoder() -> Callable[[bytes], Event]:
    return msgspec.json.Decoder(Event).decode


def _decode_slowly(data: bytes) -> Event:
    """For lone surrogates, which the fast decoder takes for damage, and for facts of newer builds."""
    try:
        seq, ts, epoch, key, fact = json.loads(data)
        kind = fact["kind"]
    except (ValueError, TypeError, KeyError, RecursionError) as why:
        raise ValueError(f"not an event: {why}") from None
    if not (type(seq) is type(ts) is type(epoch) is int and isinstance(kind, str)):
        raise ValueError("not an event: its envelope has other types")
    try:
        return msgspec.convert([seq, ts, epoch, key, fact], Event)
    except msgspec.ValidationError:
        raw = json.dumps(fact, ensure_ascii=True, separators=(",", ":")).encode()
        return Event(seq, ts, epoch, key if isinstance(key, str) else None, Unknown(kind=kind, data=raw))


def pack(value: object) -> bytes:
    """The JSON of a value of ours that is not an event: a head, a kept fold."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=True, separators=(",", ":")).encode()


def unpack(data: bytes, kind: type[T]) -> T:
    """What `pack` was given. Raises `ValueError` if these bytes are no such value."""
    try:
        value: T = _decoder_of(cast(Any, kind))(data)
    except (ValueError, RecursionError):
        try:
            value = msgspec.convert(json.loads(data), kind)
        except RecursionError:
            raise ValueError("nested too deeply") from None
    return value


@cache
def _decoder_of(kind: Any) -> Any:
    return msgspec.json.Decoder(kind).decode
