"""What a caller may catch: one root, fields beside the prose, and advice in the docstring."""

from __future__ import annotations

from inspect import getdoc, isclass

import pytest

from perdure import errors as e

ALL = [it for it in vars(e).values() if isclass(it) and issubclass(it, Exception)]
CASES: list[tuple[e.PerdureError, str, dict[str, object]]] = [
    (e.ConfigError("x.toml:3", "is bad"), "x.toml:3: is bad", {"where": "x.toml:3", "why": "is bad"}),
    (e.StoreUnavailable("/x.db", "is full"), "/x.db: is full", {"store": "/x.db", "why": "is full"}),
    (e.NoStore("/x.db", "is not there"), "/x.db: is not there", {"store": "/x.db"}),
    (e.StoreDamaged("memory:", "is odd"), "memory: is odd", {"store": "memory:"}),
    (e.StoreTooNew("/x.db", "is new"), "/x.db: is new", {}),
    (e.WritesTooNew("/x.db", "is new"), "/x.db: is new", {}),
    (e.SessionNotFound("s", candidates=["t"]), "session s: not found", {"session": "s", "candidates": ("t",)}),
    (e.AmbiguousPrefix("s", ["sa", "sb"]), "session s: several sessions match: sa, sb", {"candidates": ("sa", "sb")}),
    (e.PrefixTooShort("s", ["sa"]), "session s: a prefix needs at least 6 characters: sa", {"candidates": ("sa",)}),
    (e.PrefixTooShort("s", []), "session s: a prefix needs at least 6 characters", {"candidates": ()}),
    (e.SessionExists("s", "is there"), "session s: is there", {"session": "s", "why": "is there"}),
    (e.SessionEnded("s", "has ended"), "session s: has ended", {}),
    (e.SessionReadOnly("s", "is newer"), "session s: is newer", {}),
    (e.ModelUnknown("x:y", "needs a key"), "x:y: needs a key", {"model": "x:y", "why": "needs a key"}),
    (e.Busy("s", "turn 4 runs"), "session s: turn 4 runs", {}),
    (e.NotOwner("s", "was taken"), "session s: was taken", {}),
    (e.OwnedElsewhere("s", "ada"), "session s: is run by ada", {"owner": "ada"}),
    (e.AlreadyAppended("s", "k", 7), "session s: key 'k' was used at seq 7 for something else", {"key": "k", "seq": 7}),
    (e.CursorAhead("s", 9, 7), "session s: ends at 7, before position 9", {"after": 9, "head": 7}),
    (e.Refused("s", "breaks a law"), "session s: breaks a law", {"why": "breaks a law"}),
    (e.NotStorable("too large"), "too large", {}),
]  # fmt: skip


@pytest.mark.parametrize(("error", "sentence", "fields"), CASES, ids=lambda each: type(each).__name__)
def test_an_error_is_a_sentence_and_fields(
    error: e.PerdureError, sentence: str, fields: dict[str, object]
) -> None:
    assert str(error) == sentence
    assert {name: getattr(error, name) for name in fields} == fields


def test_every_error_is_among_these_cases_or_only_a_parent() -> None:
    assert {type(error) for error, _, _ in CASES} | {e.PerdureError, e.StoreError, e.SessionError} == set(ALL)


@pytest.mark.parametrize("error", ALL)
def test_every_error_has_one_root_and_says_what_it_means(error: type[Exception]) -> None:
    assert issubclass(error, e.PerdureError)
    assert error.__doc__
    assert getdoc(error) == getdoc(error).strip()
