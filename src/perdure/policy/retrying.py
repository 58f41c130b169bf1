"""When a failed call is tried again."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000
LONGEST_ADVICE = 3600.0
"""A provider that wants us to come back later than this many seconds from now has said no."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """Exponential backoff with full jitter."""

    attempts: int = 5
    base: float = 0.5
    cap: float = 30.0

    def again_at(self, now: int, tries: int, chance: float, advised: float | None = None) -> int | None:
        """When the next attempt may leave, after `tries` that failed in a way that may pass; None if there is none.

        `chance` is drawn between 0 and 1. What the provider advised is never undercut.
        """
        if tries >= self.attempts or (advised or 0.0) > LONGEST_ADVICE:
            return None
        longest = min(self.cap, self.base * 2.0 ** min(tries - 1, 64))
        return now + int(SECOND * max(longest * chance, advised or 0.0))
