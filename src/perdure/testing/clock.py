"""A clock that moves when told, so that a test owns its time."""

from __future__ import annotations


class ManualClock:
    """Stands still at `wall` microseconds since 1970 and `steady` seconds since some start, until it is moved."""

    def __init__(self, wall: int = 1_700_000_000_000_000, steady: float = 1000.0) -> None:
        self._wall = wall
        self._steady = steady

    def wall(self) -> int:
        return self._wall

    def steady(self) -> float:
        return self._steady

    def advance(self, seconds: float) -> None:
        """Both clocks go on by this much."""
        self._wall += round(seconds * 1e6)
        self._steady += seconds

    def set_wall(self, wall: int) -> None:
        """Somebody sets the machine's clock, back perhaps; what counts leases does not notice."""
        self._wall = wall
