"""The laws a journal keeps: what may follow what.

`Standing` is what is open in a session, folded from its facts. It grows with what is open and not with what has
happened, so `append` can hold every fact against it in the transaction that stores it: a journal that breaks a law
cannot be written, and an answer to a closed question is refused by the same line that refuses a second end of a turn.

`offences(events)` reads a whole journal the same way and says in sentences what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perdure import events as e

PHASES: dict[str, tuple[str, ...]] = {
    "": ("prepare",),
    "prepare": ("assistant", "finalize"),
    "assistant": ("tools", "critique", "completion", "finalize"),
    "tools": ("assistant", "critique", "completion", "finalize"),
    "critique": ("assistant", "completion", "finalize"),
    "completion": ("prepare", "assistant", "finalize"),
    "finalize": (),
}
"""Where a turn may go from each phase. A retry or a recovery may also stay where it is; a reroute may begin again."""


class Pending(Struct, frozen=True, array_like=True):
    """A message that no call was shown yet."""

    seq: int
    role: str
    run: bool
    ts: int

    @property
    def wants_a_turn(self) -> bool:
        return self.run and self.role != "note"


class Call(Struct, frozen=True, array_like=True):
    """A model call that has neither replied nor been lost."""

    seq: int
    purpose: str


class Owed(Struct, frozen=True, array_like=True):
    """A tool call that has not finished. `tool` is its `ToolStarted`, or 0."""

    call_id: str
    tool: int = 0
    repeatable: bool = False


class Asked(Struct, frozen=True, array_like=True):
    """An approval (for one call) or a question (of so many parts) that waits for a person."""

    seq: int
    call_id: str = ""
    parts: int = 0


T = TypeVar("T", Call, Asked)


class Standing(Struct, frozen=True, omit_defaults=True):
    """What is open in a session, and who may close it. Positions, not flags, wherever there is a position."""

    seq: int = 0
    created: bool = False
    ended: bool = False
    trashed: bool = False
    moved: bool = False
    epoch: int = 0
    process: str = ""
    turn: int = 0
    phase: str = ""
    cancel: int = 0
    calls: tuple[Call, ...] = ()
    owed: tuple[Owed, ...] = ()
    pending: tuple[Pending, ...] = ()
    left: int = 0
    """Who took the session over in the middle of the running turn, because its owner was gone."""
    how: str = ""
    """What somebody said is to become of such a turn: continue, retry or abandon."""
    how_question: int = 0
    """The question that asks for just that."""
    approvals: tuple[Asked, ...] = ()
    questions: tuple[Asked, ...] = ()
    processes: tuple[int, ...] = ()
    children: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    rewinds: tuple[int, ...] = ()
    brief: int = 0
    plan: int = 0
    generation: int = 0
    compactions: int = 0

    @property
    def at_rest(self) -> bool:
        """Nothing is under way: a place where a session can be forked, cleared, switched or ended."""
        return not self.turn and not self.calls

    @property
    def verdict(self) -> str:
        """What is to become of a turn that was left behind, as far as anybody has said. Once it has been asked, a
        new word says it too: a steer goes on with the turn, and a prompt has a turn of its own in mind."""
        if not self.left or self.how or not self.how_question:
            return self.how if self.left else ""
        new = {p.role for p in self.pending if p.seq > self.how_question and p.wants_a_turn}
        return "abandon" if "prompt" in new else "continue" if new else ""

    @property
    def waits_for_person(self) -> bool:
        moot = self.how_question if self.verdict else 0
        return bool(self.approvals) or any(q.seq != moot for q in self.questions)

    def after(self, event: e.Event) -> Standing:
        """What is open once this has happened. Lawful or not, it gives an answer: a damaged journal still opens."""
        return _after(replace(self, seq=event.seq), event.seq, event)

    def objection(self, event: e.Event) -> str:
        """Which law the next event would break, in a sentence; empty if none."""
        if event.seq <= self.seq:
            return f"seq {event.seq} does not come after {self.seq}"
        fact = event.fact
        if isinstance(fact, e.Unknown | e.Unreadable | e.Erased):
            return ""
        if self.created is isinstance(fact, e.SessionCreated):
            return "a session is created twice" if self.created else "the session was not created"
        return _author(self, event, fact) or _state(self, fact) or _law(self, event.seq, fact)


def offences(events: Iterable[e.Event]) -> Iterator[str]:
    """Say, in sentences that begin with the seq, which laws these events (from the first on) break.

    What follows a record that cannot be read is not judged: nobody knows what it opened or closed.
    """
    standing = Standing()
    keys: dict[str, int] = {}
    pieces: dict[int, int] = {}
    for event in events:
        fact = event.fact
        if isinstance(fact, e.Unknown | e.Unreadable | e.Erased):
            yield f"{event.seq}: cannot be judged from here on, this record is {type(fact).__name__.lower()}"
            return
        if why := standing.objection(event):
            yield f"{event.seq}: {type(fact).__name__}: {why}"
        if event.key is not None and keys.setdefault(event.key, event.seq) != event.seq:
            yield f"{event.seq}: key {event.key!r} was used before, at {keys[event.key]}"
        if why := _pieces(pieces, fact):
            yield f"{event.seq}: {type(fact).__name__}: {why}"
        standing = standing.after(event)


def _pieces(counted: dict[int, int], fact: e.Fact) -> str:
    """The pieces of a call are numbered 1, 2, 3...; its end tells how many. All may be dropped after that."""
    match fact:
        case e.ModelSpoke(call=of, number=number) | e.ToolSpoke(tool=of, number=number):
            last = counted.get(of, 0)
            counted[of] = number
            return "" if number == last + 1 else f"piece {number} of {of} follows piece {last}"
        case e.ModelReplied(call=of, pieces=said) | e.ModelLost(call=of, pieces=said):
            found = counted.pop(of, 0)
        case e.ToolFinished(tool=int(of), pieces=said):
            found = counted.pop(of, 0)
        case _:
            return ""
    return "" if found in (0, said) else f"says {said} pieces, {found} are there"


def _author(s: Standing, event: e.Event, fact: e.Fact) -> str:
    if isinstance(fact, e.OwnerChanged):
        return "" if fact.epoch == s.epoch + 1 else f"epoch {fact.epoch} does not follow {s.epoch}"
    if fact.by == "anyone":
        return "" if event.epoch == 0 else "carries an epoch, though anyone may append it"
    if not s.process or event.epoch != s.epoch:
        return f"only the owner may append it, and epoch {event.epoch} is not its epoch"
    return ""


def _state(s: Standing, fact: e.Fact) -> str:
    """An ended or trashed session begins nothing new; what is still open in it may close."""
    if s.moved:
        return "" if isinstance(fact, e.RecordErased | e.OwnerChanged) else "the session moved away"
    if isinstance(fact, e.MessageSent | e.RunAsked | e.TurnStarted | e.Rewound | e.ContextCleared):
        if s.trashed:
            return "the session is in the trash"
        if s.ended:
            return "the session has ended"
    return ""


def _law(s: Standing, seq: int, fact: e.Fact) -> str:
    # What turns are made of stands first, here and in the folds: a match tries one case after another.
    match fact:
        case e.MessageSent(parts=parts, attachments=attachments):
            return "" if parts or attachments else "the message is empty"
        case e.TurnStarted(takes=takes):
            return (f"turn {s.turn} is running" if s.turn else "") or _takes(s, takes)
        case e.ModelCalled(turn=turn, purpose=purpose, takes=takes):
            return _may_call(s, turn, purpose) or _takes(s, takes)
        case e.ModelSpoke(call=call) | e.ModelReplied(call=call) | e.ModelLost(call=call):
            return "" if any(c.seq == call for c in s.calls) else f"model call {call} is not open"
        case e.ToolStarted(turn=turn, call_id=call_id):
            return _in_turn(s, turn) or _may_start(s, call_id)
        case e.ToolSpoke(tool=tool):
            return "" if tool and any(o.tool == tool for o in s.owed) else f"tool {tool} is not running"
        case e.ToolFinished(turn=turn, call_id=call_id, tool=tool):
            owed = any(o.call_id == call_id and o.tool == (tool or 0) for o in s.owed)
            return _in_turn(s, turn) or ("" if owed else f"tool call {call_id!r} is not open as {tool}")
        case e.TurnEnded(turn=turn):
            return _in_turn(s, turn) or _nothing_open(s)
        case e.PhaseChanged(turn=turn):
            return _in_turn(s, turn) or _phase(s.phase, fact)
        case e.SessionEnded():
            return "it has ended already" if s.ended else _busy(s)
        case e.SessionReopened():
            return "" if s.ended else "it has not ended"
        case e.SessionTrashed():
            return "it is in the trash already" if s.trashed else _busy(s)
        case e.SessionRestored():
            return "" if s.trashed else "it is not in the trash"
        case e.SessionMovedAway():
            return _busy(s)
        case e.ForkedFrom(at=at):
            return _busy(s) or ("" if at < seq else f"it continues {at}, which lies ahead")
        case e.SessionShared(share=share):
            return f"share {share} is there already" if share in s.shares else ""
        case e.ShareRevoked(share=share):
            return "" if share in s.shares else f"there is no share {share}"
        case e.SettingsChanged(model=model, persona=persona):
            return _busy(s) if model is not None or persona is not None else ""
        case e.MessageWithdrawn(message=message) | e.MessageEdited(message=message):
            waiting = any(p.seq == message for p in s.pending)
            return "" if waiting else f"message {message} is not waiting to be taken"
        case e.CancelAsked(turn=turn):
            return "" if turn and turn == s.turn else f"turn {turn} is not running"
        case e.ProcessStarted(tool=tool) | e.FileSaved(tool=tool):
            return "" if any(o.tool == tool for o in s.owed) else f"tool {tool} is not running"
        case e.ProcessFound(process=process) | e.ProcessEnded(process=process):
            return "" if process in s.processes else f"process {process} is not known to run"
        case e.ApprovalAsked(turn=turn, call_id=call_id):
            waiting = any(o.call_id == call_id and not o.tool for o in s.owed)
            return _in_turn(s, turn) or ("" if waiting else f"tool call {call_id!r} is not waiting")
        case e.ApprovalAnswered(approval=asked) | e.ApprovalExpired(approval=asked):
            return "" if any(a.seq == asked for a in s.approvals) else f"approval {asked} is not open"
        case e.QuestionAsked(turn=turn, questions=questions):
            return ("" if turn is None else _in_turn(s, turn)) or ("" if questions else "it asks nothing")
        case e.QuestionAnswered(question=asked, answers=answers):
            expected = next((a.parts for a in s.questions if a.seq == asked), 0)
            wrong = f"question {asked} has {expected} parts, {len(answers)} were answered"
            return _open_question(s, asked) or ("" if len(answers) == expected else wrong)
        case e.QuestionExpired(question=asked):
            return _open_question(s, asked)
        case e.PermissionDecided(turn=turn) | e.CompletionChecked(turn=turn) | e.VerificationRun(turn=turn):
            return _in_turn(s, turn)
        case e.ContextCompacted(upto=upto, kept_from=kept, ordinal=ordinal):
            return _closed_units(s, seq, upto, kept) or _next("compaction", ordinal, s.compactions)
        case e.ContextCleared(generation=generation):
            return _busy(s) or _next("generation", generation, s.generation)
        case (
            e.RecordExcluded(record=record) | e.RecordIncluded(record=record) | e.RecordErased(record=record)
        ):
            return "" if 0 < record < seq else f"there is no record {record} yet"
        case e.Rewound(to=to):
            return _busy(s) or ("" if 0 < to < seq else f"{to} is not in the past")
        case e.RewindUndone(rewind=rewind):
            last = s.rewinds[-1] if s.rewinds else 0
            return _busy(s) or ("" if rewind and rewind == last else f"{rewind} is not the last rewind")
        case e.BriefAccepted(brief=brief) | e.BriefRejected(brief=brief):
            return "" if brief and brief == s.brief else f"brief {brief} is not waiting for a word"
        case e.PlanAccepted(plan=plan) | e.PlanRejected(plan=plan):
            return "" if plan and plan == s.plan else f"plan {plan} is not waiting for a word"
        case e.ChildStarted(child=child):
            return f"child {child} was started already" if child in s.children else ""
        case e.ChildFinished(child=child):
            return "" if child in s.children else f"child {child} is not running"
        case (
            e.SessionCreated() | e.SessionRenamed() | e.SessionArchived() | e.SessionUnarchived()
            | e.SessionPinned() | e.SessionTagged() | e.SessionRepointed() | e.OwnerChanged() | e.RunAsked()
            | e.RulesLoaded() | e.CompactionLost() | e.RenderingChanged() | e.TaskSet() | e.ModeRouted()
            | e.LedgerChanged() | e.PromptTold() | e.TodoChanged() | e.GoalSet() | e.BriefWritten()
            | e.PlanWritten() | e.RecordImported()
        ):  # fmt: skip
            return ""
        case _:
            raise TypeError(f"{type(fact).__name__} has no law")


def _busy(s: Standing) -> str:
    return "" if s.at_rest else f"turn {s.turn} is running" if s.turn else "a model call is open"


def _in_turn(s: Standing, turn: int) -> str:
    return "" if turn and turn == s.turn else f"turn {turn} is not running"


def _takes(s: Standing, takes: tuple[int, ...]) -> str:
    waiting = {p.seq for p in s.pending}
    lost = [seq for seq in takes if seq not in waiting]
    if lost:
        return f"message {lost[0]} is not waiting to be taken"
    return "" if len(set(takes)) == len(takes) else "it takes a message twice"


def _nothing_open(s: Standing) -> str:
    if s.calls:
        return f"model call {s.calls[0].seq} is open"
    if s.owed:
        return f"tool call {s.owed[0].call_id!r} is open"
    if s.approvals:
        return f"approval {s.approvals[0].seq} is open"
    return f"question {s.questions[0].seq} is open" if s.questions else ""


def _phase(now: str, change: e.PhaseChanged) -> str:
    allowed = PHASES[now]
    if change.transition in ("retry", "recovery"):
        allowed += (now,)
    if change.transition in ("reroute", "recovery"):
        allowed += ("prepare",)
    return "" if change.phase in allowed else f"{now or 'nothing'} -> {change.phase} is no legal transition"


def _may_call(s: Standing, turn: int | None, purpose: str) -> str:
    if turn is not None and turn != s.turn:
        return f"turn {turn} is not running"
    if purpose != "answer":
        return ""
    if turn is None:
        return "an answer belongs to a turn"
    if s.owed:
        return f"tool call {s.owed[0].call_id!r} is open"
    return "another call is open" if any(c.purpose == "answer" for c in s.calls) else ""


def _may_start(s: Standing, call_id: str) -> str:
    if not call_id:  # the runtime's own, such as a verification: nobody asked for it by name
        return ""
    if any(a.call_id == call_id for a in s.approvals):
        return f"tool call {call_id!r} waits for approval"
    startable = any(o.call_id == call_id and (not o.tool or o.repeatable) for o in s.owed)
    return "" if startable else f"tool call {call_id!r} is not waiting to be run"


def _open_question(s: Standing, asked: int) -> str:
    return "" if any(a.seq == asked for a in s.questions) else f"question {asked} is not open"


def _closed_units(s: Standing, seq: int, upto: int, kept: int) -> str:
    if s.owed or any(c.purpose == "answer" for c in s.calls):
        return "a call is open, and only closed ones can be covered"
    return "" if 0 < upto < seq and 0 < kept <= seq else f"it covers up to {upto} and keeps from {kept}"


def _next(what: str, number: int, last: int) -> str:
    return "" if number == last + 1 else f"{what} {number} does not follow {last}"


def _after(s: Standing, seq: int, event: e.Event) -> Standing:
    fact = event.fact
    match fact:
        case e.MessageSent(role=role, run=run):
            return replace(s, pending=(*s.pending, Pending(seq, role, run, event.ts)))
        case e.TurnStarted(takes=takes):
            taken = tuple(p for p in s.pending if p.seq not in takes)
            return replace(s, turn=seq, phase="", cancel=0, left=0, how="", how_question=0, pending=taken)
        case e.ModelCalled(purpose=purpose, takes=takes):
            taken = tuple(p for p in s.pending if p.seq not in takes)
            gone_on = replace(s, left=0, how="", how_question=0) if purpose == "answer" else s
            return replace(gone_on, calls=(*s.calls, Call(seq, purpose)), pending=taken)
        case e.ModelReplied(call=call, parts=parts):
            answers = any(c.seq == call and c.purpose == "answer" for c in s.calls)
            owed = tuple(Owed(p.call_id) for p in parts if isinstance(p, e.ToolCall)) if answers else ()
            return replace(s, calls=_without(s.calls, call), owed=s.owed + owed)
        case e.ToolStarted(call_id=call_id, repeatable=repeatable):
            started = Owed(call_id, seq, repeatable)
            if not call_id:
                return replace(s, owed=(*s.owed, started))
            at = next((i for i, o in enumerate(s.owed) if o.call_id == call_id and not o.tool), None)
            if at is None:
                at = next((i for i, o in enumerate(s.owed) if o.call_id == call_id), len(s.owed))
            return replace(s, owed=(*s.owed[:at], started, *s.owed[at + 1 :]))
        case e.ToolFinished(call_id=call_id, tool=tool):
            at = next(
                (i for i, o in enumerate(s.owed) if o.call_id == call_id and o.tool == (tool or 0)),
                len(s.owed),
            )
            open_still = tuple(a for a in s.approvals if a.call_id != call_id)
            return replace(s, owed=(*s.owed[:at], *s.owed[at + 1 :]), approvals=open_still)
        case e.TurnEnded():
            return replace(
                s, turn=0, phase="", cancel=0, left=0, how="", how_question=0, owed=(), approvals=(), questions=()
            )  # fmt: skip
        case e.PhaseChanged(phase=phase):
            return replace(s, phase=phase)
        case e.SessionCreated():
            return replace(s, created=True)
        case e.ForkedFrom():
            # What nobody had taken is the parent's to answer; the fork owes nothing and is run by no one yet.
            return Standing(
                seq=seq, created=True, epoch=s.epoch, generation=s.generation, compactions=s.compactions,
                rewinds=s.rewinds, brief=s.brief, plan=s.plan,
            )  # fmt: skip
        case e.SessionEnded():
            return replace(s, ended=True)
        case e.SessionReopened():
            return replace(s, ended=False)
        case e.SessionTrashed():
            return replace(s, trashed=True)
        case e.SessionRestored():
            return replace(s, trashed=False)
        case e.SessionMovedAway():
            return replace(s, moved=True)
        case e.SessionShared(share=share):
            return replace(s, shares=(*s.shares, share))
        case e.ShareRevoked(share=share):
            return replace(s, shares=tuple(x for x in s.shares if x != share))
        case e.OwnerChanged(epoch=epoch, process=process):
            # An owner that lets go does so between two moves; one that is followed without a word was killed.
            found = s.left or (seq if s.turn and process and s.process else 0)
            return replace(s, epoch=epoch, process=process, left=found)
        case e.RunAsked(how=said):
            asked = s.pending if said != "continue" else tuple(replace(p, run=True) for p in s.pending)
            return replace(s, pending=asked, how=said if s.turn else "")
        case e.MessageWithdrawn(message=message):
            return replace(s, pending=tuple(p for p in s.pending if p.seq != message))
        case e.CancelAsked():
            return replace(s, cancel=seq)
        case e.ModelLost(call=call):
            return replace(s, calls=_without(s.calls, call))
        case e.ProcessStarted():
            return replace(s, processes=(*s.processes, seq))
        case e.ProcessEnded(process=process):
            return replace(s, processes=tuple(p for p in s.processes if p != process))
        case e.ApprovalAsked(call_id=call_id):
            return replace(s, approvals=(*s.approvals, Asked(seq, call_id)))
        case e.ApprovalAnswered(approval=asked) | e.ApprovalExpired(approval=asked):
            return replace(s, approvals=_without(s.approvals, asked))
        case e.QuestionAsked(questions=questions, call_id=call_id):
            asks_how = seq if s.left and not call_id else s.how_question
            asked_too = Asked(seq, call_id, len(questions))
            return replace(s, questions=(*s.questions, asked_too), how_question=asks_how)
        case e.QuestionAnswered(question=asked, answers=answers):
            how = _how(answers) if asked == s.how_question else s.how
            return replace(s, questions=_without(s.questions, asked), how=how)
        case e.QuestionExpired(question=asked):
            return replace(s, questions=_without(s.questions, asked))
        case e.ContextCompacted(ordinal=ordinal):
            return replace(s, compactions=ordinal)
        case e.ContextCleared(generation=generation):
            return replace(s, generation=generation)
        case e.Rewound():
            return replace(s, rewinds=(*s.rewinds, seq))
        case e.RewindUndone(rewind=rewind):
            return replace(s, rewinds=tuple(r for r in s.rewinds if r != rewind))
        case e.BriefWritten():
            return replace(s, brief=seq)
        case e.BriefAccepted() | e.BriefRejected():
            return replace(s, brief=0)
        case e.PlanWritten():
            return replace(s, plan=seq)
        case e.PlanAccepted() | e.PlanRejected():
            return replace(s, plan=0)
        case e.ChildStarted(child=child):
            return replace(s, children=(*s.children, child))
        case e.ChildFinished(child=child):
            return replace(s, children=tuple(c for c in s.children if c != child))
        case _:
            return s


def _how(answers: tuple[e.Answer, ...]) -> str:
    chosen = answers[0].chosen[:1] if answers else ()
    return e.HOW[chosen[0]] if chosen and 0 <= chosen[0] < len(e.HOW) else e.HOW[0]


def _without(open_things: tuple[T, ...], seq: int) -> tuple[T, ...]:
    return tuple(x for x in open_things if x.seq != seq)
