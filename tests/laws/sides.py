"""Two stores that are asked the same, and have to answer the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from perdure import events as e
from perdure.errors import PerdureError, SessionError
from perdure.journal import Journal, Listed, Owned
from perdure.journal.store import Store
from perdure.testing.clock import ManualClock
from perdure.testing.contract.telling import expire, following
from perdure.views.head import Head

LEASE = 1e6
"""So long that nothing is renewed by itself while a test runs: it is by the test's own clock that it runs out."""


class Side:
    """A store and two connections to it, which are two processes to it."""

    def __init__(self, another: Callable[[], Store], clock: ManualClock, home: Path) -> None:
        self._another, self._clock, self._home = another, clock, home
        self._names: dict[str, str] = {}
        self.journals: list[Journal] = []
        self.owned: dict[tuple[int, str], Owned] = {}

    async def open(self) -> None:
        self.journals = [self._journal(0), self._journal(1)]

    def _journal(self, who: int) -> Journal:
        journal = Journal(self._another(), self._clock, self._home / "processes", lease=LEASE)
        self._names[journal.process.id] = f"process {who}, the {len(self._names)}th"
        return journal

    async def restart(self, who: int) -> None:
        await self.journals[who].close()
        self.owned = {key: owned for key, owned in self.owned.items() if key[0] != who}
        self.journals[who] = self._journal(who)

    async def close(self) -> None:
        await asyncio.gather(*(journal.close() for journal in self.journals))

    async def take(self, who: int, session: str) -> int:
        owned = self.owned[who, session] = await self.journals[who].take(session)
        return owned.epoch

    async def expire(self) -> None:
        """Every lease runs out, by whatever clock it is counted."""
        for journal in self.journals:
            if journal.process._life is not None:
                await expire(journal, journal.process.id)

    async def heard(self, who: int, session: str, after: int, count: int) -> list[e.Event]:
        """What a follower is told, as far as there is anything."""
        found: list[e.Event] = []
        async with asyncio.timeout(20), aclosing(following(self.journals[who], session, after)) as events:
            async for event in events:
                found.append(event)
                if len(found) >= count:
                    break
        return found

    async def answer(self, ask: Callable[[Side], Awaitable[object]]) -> object:
        """What it says, or how it refuses, in words that do not tell which side it is."""
        try:
            return self.plain(await ask(self))
        except SessionError as why:
            return type(why), why.session, why.why, getattr(why, "candidates", ())
        except PerdureError as why:
            return type(why)

    def plain(self, value: Any) -> Any:
        match value:
            case e.Event(key=key):
                own = None if key and key.startswith("once-") else key
                return structs.replace(value, key=own, fact=self.plain(value.fact))
            case e.OwnerChanged(process=process):
                return structs.replace(value, process=self._names.get(process, process))
            case Head(standing=standing, owner=owner):
                name = self._names.get(standing.process, standing.process)
                known = owner and structs.replace(
                    owner, process=self._names.get(owner.process, owner.process)
                )
                return structs.replace(value, standing=structs.replace(standing, process=name), owner=known)
            case Listed(id=id, upto=upto, head=head):
                return [id, upto, self.plain(head)]  # its place is for the store that gave it
            case list() | tuple():
                return [self.plain(each) for each in value]
            case _ if is_dataclass(value):
                return [type(value).__name__, *(self.plain(getattr(value, f.name)) for f in fields(value))]
            case _:
                return value
