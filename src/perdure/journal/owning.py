"""Owning: which process runs a session, and what happens when it dies or sleeps.

The lease belongs to the process: one row, one renewal, however many sessions it runs. A session names its process
and an epoch; every taking raises the epoch, and the store refuses whatever carries an older one. So an owner that
was replaced while it slept finds out at its next append, and has changed nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from perdure.errors import NotOwner, OwnedElsewhere, PerdureError, Refused
from perdure.events import AnyFact, Event, OwnerChanged
from perdure.journal.clock import Clock, boot_id
from perdure.journal.files import Life, is_dead
from perdure.journal.store import Append, Appended, ProcessRow
from perdure.views.head import Owner

if TYPE_CHECKING:
    from perdure.journal import Journal

log = logging.getLogger("perdure.journal")

Kind = Literal["terminal", "server", "worker", "library"]


class Process:
    """This process among those that share the store: who it is, and until when its lease runs."""

    def __init__(
        self, journal: Journal, clock: Clock, folder: Path, kind: Kind, name: str, ttl: float
    ) -> None:
        self.id = secrets.token_hex(8)
        self.kind: Kind = kind
        self.name = name
        self.host = platform.node()
        self.ttl = ttl
        self.sessions: dict[str, Owned] = {}
        self.taking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._journal = journal
        self._clock = clock
        self._folder = folder
        self._life: Life | None = None
        self._until = 0.0
        self.term = 0
        """Counts the leases: one that has run out is never renewed, another one begins."""
        self._renewing: asyncio.Task[None] | None = None
        self._introducing = asyncio.Lock()

    def holds_lease(self) -> bool:
        """True while nobody else can have taken over. Asked immediately before an effect, by the machine's clock."""
        return self._clock.steady() < self._until

    async def introduce(self) -> None:
        """Take out the lease, and renew it from here on."""
        async with self._introducing:
            if self._renewing is None:
                self._life = self._life or Life(self._folder / f"{self.id}.lock")
                await self.renew()
                self._renewing = asyncio.create_task(self._keep_renewing(), name="perdure-lease")
            elif not self.holds_lease():
                await self.renew()

    async def renew(self) -> None:
        # Counted from before the store was asked: a slow answer shortens the lease and never stretches it.
        asked = self._clock.steady()
        about = {"kind": self.kind, "name": self.name, "pid": os.getpid()}
        row = ProcessRow(
            self.id, json.dumps(about), self.host, boot_id(), str(self._life and self._life.path), False
        )
        await self._journal.write(self._journal.store.renew, row, self.ttl)
        # Asked now that it is stored: until then others could find that the old one had run out.
        self.term += not self.holds_lease()
        self._until = asked + self.ttl

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(self.ttl / 3)
            try:
                await self.renew()
            except PerdureError as why:
                # Not hidden: the lease runs out, `holds_lease` says so, and nothing more is started.
                log.error("lease not renewed", extra={"process": self.id, "why": str(why)})

    async def is_alive(self, owner: Owner) -> bool:
        """Whether a session's owner may still be running. Death on this machine shows at once, elsewhere when the
        lease has run out."""
        if owner.process == self.id:
            return True
        row = await self._journal.read_store(self._journal.store.process, owner.process)
        if row is None or row.expired:
            return False
        return not (row.boot and row.boot == boot_id() and is_dead(Path(row.lock)))

    async def leave(self) -> None:
        if self._renewing is None:
            return
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        self._renewing = None
        self._until = 0.0
        try:
            await self._journal.write(self._journal.store.retire, self.id)
        finally:
            if self._life:
                self._life.end()


