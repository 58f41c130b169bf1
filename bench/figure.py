"""One line of the table, and what a run of the benchmark carries from line to line."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Literal

Unit = Literal["s", "B", "/s", "x"]


@dataclass(frozen=True, slots=True)
class Figure:
    """What was promised, and what was measured."""

    name: str
    ours: float
    theirs: float | None
    """The raw driver's, or another peer's, measured in turns with ours."""
    unit: Unit
    value: float
    """What is held against `bound`: a ratio, or `ours` itself where the promise is a plain figure."""
    bound: float
    """Infinite where nothing was promised."""
    limit: str
    peer: str = ""
    """What `theirs` is."""
    why: str = ""
    """The measurement that shows why it is not reached, if it is not; or what one should know in any case."""
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def promised(self) -> bool:
        return isfinite(self.bound)

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.theirs else None


@dataclass(slots=True)
class Run:
    folder: Path
    quick: bool
    figures: list[Figure] = field(default_factory=list)
    latencies: dict[str, list[float]] = field(default_factory=dict)
    """For the plots: seconds, by what they are of."""
    by_length: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    rates: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, *figures: Figure) -> None:
        for figure in figures:
            self.figures.append(figure)
            said = {True: "ok  ", False: "MISS"}[figure.met] if figure.promised else "    "
            theirs = (
                ""
                if figure.theirs is None
                else f", {figure.peer or 'theirs'} {shown(figure.theirs, figure.unit)}"
            )
            print(
                f"{said} {figure.name}: {shown(figure.ours, figure.unit)}{theirs}"
                f" -> {figure.value:.4g} (limit {figure.limit})",
                file=sys.stderr,
                flush=True,
            )

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def shown(value: float, unit: Unit) -> str:
    """A figure as people read it."""
    match unit:
        case "s":
            for factor, name in ((1.0, "s"), (1e3, "ms")):
                if value * factor >= 1:
                    return f"{value * factor:.3g} {name}"
            return f"{value * 1e6:.0f} µs"
        case "B":
            for size, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")):
                if value >= size:
                    return f"{value / size:.3g} {name}"
            return f"{value:.0f} B"
        case "/s":
            return f"{value:,.0f}/s"
        case "x":
            return f"{value:.3g}"
