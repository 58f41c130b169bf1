"""From any older layout to the present one, in one transaction, by whoever opens the store first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import resources

from perdure.errors import StoreTooNew

LAYOUT = 2
"""The layout this build works on. The steps to it are the numbered files of `schema/<store>/`."""


def steps(store: str, layout: int) -> Iterator[tuple[int, list[str]]]:
    """The statements of each step that leads from `layout` to `LAYOUT`."""
    for number in range(layout + 1, LAYOUT + 1):
        text = (resources.files("perdure.journal") / "schema" / store / f"{number:04}.sql").read_text("utf-8")
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
        yield number, [statement.strip() for statement in code.split(";\n") if statement.strip()]


def indexes(store: str) -> dict[str, str]:
    """Every index of the present layout that has a name of its own, and the statement that makes it."""
    made = (statement.rstrip(";") for _, statements in steps(store, 0) for statement in statements)
    return {s.split()[2]: s for s in made if s.startswith("CREATE INDEX ")}


def check(url: str, layout: int) -> None:
    if layout > LAYOUT:
        raise StoreTooNew(
            url, f"has layout {layout}, this Perdure knows {LAYOUT}; upgrade Perdure to open it"
        )


def apply(store: str, layout: int, execute: Callable[[str], object]) -> None:
    """Run the steps inside the caller's transaction."""
    for _, statements in steps(store, layout):
        for statement in statements:
            execute(statement.rstrip(";"))
