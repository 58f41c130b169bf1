"""The title a session has until somebody gives it one."""

from __future__ import annotations

import pytest

from perdure.events import Blob, MessageSent, Text
from perdure.views.title import LONGEST, shortened, storable, title_from

FAMILY = "👨‍👩‍👧‍👦"
HAN = "\u1112\u1161\u11ab"
"""A Hangul syllable in three letters."""


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("Why does\n  the build\tfail?", "Why does the build fail?"),
        ("a" * LONGEST, "a" * LONGEST),
        ("a" * (LONGEST + 1), "a" * LONGEST),
        ("a" * (LONGEST - 1) + " b", "a" * (LONGEST - 1)),  # no blank at the end
        ("한" * 60, "한" * LONGEST),
        (HAN * 60, HAN * LONGEST),
        (FAMILY * 60, FAMILY * LONGEST),
        ("e\u0301" * 60, "e\u0301" * LONGEST),
        ("🇰🇷" * 60, "🇰🇷" * LONGEST),
        ("가\u3000나\u2028다", "가 나 다"),
        ("a\0b\ud800c", "a\ufffdb\ufffdc"),
        ("x" * 10_000_000, "x" * LONGEST),
        (" " * 3999 + "too late", "t"),  # no more than so much is looked at
    ],
    ids=lambda text: ascii(text)[:30],
)
def test_a_title_is_the_beginning_on_one_line(text: str, title: str) -> None:
    assert shortened(text) == title
    assert title_from(MessageSent((Text(text),))) == title


def test_a_title_is_made_of_words_alone() -> None:
    image = Blob(hash="0" * 64, size=1, media_type="image/png", name="a.png")
    assert title_from(MessageSent((image,))) == ""
    assert title_from(MessageSent((Text("Look:"), image, Text("odd?")))) == "Look: odd?"


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("", ""),
        ("안녕 🦆", "안녕 🦆"),
        ("\0", "\ufffd"),
        ("a\udfffb", "a\ufffdb"),
        ("\ud83d", "\ufffd"),
        ("\n", "\n"),
    ],
    ids=ascii,
)
def test_what_a_text_column_cannot_hold_is_replaced_by_a_sign_for_it(text: str, stored: str) -> None:
    assert storable(text) == stored
    assert "\0" not in storable(text).encode().decode()
