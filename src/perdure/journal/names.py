"""Session ids, and what people may type instead of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from perdure.errors import AmbiguousPrefix, PrefixTooShort, SessionNotFound
from perdure.views.title import storable

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Lower-case letters and digits without i, l, o and u: nothing to misread, one double click selects it, and it
stands in URLs and file names as it is."""
LENGTH = 20
LONGEST = 64
SHORTEST_PREFIX = 6
SHOWN = 10


def new_id() -> str:
    """A hundred random bits: no clock in it, and six characters of it are almost always enough."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def is_id(name: object) -> bool:
    """Whether a session may be called so: ids given from outside may be longer and use every letter, and a hyphen."""
    if not isinstance(name, str):
        return False
    plain = name.isascii() and name.replace("-", "").isalnum() and name == name.lower()
    return plain and len(name) <= LONGEST and not name.startswith("-")


def resolve(
    name: object,
    beginning_with: Callable[[str, int], list[str]],
    titled: Callable[[str, int], list[str]],
) -> str:
    """The one session that answers to this name: its id, a prefix of six or more, or its exact title, in this order."""
    if not isinstance(name, str) or not name.strip():
        raise SessionNotFound(repr(name), "is no name")
    folded = name.lower()
    found = beginning_with(folded, SHOWN + 1) if is_id(folded) else []
    if folded in found:
        return folded
    if len(folded) >= SHORTEST_PREFIX and found:
        return _only(name, found)
    by_title = titled(storable(name), SHOWN + 1)
    if by_title:
        return _only(name, by_title)
    if found:
        raise PrefixTooShort(name, found[:SHOWN])
    near = _near(folded, beginning_with)
    hint = f"; near it: {', '.join(near)}" if near else ""
    raise SessionNotFound(name, f"not found; `perdure sessions list` shows them all{hint}", near)


def _only(name: str, found: list[str]) -> str:
    if len(found) > 1:
        raise AmbiguousPrefix(name, found[:SHOWN])
    return found[0]


def _near(name: str, beginning_with: Callable[[str, int], list[str]]) -> list[str]:
    """Sessions that begin as the name does, as far as it does."""
    if not is_id(name):
        return []
    for length in range(min(len(name) - 1, LENGTH), 2, -1):
        if found := beginning_with(name[:length], 3):
            return found
    return []
