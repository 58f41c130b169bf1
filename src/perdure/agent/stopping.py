"""The wish that what runs now should stop."""

from __future__ import annotations

import asyncio
from typing import Literal


class Stop:
    """Set while a move is carried out: by whoever cancels the turn, or by a process that has to end."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.why: Literal["interrupted", "cancelled"] = "interrupted"

    def ask(self, why: Literal["interrupted", "cancelled"]) -> None:
        self.why = why
        self.asked.set()
