"""`decide` has an answer for every journal, the head agrees with it, and whoever comes in the middle decides the same."""

import pytest

from perdure import events as e
from perdure.agent import decide as d
from perdure.testing.lively import lawful
from perdure.views.head import Head
from perdure.views.turn import Turn, turn_of

LATER = 1 << 60


def prefixes(seed: int, length: int) -> list[tuple[list[e.Event], Head, Turn]]:
    """Every prefix of a session, with its head and its turn as somebody has them who saw all of it happen."""
    head, turn, events, found = Head(), Turn(), [], []
    for event in lawful(seed, length):
        head, turn = head.after(event), turn.after(event)
        events = [*events, event]
        found.append((events, head, turn))
    return found


@pytest.mark.parametrize("seed", range(0, 400, 4))
def test_there_is_a_next_move_for_every_prefix_and_it_is_to_rest_where_nothing_is_due(seed: int) -> None:
    for events, head, turn in prefixes(seed, 80):
        assert turn.standing == head.standing
        move = d.decide(turn, LATER)
        assert (head.runnable_at is None) == isinstance(move, d.Rest), (events[-1], move)
        for on_crash in ("ask", "retry", "abandon"):
            assert isinstance(d.decide(turn, LATER, on_crash), d.Move)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(1, 200, 8))
def test_a_turn_read_from_its_start_is_the_turn_that_was_lived_through(seed: int) -> None:
    for events, head, turn in prefixes(seed, 80):
        since = [event for event in events if head.standing.turn and event.seq >= head.standing.turn]
        assert d.decide(turn_of(head.standing, since), LATER) == d.decide(turn, LATER)


@pytest.mark.parametrize("seed", range(2, 400, 8))
def test_a_turn_can_be_stopped_anywhere_in_lawful_steps(seed: int) -> None:
    for _, _, turn in prefixes(seed, 60)[::3]:
        if not turn.standing.turn:
            continue
        end = d.EndTurn("cancelled")
        for _ in range(50):
            move = d.stop(turn, end)
            if move is end:
                break
            turn = _carried(turn, move)
        assert move is end


SAID = [
    (("note", "prompt"), (3, 4)),
    (("prompt", "note"), (3,)),
    (("prompt", "prompt"), (3,)),
    (("steer", "prompt"), (3,)),
    (("stored", "note", "prompt", "steer"), (3, 4, 5)),
    (("note", "stored"), None),
]


@pytest.mark.parametrize(("said", "takes"), SAID)
def test_a_turn_takes_the_first_message_that_wants_one_and_what_was_said_before(
    said: tuple[str, ...], takes: tuple[int, ...] | None
) -> None:
    turn = Turn()
    facts = [e.SessionCreated("s"), e.OwnerChanged(1, "p")]
    for what in said:
        role = "prompt" if what == "stored" else what
        facts.append(e.MessageSent((e.Text("x"),), role=role, run=what != "stored"))  # type: ignore[arg-type]
    for seq, fact in enumerate(facts, 1):
        turn = turn.after(e.Event(seq, seq, 0, None, fact))
    assert d.decide(turn, LATER) == (d.Rest() if takes is None else d.StartTurn(takes))


def _carried(turn: Turn, move: d.Move) -> Turn:
    match move:
        case d.CloseCall(call=call):
            fact: e.Fact = e.ModelLost(call, "interrupted")
        case d.CloseTool(call_id=call_id, begun=begun, outcome=outcome):
            fact = e.ToolFinished(turn.standing.turn, call_id, outcome, tool=begun or None)
        case d.Expire(asked=asked, is_approval=is_approval):
            fact = e.ApprovalExpired(asked) if is_approval else e.QuestionExpired(asked)
        case _:
            raise AssertionError(move)
    s = turn.standing
    event = e.Event(s.seq + 1, 1, s.epoch, None, fact)  # type: ignore[arg-type]
    assert s.objection(event) in ("", f"only the owner may append it, and epoch {s.epoch} is not its epoch")
    return turn.after(event)
