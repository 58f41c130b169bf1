"""A process that takes part in a measurement: python -m bench.child WORK URL."""

from __future__ import annotations

import asyncio
import sys

from bench import following, reading, together

if __name__ == "__main__":
    work, url = sys.argv[1:]
    asyncio.run({**together.WORK, **following.WORK, **reading.WORK}[work](url))
