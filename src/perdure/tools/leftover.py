"""Finding and ending what a tool call left running.

Every process of a tool carries `PERDURE_CALL=<session>:<seq>` in its environment, and so does whatever it starts. After
a crash that name is all that is left of it: pids are given out again, names are not.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

VARIABLE = "PERDURE_CALL"
GRACE = 0.5
"""Seconds between the request to end and the end."""


def find(call: str) -> list[int]:
    """The pids of this call's processes on this machine, as far as we may look at them."""
    named = f"{VARIABLE}={call}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # A zombie has no environment any more.
            if named in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # it has just ended, or is somebody else's
            continue
    return [pid for pid in found if pid != os.getpid()]


def end(call: str) -> int:
    """End this call's processes, with force after a moment, and say how many there were."""
    found = find(call)
    _send(found, signal.SIGTERM)
    until = time.monotonic() + GRACE
    while (left := find(call)) and time.monotonic() < until:
        time.sleep(0.01)
    while left:
        _send(left, signal.SIGKILL)
        time.sleep(0.01)
        left = find(call)
    return len(found)


def _send(pids: list[int], which: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, which)
        except ProcessLookupError:
            continue
