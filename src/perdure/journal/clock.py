"""Time, handed in: a wall clock for people, and one that no one can set for leases."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    def wall(self) -> int:
        """Microseconds since 1970, UTC."""

    def steady(self) -> float:
        """Seconds that only go forward, the same in every process of this machine since it was started."""


class SystemClock:
    def wall(self) -> int:
        return time.time_ns() // 1000

    def steady(self) -> float:
        # Counts on while the machine sleeps, so that a lease does not outlive a closed lid.
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()


def boot_id() -> str:
    """Names this start of this machine; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
