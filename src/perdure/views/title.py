"""The title a session has until somebody gives it one."""

from __future__ import annotations

from itertools import islice

from perdure.events import MessageSent, Text

LONGEST = 50
"""In characters as people count them: a family emoji or a Hangul syllable made of three letters is one."""


def title_from(message: MessageSent) -> str:
    """The beginning of the first message, white space collapsed; empty if it has no words."""
    words = " ".join(part.text for part in message.parts if isinstance(part, Text))
    return shortened(words)


def shortened(text: str) -> str:
    """`text` on one line, at most `LONGEST` characters, fit for any database's text column."""
    # A title needs no more than this much of a megabyte of pasted log.
    line = " ".join(storable(text[:4000]).split())
    if len(line) <= LONGEST or line.isascii():
        return line[:LONGEST].rstrip()
    from wcwidth import iter_graphemes  # 80 ms, needed by a first message that is long and not plain ASCII

    return "".join(islice(iter_graphemes(line), LONGEST)).rstrip()


def storable(text: str) -> str:
    """`text` without what a text column cannot hold: NUL and lone surrogates become U+FFFD."""
    clean = text.replace("\0", "\ufffd")
    try:
        clean.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in clean)
    return clean
