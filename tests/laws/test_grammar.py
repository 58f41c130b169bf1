"""What may follow what: lawful journals have no offences, each law has its sentence, and every question an answer."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import events as e
from perdure.codec import KINDS
from perdure.grammar import Standing, offences
from perdure.testing.lively import MAKERS, lawful
from perdure.views.head import Head
from tests.facts import EVENTS, FACTS

BORN = (e.SessionCreated("s"),)
OWNED = (*BORN, e.OwnerChanged(1, "p"))
ASKED = (*OWNED, e.MessageSent((e.Text("x"),)))
TURN = (*ASKED, e.TurnStarted((3,)))
CALLED = (*TURN, e.ModelCalled(4))
TOOLS = (*CALLED, e.ModelReplied(5, (e.ToolCall("c1", "run", "{}"), e.ToolCall("c2", "run", "{}"))))
STARTED = (*TOOLS, e.ToolStarted(4, "c1", "run", "{}"))
WAITING = (*TOOLS, e.ApprovalAsked(4, "c1", "run", "?"))
QUESTION = (*TURN, e.QuestionAsked((e.Question("a?"), e.Question("b?")), 4))
MESSAGE = e.MessageSent((e.Text("y"),))
BLOB = e.Blob("ab", 1)


def told(*facts: e.AnyFact) -> Iterator[e.Event]:
    """These, one after the other from seq 1 on, by whom they should be."""
    standing = Standing()
    for seq, fact in enumerate(facts, 1):
        event = e.Event(seq, 1000 + seq, 0 if fact.by == "anyone" else standing.epoch, None, fact)
        standing = standing.after(event)
        yield event


@dataclass(frozen=True)
class Offence:
    """After `before`, `fact` breaks a law, and `says` so."""

    before: tuple[e.AnyFact, ...]
    fact: e.AnyFact
    says: str


OFFENCES = [
    Offence(BORN, e.SessionCreated("s"), "a session is created twice"),
    Offence((), MESSAGE, "the session was not created"),
    Offence((), e.ForkedFrom("s", "p", 1), "the session was not created"),
    Offence(BORN, e.OwnerChanged(2, "p"), "epoch 2 does not follow 0"),
    Offence(OWNED, e.OwnerChanged(1, "q"), "epoch 1 does not follow 1"),
    Offence(BORN, e.TaskSet("t"), "only the owner may append it, and epoch 0 is not its epoch"),
    Offence((*OWNED, e.OwnerChanged(2)), e.TaskSet("t"), "only the owner may append it, and epoch 2"),
    # the session
    Offence((*BORN, e.SessionEnded()), e.SessionEnded(), "it has ended already"),
    Offence(TURN, e.SessionEnded(), "turn 4 is running"),
    Offence((*OWNED, e.ModelCalled(purpose="title")), e.SessionEnded(), "a model call is open"),
    Offence(BORN, e.SessionReopened(), "it has not ended"),
    Offence((*BORN, e.SessionTrashed()), e.SessionTrashed(), "it is in the trash already"),
    Offence(TURN, e.SessionTrashed(), "turn 4 is running"),
    Offence(BORN, e.SessionRestored(), "it is not in the trash"),
    Offence(TURN, e.SessionMovedAway("there"), "turn 4 is running"),
    Offence((*BORN, e.SessionMovedAway("there")), e.SessionPinned(), "the session moved away"),
    Offence((*BORN, e.SessionMovedAway("there")), MESSAGE, "the session moved away"),
    Offence(TURN, e.ForkedFrom("s", "p", 4), "turn 4 is running"),
    Offence(BORN, e.ForkedFrom("s", "p", 2), "it continues 2, which lies ahead"),
    Offence((*BORN, e.SessionShared("a", 1)), e.SessionShared("a", 1), "share a is there already"),
    Offence(BORN, e.ShareRevoked("a"), "there is no share a"),
    Offence(TURN, e.SettingsChanged(model="m"), "turn 4 is running"),
    Offence(TURN, e.SettingsChanged(persona="p"), "turn 4 is running"),
    # messages
    Offence(BORN, e.MessageSent(()), "the message is empty"),
    Offence((*BORN, e.SessionEnded()), MESSAGE, "the session has ended"),
    Offence((*BORN, e.SessionTrashed()), MESSAGE, "the session is in the trash"),
    Offence((*BORN, e.SessionEnded()), e.RunAsked(), "the session has ended"),
    Offence(BORN, e.MessageWithdrawn(1), "message 1 is not waiting to be taken"),
    Offence(TURN, e.MessageWithdrawn(3), "message 3 is not waiting to be taken"),
    Offence(TURN, e.MessageEdited(3, (e.Text("z"),)), "message 3 is not waiting to be taken"),
    Offence(OWNED, e.CancelAsked(0), "turn 0 is not running"),
    Offence((*TURN, e.TurnEnded(4, "completed")), e.CancelAsked(4), "turn 4 is not running"),
    # turns
    Offence(TURN, e.TurnStarted(()), "turn 4 is running"),
    Offence(ASKED, e.TurnStarted((2,)), "message 2 is not waiting to be taken"),
    Offence(ASKED, e.TurnStarted((3, 3)), "it takes a message twice"),
    Offence((*ASKED, e.MessageWithdrawn(3)), e.TurnStarted((3,)), "message 3 is not waiting"),
    Offence((*ASKED, e.SessionTrashed()), e.TurnStarted((3,)), "the session is in the trash"),
    Offence(ASKED, e.PhaseChanged(4, "prepare"), "turn 4 is not running"),
    Offence(TURN, e.PhaseChanged(4, "assistant"), "nothing -> assistant is no legal transition"),
    Offence((*TURN, e.PhaseChanged(4, "prepare")), e.PhaseChanged(4, "tools"), "prepare -> tools is no legal"),
    Offence((*TURN, e.PhaseChanged(4, "prepare")), e.PhaseChanged(4, "prepare"), "prepare -> prepare is no legal"),
    Offence(ASKED, e.TurnEnded(4, "completed"), "turn 4 is not running"),
    Offence(CALLED, e.TurnEnded(4, "failed"), "model call 5 is open"),
    Offence(TOOLS, e.TurnEnded(4, "failed"), "tool call 'c1' is open"),
    Offence(QUESTION, e.TurnEnded(4, "failed"), "question 5 is open"),
    # the model
    Offence(ASKED, e.ModelCalled(4), "turn 4 is not running"),
    Offence(TURN, e.ModelCalled(), "an answer belongs to a turn"),
    Offence(TOOLS, e.ModelCalled(4), "tool call 'c1' is open"),
    Offence(CALLED, e.ModelCalled(4), "another call is open"),
    Offence(TURN, e.ModelCalled(4, takes=(3,)), "message 3 is not waiting to be taken"),
    Offence(TURN, e.ModelSpoke(4, 1, "x"), "model call 4 is not open"),
    Offence(TURN, e.ModelReplied(4), "model call 4 is not open"),
    Offence((*CALLED, e.ModelReplied(5)), e.ModelReplied(5), "model call 5 is not open"),
    Offence((*CALLED, e.ModelReplied(5)), e.ModelLost(5, "timeout"), "model call 5 is not open"),
    # tools
    Offence(ASKED, e.ToolStarted(4, "c1", "run", "{}"), "turn 4 is not running"),
    Offence(TOOLS, e.ToolStarted(4, "c9", "run", "{}"), "tool call 'c9' is not waiting to be run"),
    Offence(STARTED, e.ToolStarted(4, "c1", "run", "{}"), "tool call 'c1' is not waiting to be run"),
    Offence(WAITING, e.ToolStarted(4, "c1", "run", "{}"), "tool call 'c1' waits for approval"),
    Offence(TOOLS, e.ToolSpoke(7, 1, "x"), "tool 7 is not running"),
    Offence(TOOLS, e.ToolSpoke(0, 1, "x"), "tool 0 is not running"),
    Offence(STARTED, e.ToolFinished(4, "c1", "ok"), "tool call 'c1' is not open as None"),
    Offence(TOOLS, e.ToolFinished(4, "c1", "ok", tool=7), "tool call 'c1' is not open as 7"),
    Offence(TOOLS, e.ToolFinished(4, "c9", "denied"), "tool call 'c9' is not open as None"),
    Offence((*STARTED, e.ToolFinished(4, "c1", "ok", tool=7)), e.ToolFinished(4, "c1", "ok", tool=7), "is not open as 7"),
    Offence(STARTED, e.ToolFinished(9, "c1", "ok", tool=7), "turn 9 is not running"),
    Offence(TOOLS, e.ProcessStarted(7, 1, 1, "b", "c"), "tool 7 is not running"),
    Offence(TOOLS, e.FileSaved(7, "/f"), "tool 7 is not running"),
    Offence(STARTED, e.ProcessFound(7, True), "process 7 is not known to run"),
    Offence(STARTED, e.ProcessEnded(7), "process 7 is not known to run"),
    # permissions and questions
    Offence(STARTED, e.ApprovalAsked(4, "c1", "run", "?"), "tool call 'c1' is not waiting"),
    Offence(TURN, e.ApprovalAsked(4, "c1", "run", "?"), "tool call 'c1' is not waiting"),
    Offence(BORN, e.ApprovalAsked(4, "c1", "run", "?"), "only the owner may append it"),
    Offence(TOOLS, e.ApprovalAnswered(7, "once"), "approval 7 is not open"),
    Offence((*WAITING, e.ApprovalAnswered(7, "deny")), e.ApprovalAnswered(7, "once"), "approval 7 is not open"),
    Offence((*WAITING, e.ApprovalExpired(7)), e.ApprovalAnswered(7, "once"), "approval 7 is not open"),
    Offence(TOOLS, e.ApprovalExpired(7), "approval 7 is not open"),
    Offence(ASKED, e.QuestionAsked((e.Question("?"),), 4), "turn 4 is not running"),
    Offence(TURN, e.QuestionAsked((), 4), "it asks nothing"),
    Offence(QUESTION, e.QuestionAnswered(5, (e.Answer(),)), "question 5 has 2 parts, 1 were answered"),
    Offence(QUESTION, e.QuestionAnswered(4, (e.Answer(),) * 2), "question 4 is not open"),
    Offence((*QUESTION, e.QuestionExpired(5)), e.QuestionAnswered(5, (e.Answer(),) * 2), "question 5 is not open"),
    Offence(TURN, e.QuestionExpired(5), "question 5 is not open"),
    Offence(ASKED, e.PermissionDecided(4, "c", "allow"), "turn 4 is not running"),
    Offence(ASKED, e.CompletionChecked(4, "continuation_check", "accept", "c"), "turn 4 is not running"),
    Offence(ASKED, e.VerificationRun(4, "make", True), "turn 4 is not running"),
    # context
    Offence(CALLED, e.ContextCompacted("s", 3, 3, 1, 1, 1, 1, "model"), "a call is open, and only closed ones"),
    Offence(TOOLS, e.ContextCompacted("s", 3, 3, 1, 1, 1, 1, "model"), "a call is open, and only closed ones"),
    Offence(ASKED, e.ContextCompacted("s", 4, 3, 1, 1, 1, 1, "model"), "it covers up to 4 and keeps from 3"),
    Offence(ASKED, e.ContextCompacted("s", 3, 3, 2, 1, 1, 1, "model"), "compaction 2 does not follow 0"),
    Offence(ASKED, e.ContextCleared(2), "generation 2 does not follow 0"),
    Offence(TURN, e.ContextCleared(1), "turn 4 is running"),
    Offence((*BORN, e.SessionEnded()), e.ContextCleared(1), "the session has ended"),
    Offence(BORN, e.RecordExcluded(2), "there is no record 2 yet"),
    Offence(BORN, e.RecordIncluded(0), "there is no record 0 yet"),
    Offence(BORN, e.RecordErased(7), "there is no record 7 yet"),
    Offence(TURN, e.Rewound(1), "turn 4 is running"),
    Offence(BORN, e.Rewound(2), "2 is not in the past"),
    Offence(BORN, e.RewindUndone(0), "0 is not the last rewind"),
    Offence((*BORN, e.Rewound(1), e.Rewound(1)), e.RewindUndone(2), "2 is not the last rewind"),
    # where the work stands
    Offence(BORN, e.BriefAccepted(0), "brief 0 is not waiting for a word"),
    Offence((*BORN, e.BriefWritten("o"), e.BriefAccepted(2)), e.BriefRejected(2), "brief 2 is not waiting"),
    Offence((*BORN, e.PlanWritten(("s",)), e.PlanRejected(2)), e.PlanAccepted(2), "plan 2 is not waiting for a word"),
    Offence(BORN, e.PlanRejected(1), "plan 1 is not waiting for a word"),
    Offence((*OWNED, e.ChildStarted("c")), e.ChildStarted("c"), "child c was started already"),
    Offence(OWNED, e.ChildFinished("c", "failed"), "child c is not running"),
    Offence((*OWNED, e.ChildStarted("c"), e.ChildFinished("c", "failed")), e.ChildFinished("c", "failed"), "c is not running"),
]  # fmt: skip

FREE = {
    e.SessionRenamed, e.SessionArchived, e.SessionUnarchived, e.SessionPinned, e.SessionTagged, e.SessionRepointed,
    e.ModeRouted, e.LedgerChanged, e.TodoChanged, e.GoalSet, e.BriefWritten, e.PlanWritten, e.RecordImported,
    e.RulesLoaded, e.CompactionLost, e.RenderingChanged, e.TaskSet, e.PromptTold,
}  # fmt: skip
"""What may be said at any time, by whoever may say it."""


@pytest.mark.parametrize("offence", OFFENCES, ids=lambda o: f"{type(o.fact).__name__}: {o.says[:40]}")
def test_each_law_that_is_broken_is_said(offence: Offence) -> None:
    assert list(offences(told(*offence.before))) == []
    found = list(offences(told(*offence.before, offence.fact)))
    seq = len(offence.before) + 1
    assert len(found) == 1, found
    assert found[0].startswith(f"{seq}: {type(offence.fact).__name__}: ")
    assert offence.says in found[0]


def test_every_kind_has_a_law_or_is_free() -> None:
    judged = {type(offence.fact) for offence in OFFENCES}
    assert judged | FREE == set(KINDS.values())
    assert {kind for kind in FREE & judged if kind is not e.TaskSet and kind is not e.SessionPinned} == set()


@pytest.mark.parametrize("kind", sorted(FREE, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_what_is_free_may_be_said_in_any_session_that_is_here(kind: type[e.Fact]) -> None:
    made = next(event.fact for seed in range(20) for event in lawful(seed, 150) if type(event.fact) is kind)
    for before in (OWNED, TURN, CALLED, WAITING, (*OWNED, e.SessionEnded()), (*OWNED, e.SessionTrashed())):
        assert list(offences(told(*before, made))) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "fact"),
    [
        (TURN, e.SettingsChanged(permission_mode="ask")),
        ((*TURN, e.PhaseChanged(4, "prepare")), e.PhaseChanged(4, "prepare", "retry")),
        (
            (*TURN, e.PhaseChanged(4, "prepare"), e.PhaseChanged(4, "finalize")),
            e.PhaseChanged(4, "prepare", "reroute"),
        ),
        (CALLED, e.ModelCalled(4, "compaction")),
        (OWNED, e.ModelCalled(purpose="title")),
        ((*TOOLS, e.ToolStarted(4, "c1", "run", "{}", True)), e.ToolStarted(4, "c1", "run", "{}", True)),
        (TURN, e.ToolStarted(4, "", "verify", "{}")),
        (WAITING, e.ToolFinished(4, "c1", "denied")),
        (QUESTION, e.QuestionAnswered(5, (e.Answer(), e.Answer()))),
        ((*BORN, e.SessionMovedAway("t")), e.RecordErased(1)),
        ((*BORN, e.SessionMovedAway("t")), e.OwnerChanged(1)),
        ((*TURN, e.OwnerChanged(2)), e.OwnerChanged(3, "q")),
        ((*ASKED, e.SessionEnded(), e.SessionReopened()), e.TurnStarted((3,))),
    ],
)
def test_what_looks_odd_and_is_lawful(before: tuple[e.AnyFact, ...], fact: e.AnyFact) -> None:
    assert list(offences(told(*before, fact))) == []


def test_a_fact_that_anyone_may_append_carries_no_epoch() -> None:
    events = [*told(*OWNED), e.Event(3, 5, 1, None, MESSAGE)]
    assert list(offences(events)) == ["3: MessageSent: carries an epoch, though anyone may append it"]


def test_an_older_owner_s_facts_are_an_offence() -> None:
    events = [*told(*TURN, e.OwnerChanged(2, "q")), e.Event(6, 5, 1, None, e.TurnEnded(4, "failed"))]
    assert list(offences(events)) == [
        "6: TurnEnded: only the owner may append it, and epoch 1 is not its epoch"
    ]


def test_a_place_is_used_once_and_upwards() -> None:
    events = [*told(*BORN, MESSAGE, MESSAGE)]
    assert list(offences([events[0], events[2], events[1]])) == [
        "2: MessageSent: seq 2 does not come after 3"
    ]
    assert list(offences([*events, events[2]])) == ["3: MessageSent: seq 3 does not come after 3"]


def test_a_key_is_used_once() -> None:
    twice = [e.Event(seq, 5, 0, "k", MESSAGE) for seq in (2, 3)]
    assert list(offences([*told(*BORN), *twice])) == ["3: key 'k' was used before, at 2"]


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ((*CALLED, e.ModelSpoke(5, 2, "b")), ["6: ModelSpoke: piece 2 of 5 follows piece 0"]),
        ((*CALLED, e.ModelSpoke(5, 1, "a"), e.ModelSpoke(5, 1, "a")), ["7: ModelSpoke: piece 1 of 5 follows piece 1"]),
        ((*CALLED, e.ModelSpoke(5, 1, "a"), e.ModelReplied(5, pieces=2)), ["7: ModelReplied: says 2 pieces, 1 are there"]),
        ((*CALLED, e.ModelSpoke(5, 1, "a"), e.ModelLost(5, "timeout")), ["7: ModelLost: says 0 pieces, 1 are there"]),
        ((*STARTED, e.ToolSpoke(7, 1, "a"), e.ToolFinished(4, "c1", "ok", tool=7, pieces=3)), ["9: ToolFinished: says 3 pieces, 1 are there"]),
        ((*CALLED, e.ModelReplied(5, pieces=9)), []),
        ((*CALLED, e.ModelSpoke(5, 1, "a"), e.ModelSpoke(5, 2, "b"), e.ModelReplied(5, pieces=2)), []),
    ],
)  # fmt: skip
def test_pieces_are_numbered_and_their_end_counts_them_unless_they_were_dropped(
    facts: tuple[e.AnyFact, ...], says: list[str]
) -> None:
    assert list(offences(told(*facts))) == says


@pytest.mark.parametrize("fact", [e.Unknown("DreamDreamt"), e.Unreadable("torn"), e.Erased()])
def test_what_follows_a_record_that_cannot_be_read_is_not_judged(fact: e.Unknown) -> None:
    lawless = e.Event(9, 5, 7, None, e.TurnEnded(77, "failed"))
    found = list(offences([*told(*BORN), e.Event(2, 5, 0, None, fact), lawless]))
    assert found == [f"2: cannot be judged from here on, this record is {type(fact).__name__.lower()}"]


# --- every journal that chance makes and the law allows


def test_a_few_lively_sessions_hold_every_kind_of_fact() -> None:
    kinds = {type(event.fact) for seed in range(12) for event in lawful(seed, 200)}
    assert kinds == set(KINDS.values()) == {e.SessionCreated, *MAKERS}


def test_a_lively_session_is_the_same_for_the_same_seed() -> None:
    assert lawful(5, 80) == lawful(5, 80) != lawful(6, 80)
    assert lawful(5, 80, session="other")[0].fact == e.SessionCreated(
        **{**_fields(lawful(5, 1)[0]), "session": "other"}
    )


def _fields(event: e.Event) -> dict[str, object]:
    return {name: getattr(event.fact, name) for name in event.fact.__struct_fields__}


@given(st.integers(0, 10_000))
def test_a_lively_session_breaks_no_law_wherever_it_stops(seed: int) -> None:
    events = lawful(seed, 80)
    assert list(offences(events)) == []
    assert [event.seq for event in events] == list(range(1, 81))


@given(st.integers(0, 10_000))
def test_what_is_open_does_not_grow_with_what_has_happened(seed: int) -> None:
    """Everything that was begun can be closed, and then nothing of it is left."""
    standing = Standing()
    for event in lawful(seed, 60):
        standing = standing.after(event)
    seq = standing.seq
    for close in _closing(standing):
        seq += 1
        event = e.Event(seq, 5, standing.epoch if close.by == "owner" else 0, None, close)
        assert standing.objection(event) == "" or standing.moved or not standing.process
        standing = standing.after(event)
    assert standing.at_rest
    assert (standing.calls, standing.owed, standing.approvals, standing.questions) == ((), (), (), ())


def _closing(s: Standing) -> Iterator[e.AnyFact]:
    for call in s.calls:
        yield e.ModelLost(call.seq, "interrupted")
    for asked in s.questions:
        yield e.QuestionExpired(asked.seq)
    for owed in s.owed:
        yield e.ToolFinished(s.turn, owed.call_id, "unknown", tool=owed.tool or None)
    if s.turn:
        yield e.TurnEnded(s.turn, "interrupted")


# --- whatever the journal, there is an answer


@given(st.lists(EVENTS, max_size=12), FACTS, st.integers(0, 40), st.integers(0, 3))
def test_no_journal_and_no_fact_are_without_an_answer(
    events: list[e.Event], fact: e.AnyFact, seq: int, epoch: int
) -> None:
    standing, head = Standing(), Head()
    for event in events:
        assert isinstance(standing.objection(event), str)
        standing, head = standing.after(event), head.after(event)
    last = e.Event(seq, 5, epoch, None, fact)
    assert isinstance(standing.objection(last), str)
    assert isinstance(standing.after(last), Standing)
    assert head.state in ("active", "archived", "ended", "trashed", "moved")
    assert head.runnable_at is None or isinstance(head.runnable_at, int)
    assert all(isinstance(found, str) for found in offences([*events, last]))


@given(st.integers(0, 10_000), st.integers(1, 60), FACTS)
def test_in_a_lawful_journal_no_fact_is_without_an_answer(seed: int, length: int, fact: e.AnyFact) -> None:
    standing = Standing()
    for event in lawful(seed, length):
        standing = standing.after(event)
    for epoch in (0, standing.epoch):
        for seq in (1, standing.seq, standing.seq + 1, standing.seq + 900):
            event = e.Event(seq, 5, epoch, None, fact)
            assert isinstance(standing.objection(event), str)
            assert isinstance(standing.after(event), Standing)
