"""Time as it is, and as a test says it is."""

from __future__ import annotations

import subprocess
import sys
import time

from perdure.journal.clock import SystemClock, boot_id
from perdure.testing.clock import ManualClock


def test_the_wall_clock_counts_microseconds_since_1970() -> None:
    before = time.time_ns() // 1000
    told = SystemClock().wall()
    assert before <= told <= time.time_ns() // 1000


def test_the_steady_clock_only_goes_forward_and_is_one_for_all_processes() -> None:
    clock = SystemClock()
    before = clock.steady()
    asking = "from perdure.journal.clock import SystemClock; print(SystemClock().steady())"
    done = subprocess.run([sys.executable, "-c", asking], capture_output=True, encoding="utf-8", check=True)
    assert before < float(done.stdout) < clock.steady()


def test_the_machine_has_one_name_for_this_start_of_it() -> None:
    assert boot_id() == boot_id()
    assert not boot_id() or len(boot_id()) == 36


def test_a_clock_of_a_test_moves_when_told() -> None:
    clock = ManualClock(wall=1_000_000, steady=5.0)
    assert (clock.wall(), clock.steady()) == (1_000_000, 5.0)
    clock.advance(0.25)
    assert (clock.wall(), clock.steady()) == (1_250_000, 5.25)
    clock.set_wall(7)
    assert (clock.wall(), clock.steady()) == (7, 5.25)
