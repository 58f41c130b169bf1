"""Hypothesis strategies for every kind of fact, built from the types of its fields."""

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields

from perdure.codec import KINDS
from perdure.events import Event, Fact

_ANY = st.text(st.characters(exclude_categories=()), max_size=20)
TEXT = _ANY.map(lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
"""All of Unicode, NUL and lone surrogates included; two that make a pair are the character they stand for."""
NUMBERS = st.integers(0, 12) | st.integers(-(1 << 63), (1 << 63) - 1)
REALS = st.floats(allow_nan=False, allow_infinity=False)


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    origin = get_origin(hint)
    if origin is Literal:
        return st.sampled_from(get_args(hint))
    if origin in (Union, UnionType):
        return st.one_of([of_type(each) for each in get_args(hint)])
    if origin is tuple:
        return st.lists(of_type(get_args(hint)[0]), max_size=3).map(tuple)
    if isinstance(hint, type) and issubclass(hint, Struct):
        return st.deferred(lambda: of_kind(hint))
    plain: dict[Any, Callable[[], st.SearchStrategy[Any]]] = {
        str: lambda: TEXT, int: lambda: NUMBERS, float: lambda: REALS, bool: st.booleans, NoneType: st.none,
    }  # fmt: skip
    return plain[hint]()


@cache
def of_kind(kind: type[Struct]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: of_type(hints[field.name]) for field in fields(kind)})


FACTS: st.SearchStrategy[Fact] = st.one_of([of_kind(kind) for kind in KINDS.values()])
KEYS = st.none() | st.text(min_size=1, max_size=5)
EVENTS = st.builds(Event, st.integers(1, 1 << 40), NUMBERS, st.integers(0, 9), KEYS, FACTS)
