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

_NEVER_STORED = (Unknown, Unreadable, Erased)

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


def encode(event: Event) -> bytes:
    """The bytes an event is stored and chained as."""
    if isinstance(event.fact, _NEVER_STORED):
        raise NotStorable(f"{type(event.fact).__name__} is how a row is read, not something that happened")
    fact, data = written(event.fact)
    if fact != event.fact:
        raise NotStorable(
            f"{type(fact).__name__} holds a character in two halves: append what `joined` makes of it"
        )
    return enveloped(event, data)


def enveloped(event: Event, fact: bytes) -> bytes:
    """The bytes of an event whose fact has been written already."""
    key = b"null" if event.key is None else pack(event.key)
    return b"[%d,%d,%d,%b,%b]" % (event.seq, event.ts, event.epoch, key, fact)


def written(fact: AnyFact) -> tuple[AnyFact, bytes]:
    """The fact as it will be read back, and its JSON. Raises `NotStorable` if it cannot be kept as it is."""
    kind = type(fact)
    if KINDS.get(kind.__name__) is not kind:
        raise NotStorable(f"{kind.__name__} is no fact that can be appended")
    try:
        try:
            data = _encode(fact)
        except UnicodeEncodeError:
            fact = joined(fact)
            data = pack(fact)
        back = _read_back(data, kind)
    except (OverflowError, TypeError, ValueError, RecursionError) as why:
        raise NotStorable(f"{kind.__name__} cannot be stored: {why}") from why
    # Types are not checked where facts are made. What could not be read back as it is (a string for a tuple, NaN)
    # would be taken for a fact of a newer build, and its session for one that may not be written.
    if back != fact:
        raise NotStorable(f"{kind.__name__} would not be read back as it is: {str(fact)[:200]}")
    return fact, data


def _read_back(data: bytes, kind: type[Fact]) -> Fact:
    try:
        fact: Fact = _decoder_of(kind)(data)
    except ValueError:
        fact = msgspec.convert(json.loads(data), kind)
    return fact


def joined(fact: AnyFact) -> AnyFact:
    """The fact with every surrogate pair that came in two halves made the one character it stands for.

    A stream cut in UTF-16 leaves such halves, and JSON cannot tell them from the character. Halves that stand alone
    stay as they are.
    """
    try:
        _encode(fact)
    except UnicodeEncodeError:
        try:
            plain = msgspec.to_builtins(fact, builtin_types=(bytes,))
            return msgspec.convert(_joined(plain), type(fact))
        except (ValueError, TypeError, RecursionError):
            return fact
    except (OverflowError, TypeError, ValueError, RecursionError):
        pass  # `encode` will say what is wrong with it
    return fact


def _joined(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        case dict():
            return {name: _joined(each) for name, each in value.items()}
        case list() | tuple():
            return [_joined(each) for each in value]
        case _:
            return value


def decode(data: bytes) -> Event:
    """The event in these bytes. A fact of a newer build comes back as `Unknown`, whole; bytes that are no event
    raise `ValueError`."""
    try:
        event = _decoder()(data)
    except (ValueError, RecursionError):
        return _decode_slowly(data)
    return _decode_slowly(data) if type(event.fact) in _NEVER_STORED else event


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
        if kind in KINDS:
            return msgspec.convert([seq, ts, epoch, key, fact], Event)
    except (ValueError, RecursionError):  # a name in it may have no UTF-8 either
        pass
    try:
        raw = json.dumps(fact, ensure_ascii=True, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("not an event: nested too deeply") from None
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


def in_full(value: object) -> Any:
    """Such a value for people and other programs, who do not know the defaults that `pack` leaves out."""
    match value:
        case msgspec.Struct():
            return {name: in_full(getattr(value, name)) for name in value.__struct_fields__}
        case tuple():
            return [in_full(each) for each in value]
        case _:
            return value


@cache
def _decoder_of(kind: Any) -> Any:
    return msgspec.json.Decoder(kind).decode
