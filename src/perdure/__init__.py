"""Perdure: a runtime for agents whose sessions cannot be lost.

    journal = await perdure.open("sqlite:///sessions.db")

What is named here is the surface and keeps its promises from version to version; the rooms below (`perdure.events`
for the facts, `perdure.journal`, `perdure.views`) may be imported too and promise less. Nothing is imported before
it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.errors import PerdureError as PerdureError
    from perdure.events import Event as Event
    from perdure.journal import Journal as Journal
    from perdure.journal import Owned as Owned
    from perdure.journal import Page as Page
    from perdure.journal import Wanted as Wanted
    from perdure.journal import blob_of as blob_of
    from perdure.journal import open as open

__version__ = "0.1.0"

_SURFACE = {
    "Event": "perdure.events",
    "Journal": "perdure.journal",
    "Owned": "perdure.journal",
    "Page": "perdure.journal",
    "PerdureError": "perdure.errors",
    "Wanted": "perdure.journal",
    "blob_of": "perdure.journal",
    "open": "perdure.journal",
}

__all__ = ["Event", "Journal", "Owned", "Page", "PerdureError", "Wanted", "__version__", "blob_of", "open"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _SURFACE:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    return getattr(import_module(_SURFACE[name]), name)
