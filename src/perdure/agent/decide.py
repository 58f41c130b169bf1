"""What the agent does next, and nothing else: no clock, no chance, no store.

There is no recovery mode. After a crash the same question is asked of the same journal, and what an earlier process
left open is the first thing the answer sees to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perdure import events as e
from perdure.grammar import Owed
from perdure.views.turn import Turn

Outcome = Literal["completed", "cancelled", "failed", "interrupted"]
OnCrash = e.How | Literal["ask"]


@dataclass(frozen=True, slots=True)
class StartTurn:
    """Begin to answer these messages."""

    takes: tuple[e.Seq, ...]


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model for an answer, showing it these messages for the first time."""

    takes: tuple[e.Seq, ...]
    attempt: int
    tries: int
    """How many of the attempts before failed in a way that may pass."""


@dataclass(frozen=True, slots=True)
class CloseCall:
    """Close a model call that nobody is waiting for any more, with what had been heard of it."""

    call: e.Seq
    reason: Literal["interrupted", "cancelled"]


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run a tool, as the model wished; or once more, if that changes nothing."""

    wish: e.ToolCall


@dataclass(frozen=True, slots=True)
class CloseTool:
    """Close a tool call that is not run, or of which nobody knows whether it was done."""

    call_id: str
    begun: e.Seq
    """Its `ToolStarted`; 0 if there is none."""
    outcome: Literal["cancelled", "unknown"]


@dataclass(frozen=True, slots=True)
class Expire:
    """Close an approval or a question that nobody has to answer any more."""

    asked: e.Seq
    is_approval: bool
    cause: str


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Do not show the model this part of an answer again."""

    record: e.Seq


@dataclass(frozen=True, slots=True)
class AskHow:
    """Ask what is to become of a turn that was left behind."""

    turn: e.Seq


@dataclass(frozen=True, slots=True)
class EndTurn:
    """End the turn. Nothing in it is open."""

    outcome: Outcome
    cause: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing can be done before this time."""

    at: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is owed, or only a person or a child can say how it goes on."""


Move = (
    StartTurn | CallModel | CloseCall | RunTool | CloseTool | Expire | LeaveOut | AskHow | EndTurn | WaitUntil
    | Rest
)  # fmt: skip


def decide(turn: Turn, now: int, on_crash: OnCrash = "continue") -> Move:
    """The next move. Total: every journal has one. It says `Rest` just when the head says that nothing is due."""
    s = turn.standing
    if s.ended or s.trashed or s.moved:
        return Rest()
    if not s.turn:
        return _begin(turn)
    if s.cancel:
        return stop(turn, EndTurn("cancelled", "it was cancelled", "cancelled"))
    if s.verdict == "abandon":
        return stop(turn, EndTurn("interrupted", "the process that ran it was gone", "left_behind"))
    if s.waits_for_person or (s.children and not s.calls):
        return Rest()
    return _close_the_left(turn) or _settle_how(turn, on_crash) or _go_on(turn, now)


def stop(turn: Turn, end: EndTurn) -> Move:
    """What is to be done, one after the other, so that the running turn can end like this."""
    s = turn.standing
    if s.calls:
        return CloseCall(s.calls[0].seq, "cancelled" if end.outcome == "cancelled" else "interrupted")
    if s.approvals:
        return Expire(s.approvals[0].seq, True, end.cause)
    if s.questions:
        return Expire(s.questions[0].seq, False, end.cause)
    if s.owed:
        first = s.owed[0]
        return CloseTool(first.call_id, first.tool, "unknown" if first.tool else "cancelled")
    return end


def _begin(turn: Turn) -> Move:
    pending = turn.standing.pending
    first = next((p.seq for p in pending if p.wants_a_turn), None)
    # What was stored to be owed nothing is shown with the next message that is.
    return Rest() if first is None else StartTurn(tuple(p.seq for p in pending if p.seq <= first))


def _close_the_left(turn: Turn) -> Move | None:
    """Whatever is open between two moves was opened by a process that is gone, or by a move that failed."""
    s = turn.standing
    if s.calls:
        return CloseCall(s.calls[0].seq, "interrupted")
    if half_done := _first(s.owed, begun=True, repeatable=False):
        return CloseTool(half_done.call_id, half_done.tool, "unknown")
    return None


def _settle_how(turn: Turn, on_crash: OnCrash) -> Move | None:
    s = turn.standing
    if not s.left:
        return None
    how = s.verdict or on_crash
    if s.how_question and any(q.seq == s.how_question for q in s.questions):
        return Expire(s.how_question, False, "it was answered otherwise")
    if how == "ask":
        return AskHow(s.turn)
    if how == "abandon":
        return stop(turn, EndTurn("interrupted", "the process that ran it was gone", "left_behind"))
    if how == "retry" and turn.lost and turn.lost.has_parts and turn.lost.seq not in turn.excluded:
        return LeaveOut(turn.lost.seq)
    return None


def _go_on(turn: Turn, now: int) -> Move:
    s, lost = turn.standing, turn.lost
    if next_one := _first(s.owed, begun=True) or _first(s.owed, begun=False):
        if wish := _wish(turn, next_one):
            return RunTool(wish)
        return CloseTool(next_one.call_id, next_one.tool, "unknown" if next_one.tool else "cancelled")
    if lost and lost.retry_at is None and lost.reason != "interrupted":
        return EndTurn("failed", lost.error, lost.reason)
    if lost and lost.retry_at is not None and lost.retry_at > now:
        return WaitUntil(lost.retry_at)
    joining = tuple(p.seq for p in s.pending if p.role == "note" or (p.role == "steer" and p.run))
    if turn.answered and not any(p.role == "steer" and p.run for p in s.pending):
        return EndTurn("completed")
    return CallModel(joining, turn.attempts + 1, turn.tries)


def _first(owed: Sequence[Owed], *, begun: bool, repeatable: bool | None = None) -> Owed | None:
    fits = (o for o in owed if bool(o.tool) is begun and repeatable in (None, o.repeatable))
    return next(fits, None)


def _wish(turn: Turn, owed: Owed) -> e.ToolCall | None:
    """What to run it with. One that has begun was rewritten by a policy, perhaps; one of the runtime's own is not run
    again here."""
    if begun := turn.begun.get(owed.tool):
        return e.ToolCall(begun.call_id, begun.name, begun.arguments) if begun.call_id else None
    return turn.wishes.get(owed.call_id)
