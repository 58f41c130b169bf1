"""The front desk: what every door and every library user asks of a session.

Everything here appends facts or reads them; nothing here runs a turn. Whoever runs turns (see `worker`) looks at the
journal, and is told by a wake that there is something to see.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import Literal

from perdure import events as e
from perdure.errors import Busy, Refused
from perdure.journal import Journal
from perdure.version import __version__

How = Literal["prompt", "steer", "queue", "interrupt", "note"]
TRIES = 100


def project_key(folder: Path) -> str:
    """What sessions of one project have in common, however its folder is reached."""
    return sha256(str(folder.resolve()).encode(errors="surrogateescape")).hexdigest()[:16]


class Runtime:
    """All sessions of one journal, for people and programs that talk to them."""

    def __init__(self, journal: Journal, wake: Callable[[], None] = lambda: None) -> None:
        self.journal = journal
        self._wake = wake

    async def create(
        self, *, workspace: Path | None = None, title: str = "", model: str = "", mode: str = "",
        source: e.Source = "library",
    ) -> str:  # fmt: skip
        """A new session, and its id."""
        folder = (workspace or Path.cwd()).absolute()
        born = e.SessionCreated(
            "",
            source,
            str(folder),
            project_key(folder),
            title,
            model=model,
            permission_mode=mode,
            version=__version__,
        )
        return await self.journal.create(born)

    async def send(
        self,
        session: str,
        text: str,
        *,
        how: How = "prompt",
        attachments: Sequence[e.Attachment] = (),
        blobs: Sequence[bytes] = (),
        author: str = "person",
        run: bool = True,
        key: str | None = None,
    ) -> int:
        """Store a message, and say where it stands; it is durable when this returns, and answered when its turn comes.

        While a turn runs, a `prompt` or `queue` waits for a turn of its own, a `steer` joins the running turn at its
        next call, and an `interrupt` stops that turn and is answered then. With a `key` this may be called again.
        """
        role: Literal["prompt", "steer", "note"] = "prompt" if how in ("queue", "interrupt") else how  # type: ignore[assignment]
        message = e.MessageSent((e.Text(text),) if text else (), tuple(attachments), author, role, run)
        if how == "interrupt":
            return await self._interrupt(session, message, key, blobs)
        appended = await self.journal.append(session, message, key=key, blobs=blobs)
        self._wake()
        return appended.first

    async def _interrupt(
        self, session: str, message: e.MessageSent, key: str | None, blobs: Sequence[bytes]
    ) -> int:
        """Stop and send, in one append: nobody's message comes between the two."""
        for _ in range(TRIES):
            turn = (await self.journal.head(session)).head.standing.turn
            facts = (message, e.CancelAsked(turn, "another message is more urgent")) if turn else (message,)
            try:
                appended = await self.journal.append(session, *facts, key=key, blobs=blobs)
            except Refused:
                if (await self.journal.head(session)).head.standing.turn == turn:
                    raise
                continue  # that turn has ended meanwhile, and there is another one, or none
            self._wake()
            return appended.first
        raise Busy(session, "its turns end faster than one of them can be interrupted; send a prompt")

    async def cancel(self, session: str, reason: str = "") -> bool:
        """Ask the running turn to stop; False if none runs. It is heard wherever the turn runs, within a second."""
        turn = (await self.journal.head(session)).head.standing.turn
        if not turn:
            return False
        try:
            await self.journal.append(session, e.CancelAsked(turn, reason))
        except Refused:
            return False  # it has just ended
        self._wake()
        return True

    async def go_on(self, session: str, how: e.How = "continue") -> None:
        """Run what was stored to be run later, or say what becomes of a turn that was left behind."""
        await self.journal.append(session, e.RunAsked(how))
        self._wake()

    async def answer(self, session: str, question: e.Seq, *answers: e.Answer, by: str = "person") -> None:
        """Answer a question, once. Raises `Refused` if somebody has, or if nobody need any more."""
        await self.journal.append(session, e.QuestionAnswered(question, answers, by))
        self._wake()

    async def withdraw(self, session: str, message: e.Seq) -> None:
        """Take back a message that no turn has taken. Raises `Refused` if one has."""
        await self.journal.append(session, e.MessageWithdrawn(message))

    async def edit(self, session: str, message: e.Seq, text: str) -> None:
        """Let a message that no turn has taken say something else. Raises `Refused` if one has."""
        await self.journal.append(session, e.MessageEdited(message, (e.Text(text),)))

    def follow(self, session: str, *, after: int = 0) -> AsyncIterator[e.Event]:
        """Every event past `after`, in order, once, for ever."""
        return self.journal.follow(session, after=after)

    async def settled(self, session: str) -> None:
        """Come back when nothing is owed: every message answered, or its turn waiting for a person."""
        listed = await self.journal.head(session)
        if listed.head.runnable_at is None:
            return
        async with aclosing(self.journal.follow(session, after=listed.upto)) as events:
            async for event in events:
                closes = isinstance(
                    event.fact, e.TurnEnded | e.QuestionAsked | e.ApprovalAsked | e.MessageWithdrawn
                )
                if closes and (await self.journal.head(session)).head.runnable_at is None:
                    return
