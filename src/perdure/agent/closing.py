"""Closing what is open: what an earlier process left behind, and what is stopped."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncIterator

from perdure import events as e
from perdure.agent import decide as d
from perdure.agent.calling import lost
from perdure.agent.carry import Facts, Here
from perdure.journal import Journal
from perdure.models import Said
from perdure.tools.leftover import end

HOW = e.Question(
    "The process that ran this turn is gone. How should it go on?",
    (
        e.Choice("continue", "go on from where it was cut off"),
        e.Choice("retry", "give the cut-off answer again from its beginning"),
        e.Choice("abandon", "leave it as it is"),
    ),
    free_text=False,
)
"""Its choices stand in the order of `events.HOW`."""


async def close_call(journal: Journal, here: Here, move: d.CloseCall) -> Facts:
    """Close a call with all that had been heard of it."""
    said = [fact async for fact in _pieces(journal, here, move.call) if isinstance(fact, e.ModelSpoke)]
    words = [Said(piece.text, piece.channel) for piece in said]
    yield (lost(move.call, move.reason, words, len(said)),)


async def close_tool(journal: Journal, here: Here, move: d.CloseTool) -> Facts:
    """Close a tool call that is not run, or that a process which is gone had begun: what it left running is ended."""
    if not move.begun:
        yield (e.ToolFinished(here.turn, move.call_id, move.outcome),)
        return
    printed = [fact async for fact in _pieces(journal, here, move.begun) if isinstance(fact, e.ToolSpoke)]
    host = await _host_of(journal, here.session, move.begun)
    if host in ("", platform.node()):
        ended = await asyncio.to_thread(end, f"{here.session}:{move.begun}")
        left = f" {ended} processes of it were still running and were ended." if ended else ""
    else:
        left = f" It was begun on {host}, where processes of it may still be running."
    text = "".join(piece.text for piece in printed)
    told = f"It was begun and cut off. Nobody knows whether it was done.{left}"
    parts = tuple(e.Text(words) for words in (text, told) if words)
    yield (e.ToolFinished(here.turn, move.call_id, move.outcome, parts, move.begun, pieces=len(printed)),)


async def _pieces(journal: Journal, here: Here, of: e.Seq) -> AsyncIterator[e.Fact]:
    head = (await journal.head(here.session)).upto
    async for event in journal.between(here.session, of, head):
        fact = event.fact
        if isinstance(fact, e.ModelSpoke) and fact.call == of:
            yield fact
        if isinstance(fact, e.ToolSpoke) and fact.tool == of:
            yield fact


async def _host_of(journal: Journal, session: str, seq: e.Seq) -> str:
    """Where the owner ran that appended what stands at `seq`."""
    before: int | None = seq
    while before is not None:
        page = await journal.last(session, before=before)
        for event in reversed(page.events):
            if isinstance(event.fact, e.OwnerChanged):
                return event.fact.host
        before = page.events[0].seq if page.more else None
    return ""


async def said_at_once(here: Here, move: d.Move) -> Facts:
    """The moves that are a fact and no more."""
    match move:
        case d.StartTurn(takes=takes):
            yield (e.TurnStarted(takes),)
        case d.Expire(asked=asked, is_approval=True, cause=cause):
            yield (e.ApprovalExpired(asked, cause),)
        case d.Expire(asked=asked, cause=cause):
            yield (e.QuestionExpired(asked, cause),)
        case d.LeaveOut(record=record):
            yield (e.RecordExcluded(record, "the answer is given again"),)
        case d.AskHow(turn=turn):
            yield (e.QuestionAsked((HOW,), turn),)
        case d.EndTurn(outcome=outcome, cause=cause, code=code):
            yield (e.TurnEnded(here.turn, outcome, cause, code),)
        case _:
            raise TypeError(f"{move} is more than a fact")
