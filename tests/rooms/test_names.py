"""Session ids, and what people may type instead of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import AmbiguousPrefix, PerdureError, PrefixTooShort, SessionNotFound
from perdure.journal.names import ALPHABET, LENGTH, SHOWN, is_id, new_id, resolve

IDS = {
    "abcdef1": "the build",
    "abcdef2": "twins",
    "abcdef2long": "twins",
    "xy": "abcdef",
    "decade": "zzzzzz",
    "many-0": "",
}
MANY = {f"manyof{n:02}": "" for n in range(SHOWN + 5)}


def found(name: str, sessions: dict[str, str] = IDS) -> str:
    return resolve(
        name,
        lambda prefix, most: sorted(id for id in sessions if id.startswith(prefix))[:most],
        lambda title, most: sorted(id for id, t in sessions.items() if t == title)[:most],
    )


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("abcdef1", "abcdef1"),
        ("ABCDEF1", "abcdef1"),
        ("abcdef2", "abcdef2"),  # an id, though it begins another one
        ("abcdef2l", "abcdef2long"),
        ("xy", "xy"),  # an id, however short
        ("many-0", "many-0"),
        ("the build", "abcdef1"),
        ("zzzzzz", "decade"),  # a title that could be an id
    ],
)
def test_it_answers_to_id_then_prefix_then_title(name: str, id: str) -> None:
    assert found(name) == id


@pytest.mark.parametrize(
    ("name", "error", "candidates"),
    [
        ("abcdef", AmbiguousPrefix, ("abcdef1", "abcdef2", "abcdef2long")),  # before the title of `xy`
        ("twins", AmbiguousPrefix, ("abcdef2", "abcdef2long")),
        ("abc", PrefixTooShort, ("abcdef1", "abcdef2", "abcdef2long")),
        ("m", PrefixTooShort, ("many-0",)),
        ("abcdef3", SessionNotFound, ("abcdef1", "abcdef2", "abcdef2long")),
        ("The build", SessionNotFound, ()),
        ("the", SessionNotFound, ()),
        ("", SessionNotFound, ()),
        (" ", SessionNotFound, ()),
        ("../etc", SessionNotFound, ()),
        ("a" * 10_000, SessionNotFound, ()),
        ("\0", SessionNotFound, ()),
        ("\ud800", SessionNotFound, ()),
    ],
)
def test_otherwise_it_says_what_it_might_have_been(
    name: str, error: type[PerdureError], candidates: tuple[str, ...]
) -> None:
    with pytest.raises(error) as told:
        found(name)
    assert told.value.candidates == candidates
    assert all(candidate in str(told.value) for candidate in candidates)


@pytest.mark.parametrize(("name", "error"), [("manyof", AmbiguousPrefix), ("many", PrefixTooShort)])
def test_of_very_many_only_some_are_listed(name: str, error: type[PerdureError]) -> None:
    with pytest.raises(error) as told:
        found(name, MANY)
    assert len(told.value.candidates) == SHOWN


@pytest.mark.parametrize("name", ["a", "0", "abcdef-1", "x" * 64, "a-", "illicit-u-too"])
def test_these_may_be_ids(name: str) -> None:
    assert is_id(name)


@pytest.mark.parametrize(
    "name", ["", "-", "-a", "A", "x" * 65, "a b", "a/b", "a.b", "a_b", "é", "한", "٣", "a\n"]
)
def test_these_may_not(name: str) -> None:
    assert not is_id(name)


def test_a_new_id_is_one_and_like_no_other() -> None:
    made = {new_id() for _ in range(1000)}
    assert len(made) == 1000
    assert len({id[:6] for id in made}) > 990
    assert all(is_id(id) and len(id) == LENGTH and set(id) <= set(ALPHABET) for id in made)
    assert all(Path("sessions", id).name == id for id in made)