class Owned:
    """A session while this process runs it. Only its `append` may add the owner's facts."""

    def __init__(
        self, journal: Journal, process: Process, session: str, epoch: int, upto: int, term: int
    ) -> None:
        self.session = session
        self.epoch = epoch
        self.upto = upto
        """As far as the owner has been told what is in the journal."""
        self._journal = journal
        self._process = process
        self._term = term
        self._number = 0
        self._turn = asyncio.Lock()
        self._news: list[Event] = []
        self._news_upto = upto

    def may_act(self) -> bool:
        """Ask immediately before any effect: False once the lease has run out, for then another may have begun it.

        It stays False when the process has a lease again: take the session again, and see what has become of it.
        """
        return not self.lapsed() and self._process.holds_lease()

    def lapsed(self) -> bool:
        """Whether the lease under which the session was taken has run out."""
        return self._process.term != self._term

    async def append(self, *facts: AnyFact, blobs: Sequence[bytes] = ()) -> list[Event]:
        """Make facts durable; the answer is everything that is new since the last one, others' facts included.

        Raises `NotOwner` if another process has taken over: nothing was written, and nothing should be done.
        """
        packed = await self._journal.packed(blobs) if blobs else ()
        await self._turn.acquire()
        try:
            # Its number is counted when it is stored, whether or not the caller still waits for it: otherwise the
            # next append would go under the same number and be taken for this one, asked again.
            answer = self._journal.submit(
                Append(self.session, facts, epoch=self.epoch, number=self._number + 1, blobs=packed),
                self._settled,
            )
        except BaseException:
            self._turn.release()
            raise
        appended = await answer
        if self._news_upto >= appended.last:
            news, self._news = self._news, []
        else:
            # Another process has appended too: only the store knows what.
            news = [event async for event in self._journal.between(self.session, self.upto, appended.last)]
            self._news, self._news_upto = [], appended.last
        self.upto = self._news_upto
        return news

    def _settled(self, stored: bool) -> None:
        self._number += stored
        self._turn.release()

    def hear(self, appended: Appended) -> None:
        """This process made something durable in the session, its owner or anyone."""
        # What was there already, asked for again, comes without its events: the next append reads them.
        if appended.head_before == self._news_upto and not appended.repeated:
            self._news += appended.events
            self._news_upto = appended.last

    def has_read(self, upto: int) -> None:
        """The owner has read the journal itself as far as this, and need not be told of it again."""
        if upto >= self._news_upto:
            self._news, self._news_upto = [], upto
        else:
            self._news = [event for event in self._news if event.seq > upto]
        self.upto = max(self.upto, upto)

    async def release(self) -> None:
        """Let go, so that another process can take the session without waiting for anything."""
        gone = OwnerChanged(epoch=self.epoch + 1)
        try:
            await self._journal.append(self.session, gone)
        except (NotOwner, Refused):
            pass  # another has taken it already: there is nothing to let go of
        finally:
            if self._process.sessions.get(self.session) is self:
                del self._process.sessions[self.session]


async def take(journal: Journal, process: Process, session: str, version: str) -> Owned:
    """Become the owner of a session whose owner is gone, or which has none."""
    # One after the other in this process: the journal cannot tell two of its takers apart.
    async with process.taking.setdefault(session, asyncio.Lock()):
        return await _take(journal, process, session, version)


async def _take(journal: Journal, process: Process, session: str, version: str) -> Owned:
    while True:
        await process.introduce()
        term = process.term
        head = (await journal.head(session)).head
        if head.owner is not None and head.owner.process == process.id:
            mine = process.sessions.get(session)
            if mine is not None and not mine.lapsed():
                raise OwnedElsewhere(
                    session, f"this process ({process.kind} {process.name})".replace(" )", ")")
                )
        elif head.owner is not None and await process.is_alive(head.owner):
            raise OwnedElsewhere(session, _introduced(head.owner))
        epoch = head.standing.epoch + 1
        taken = OwnerChanged(
            epoch=epoch, process=process.id, owner_kind=process.kind, name=process.name, host=process.host,
            pid=os.getpid(), version=version,
        )  # fmt: skip
        try:
            appended = await journal.append(session, taken)
        except Refused:
            continue  # another took it between our look and our append; look again
        log.info("restored", extra={"session": session, "epoch": epoch})
        owned = process.sessions[session] = Owned(journal, process, session, epoch, appended.last, term)
        return owned


def _introduced(owner: Owner) -> str:
    return f"{owner.kind} {owner.name}".strip() + f" (pid {owner.pid} on {owner.host})"
