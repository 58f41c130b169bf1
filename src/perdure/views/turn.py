"""Where the agent stands in the turn that runs, or that is owed: what `decide` looks at.

Kept as positions, like `Standing`, which says what is open. Beside it stands what the last call of the turn came to:
its wishes, if it was answered, or why it was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from perdure import events as e
from perdure.grammar import Standing


@dataclass(frozen=True, slots=True)
class Lost:
    """The last call of the turn, if it was lost and none has left since."""

    seq: int
    reason: str
    error: str
    retry_at: int | None
    has_parts: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn that runs. Folded from the events since its `TurnStarted`; without one, only what is pending counts."""

    standing: Standing = field(default_factory=Standing)
    call: int = 0
    """The last call for an answer."""
    wishes: Mapping[str, e.ToolCall] = field(default_factory=dict)
    """Tool calls of the last answer, by their ids."""
    begun: Mapping[int, e.ToolStarted] = field(default_factory=dict)
    answered: bool = False
    """The last call was answered, asked for no tool, and nothing came after it."""
    lost: Lost | None = None
    attempts: int = 0
    """Calls since the last answer."""
    tries: int = 0
    """Those of them that failed in a way that may pass."""
    excluded: frozenset[int] = frozenset()

    def after(self, event: e.Event) -> Turn:
        """Where it stands once this has happened."""
        told = _after(self, event)
        fact = event.fact
        if isinstance(fact, e.Unknown | e.Unreadable | e.Erased) or fact.piece:
            return told
        return replace(told, standing=self.standing.after(event))


def turn_of(standing: Standing, since_its_start: Iterable[e.Event]) -> Turn:
    """The turn as it stands now, from what is open and from the events since `TurnStarted` (none, if none runs)."""
    turn = Turn()
    for event in since_its_start:
        turn = _after(turn, event)
    return replace(turn, standing=standing)


def _after(turn: Turn, event: e.Event) -> Turn:
    match event.fact:
        case e.TurnStarted() | e.TurnEnded() | e.ForkedFrom():
            return Turn(turn.standing)
        case e.ModelCalled(purpose="answer"):
            again = turn.attempts + 1
            return replace(turn, call=event.seq, wishes={}, answered=False, lost=None, attempts=again)
        case e.ModelReplied(call=call, parts=parts) if call == turn.call:
            wishes = {part.call_id: part for part in parts if isinstance(part, e.ToolCall)}
            return replace(turn, wishes=wishes, answered=not wishes, attempts=0, tries=0)
        case e.ModelLost(call=call) as lost if call == turn.call:
            found = Lost(event.seq, lost.reason, lost.error, lost.retry_at, bool(lost.parts))
            return replace(turn, lost=found, tries=turn.tries + (lost.retry_at is not None))
        case e.ToolStarted() as started:
            return replace(turn, begun={**turn.begun, event.seq: started})
        case e.ToolFinished(tool=tool):
            return replace(turn, begun={seq: fact for seq, fact in turn.begun.items() if seq != tool})
        case e.RecordExcluded(record=record):
            return replace(turn, excluded=turn.excluded | {record})
        case e.RecordIncluded(record=record):
            return replace(turn, excluded=turn.excluded - {record})
        case _:
            return turn
