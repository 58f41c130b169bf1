"""Perdure: a runtime for agents whose sessions cannot be lost.

    desk = await perdure.start("sqlite:///sessions.db", model="anthropic:...")
    journal = await perdure.open("sqlite:///sessions.db")

What is named here is the surface and keeps its promises from version to version; the rooms below (`perdure.events`
for the facts, `perdure.journal`, `perdure.views`) may be imported too and promise less. Nothing is imported before
it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.version import __version__

if TYPE_CHECKING:
    from perdure.errors import PerdureError as PerdureError
    from perdure.events import Event as Event
    from perdure.journal import Journal as Journal
    from perdure.journal import Owned as Owned
    from perdure.journal import Page as Page
    from perdure.journal import Wanted as Wanted
    from perdure.journal import blob_of as blob_of
    from perdure.journal import open as open
    from perdure.models import Model as Model
    from perdure.runtime import Runtime as Runtime
    from perdure.tools import Tool as Tool
    from perdure.worker import start as start


_SURFACE = {
    "Event": "perdure.events",
    "Journal": "perdure.journal",
    "Owned": "perdure.journal",
    "Page": "perdure.journal",
    "PerdureError": "perdure.errors",
    "Wanted": "perdure.journal",
    "blob_of": "perdure.journal",
    "open": "perdure.journal",
    "Model": "perdure.models",
    "Runtime": "perdure.runtime",
    "Tool": "perdure.tools",
    "start": "perdure.worker",
}

__all__ = [
    "Event", "Journal", "Model", "Owned", "Page", "PerdureError", "Runtime", "Tool", "Wanted", "__version__", "blob_of",
    "open", "start",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _SURFACE:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    return getattr(import_module(_SURFACE[name]), name)
