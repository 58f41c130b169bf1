"""What can happen: every fact, its fields, its meaning, and who may append it.

A session is a journal of these and nothing else. A fact is in the past tense and says what became true; where the
agent stands, what the list shows, what it cost are read from facts (see `views`), never stored beside them.

Two kinds of author write here. The *owner* is the one process that runs the session: its facts carry its epoch and
are refused once another has taken over. *Anyone* (a person at any door, an importer) writes the rest at any time.

Facts name one another by `seq`, the position in the session. Times are microseconds since 1970, UTC, and never
decide an order. Shapes are for ever: a field may be added with a default, nothing is renamed or taken away.
"""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from msgspec import Struct, field

Seq = int
"""A position in a session's journal: ordered, unique, not dense (pieces of a closed call may be dropped)."""

Author = Literal["owner", "anyone"]
Moves = Literal["", "turn", "message"]


class Fact(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag=True, tag_field="kind"):
    """Something that happened in a session."""

    by: ClassVar[Author] = "owner"
    moves: ClassVar[Moves] = ""
    """Which of the list's times it moves: `turn` moves `updated_at`, `message` moves `last_message_at` as well."""
    piece: ClassVar[bool] = False
    """Part of a stream whose whole text a later fact holds; it may be dropped after that."""


class Value(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of facts that has no life of its own."""


class Text(Value, frozen=True, tag=True, tag_field="kind"):
    """What somebody or something said, in words."""

    text: str


class Thinking(Value, frozen=True, tag=True, tag_field="kind"):
    """What a model thought before it spoke."""

    text: str
    signature: str = ""
    """The provider's seal on it; only ever sent back to the model that made it."""


class ToolCall(Value, frozen=True, tag=True, tag_field="kind"):
    """A model's wish to have a tool run."""

    call_id: str
    name: str
    arguments: str
    """The JSON text exactly as the model wrote it, valid or not."""


class Blob(Value, frozen=True, tag=True, tag_field="kind"):
    """Content stored once by its hash, outside the journal's rows."""

    hash: str
    """SHA-256 of the content, in hex."""
    size: int
    media_type: str = "text/plain"
    name: str = ""
    head: str = ""
    """The first lines, where the content is text, so that nobody needs the whole to show that it exists."""
    tail: str = ""


class Attachment(Value, frozen=True):
    """Content that a person put beside a message."""

    name: str
    content: Blob
    path: str = ""
    """Where in the workspace it came from, if it did."""


Part = Text | Blob
ReplyPart = Text | Thinking | ToolCall | Blob


class Usage(Value, frozen=True):
    """What one call cost, in tokens, as the provider reported it. Nothing in one field is counted in another's sum:
    `cache_read`, `cache_write` and `reasoning` say how much of `input` and `output` was of that kind."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False
    """Counted by us, because the provider did not say."""


class Budget(Value, frozen=True):
    """What may be spent before the session pauses and asks; what is absent is unlimited."""

    tokens: int | None = None
    micros: int | None = None
    """Money, in millionths of a dollar."""
    turns: int | None = None
    seconds: int | None = None


class Evidence(Value, frozen=True):
    """One thing that speaks for or against a claim, and where it comes from."""

    category: str
    source: str
    summary: str
    subject: str = ""
    status: Literal["supports", "missing", "contradicts", "context"] = "context"
    rests_on: tuple[Seq, ...] = ()
    """The facts it was read from."""


class Choice(Value, frozen=True):
    """One of the answers a question offers."""

    label: str
    description: str = ""


class Question(Value, frozen=True):
    """One question to a person."""

    text: str
    choices: tuple[Choice, ...] = ()
    several: bool = False
    """More than one choice may be taken."""
    free_text: bool = True


class Answer(Value, frozen=True):
    """What a person said to one question: choices by their place, words, or both."""

    chosen: tuple[int, ...] = ()
    """Places in the question's `choices`, from 0."""
    text: str = ""


class RuleSource(Value, frozen=True):
    """A file, and what was in it then."""

    path: str
    hash: str
    """SHA-256 of its content, in hex."""


class PromptSection(Value, frozen=True):
    """A named part of the instructions, by the hash of its text."""

    name: str
    hash: str
    """SHA-256 of its text, in hex."""


class TodoItem(Value, frozen=True):
    """One line of the todo list."""

    text: str
    status: Literal["pending", "in_progress", "completed", "cancelled"] = "pending"


# --- the session ---


Source = Literal["terminal", "api", "browser", "cron", "library", "import", "sub-agent"]


class SessionCreated(Fact, frozen=True):
    """The first fact of every journal that was not forked."""

    by = "anyone"
    session: str
    """Its id, for ever."""
    source: Source = "library"
    workspace: str = ""
    """Where it started. It stays, while `SettingsChanged` moves the present workspace."""
    project_key: str = ""
    """What sessions of one project have in common; lists filter by it."""
    title: str = ""
    """Empty: the title is made from the first message."""
    parent: str = ""
    """The session it is a sub-agent of."""
    depth: int = 0
    """How many parents there are above it."""
    model: str = ""
    persona: str = ""
    persona_hash: str = ""
    permission_mode: str = ""
    mode: str = ""
    tools: tuple[str, ...] | None = None
    """The names of the tools it may use; None means all there are."""
    budget: Budget | None = None
    created_at: int = 0
    """When it was first created, if that was not here (an import); 0 means the time of this fact."""
    version: str = ""
    """The Perdure that created it."""


class ForkedFrom(Fact, frozen=True):
    """This journal goes on from another's at `at`, where nothing was open, and shares its past."""

    by = "anyone"
    session: str
    parent: str
    at: Seq
    title: str = ""


class SessionRenamed(Fact, frozen=True):
    """The session has another title."""

    by = "anyone"
    title: str
    given_by: Literal["person", "model"] = "person"
    """A title given by a person is never replaced by one that a model gives."""


class SessionEnded(Fact, frozen=True):
    """It takes no more messages, until `SessionReopened`."""

    by = "anyone"
    reason: str = ""


class SessionReopened(Fact, frozen=True):
    """An ended session takes messages again."""

    by = "anyone"


class SessionArchived(Fact, frozen=True):
    """It is put out of the way. Whoever speaks to it is heard as before."""

    by = "anyone"


class SessionUnarchived(Fact, frozen=True):
    """It is back from the archive."""

    by = "anyone"


class SessionTrashed(Fact, frozen=True):
    """It takes no message, and may be purged later; until then `SessionRestored` brings it back whole."""

    by = "anyone"
    reason: str = ""


class SessionRestored(Fact, frozen=True):
    """It is back from the trash, whole."""

    by = "anyone"


class SessionPinned(Fact, frozen=True):
    """Somebody wants it at hand (with `pinned` false: no longer), so it is not pruned."""

    by = "anyone"
    pinned: bool = True


class SessionTagged(Fact, frozen=True):
    """It has these tags."""

    by = "anyone"
    tags: tuple[str, ...]
    """All tags it has from now on, not the ones added."""


class SessionRepointed(Fact, frozen=True):
    """The project moved; the session belongs to its new place."""

    by = "anyone"
    workspace: str
    project_key: str


class SessionShared(Fact, frozen=True):
    """Others may read it, up to this place, under this name."""

    by = "anyone"
    share: str
    """The share's own name; `ShareRevoked` says it again."""
    upto: Seq
    redacted: bool = True


class ShareRevoked(Fact, frozen=True):
    """Nobody may read it under this name any more."""

    by = "anyone"
    share: str


class SessionMovedAway(Fact, frozen=True):
    """It goes on in another store; here it takes nothing more."""

    by = "anyone"
    to: str
    """The other store, as people would name it."""
    bundle: str = ""
    """The hash of what was carried over."""


class SettingsChanged(Fact, frozen=True):
    """What is named changes, what is None stays."""

    by = "anyone"
    model: str | None = None
    provider: str | None = None
    persona: str | None = None
    persona_hash: str | None = None
    permission_mode: str | None = None
    prompting: bool | None = None
    workspace: str | None = None
    project_key: str | None = None
    tools: tuple[str, ...] | None = None
    budget: Budget | None = None
    changed_by: str = ""


class OwnerChanged(Fact, frozen=True):
    """One process runs the session from here on, or (with an empty `process`) none does.

    It is appended by the one that takes over, so anyone may; its own epoch, one above the last, is what makes two
    takers at the same moment impossible.
    """

    by = "anyone"
    epoch: int
    process: str = ""
    """The lease it holds, by its id in the store."""
    owner_kind: Literal["terminal", "server", "worker", "library", "nobody"] = "nobody"
    name: str = ""
    host: str = ""
    pid: int = 0
    version: str = ""


# --- messages ---


class MessageSent(Fact, frozen=True):
    """Somebody said something to the agent. It is accepted here, whoever runs the session and whenever."""

    by = "anyone"
    moves = "message"
    parts: tuple[Part, ...]
    attachments: tuple[Attachment, ...] = ()
    author: str = "person"
    """`person`, a name, `runtime`, or `session:<id>` for a child's or a background task's result."""
    role: Literal["prompt", "steer", "note"] = "prompt"
    """A prompt gets a turn of its own; a steer joins the running one; a note is shown to the model, owed nothing."""
    run: bool = True
    """False: stored, and owed no turn until a later message or `RunAsked` asks for one."""


How = Literal["continue", "retry", "abandon"]
HOW: tuple[How, ...] = get_args(How)


class RunAsked(Fact, frozen=True):
    """Messages stored with `run=False`, or a turn left behind by a crash, are to be gone on with."""

    by = "anyone"
    how: How = "continue"
    """What becomes of such a turn: it goes on, or does so as if its last answer had not begun, or it ends here."""


class MessageWithdrawn(Fact, frozen=True):
    """A message that no turn has taken is taken back."""

    by = "anyone"
    message: Seq
    reason: str = ""


class MessageEdited(Fact, frozen=True):
    """A message that no turn has taken says something else."""

    by = "anyone"
    message: Seq
    parts: tuple[Part, ...]
    attachments: tuple[Attachment, ...] = ()


class CancelAsked(Fact, frozen=True):
    """Someone wants the running turn to stop. It is durable intent: it holds whoever runs the turn, and when."""

    by = "anyone"
    turn: Seq
    reason: str = ""


# --- turns ---


class TurnStarted(Fact, frozen=True):
    """The agent begins to answer."""

    moves = "turn"
    takes: tuple[Seq, ...]
    """The messages this turn answers, in the order in which they are first shown to the model."""


Phase = Literal["prepare", "assistant", "tools", "critique", "completion", "finalize"]


class PhaseChanged(Fact, frozen=True):
    """The turn goes on to its next phase."""

    moves = "turn"
    turn: Seq
    phase: Phase
    transition: Literal["normal", "retry", "reroute", "recovery", "terminal"] = "normal"
    code: str = ""
    summary: str = ""


class TurnEnded(Fact, frozen=True):
    """The turn is over: nothing in it is open any more."""

    moves = "turn"
    turn: Seq
    outcome: Literal["completed", "cancelled", "failed", "interrupted"]
    cause: str = ""
    """Why, in words for people."""
    code: str = ""
    """Why, in a word for programs."""


# --- the model ---


class ModelCalled(Fact, frozen=True):
    """A request is about to leave."""

    moves = "turn"
    turn: Seq | None = None
    """None for a call outside any turn: a title, a compaction asked for by hand, a side question."""
    purpose: Literal["answer", "compaction", "title", "side"] = "answer"
    takes: tuple[Seq, ...] = ()
    """Messages that this call shows for the first time: the steers that join the running turn."""
    model: str = ""
    provider: str = ""
    attempt: int = 1
    shown: tuple[str, ...] = ()
    """Hashes of the stored texts it was shown: system prompt, tool texts, project files."""
    rendering: int = 1
    """Which form our own requests were written in."""
    request_hash: str = ""
    """SHA-256 of the request, in hex."""


Channel = Literal["text", "thinking", "call"]


class ModelSpoke(Fact, frozen=True):
    """A piece of a reply as it arrived."""

    moves = "turn"
    piece = True
    call: Seq
    number: int
    """1, 2, 3... within its call."""
    text: str
    channel: Channel = "text"


class ModelReplied(Fact, frozen=True):
    """The call ended with an answer; `parts` hold all of it, whatever pieces came before."""

    moves = "message"
    call: Seq
    parts: tuple[ReplyPart, ...] = ()
    usage: Usage = Usage()
    finish: str = ""
    """Why it ended, in the provider's word."""
    response_id: str = ""
    """The provider's own name for the answer: usage is counted once for each."""
    pieces: int = 0
    """How many pieces there were. They may be dropped from here on."""


LostReason = Literal[
    "interrupted",
    "cancelled",
    "connection",
    "timeout",
    "overloaded",
    "rate_limited",
    "server",
    "refused",
    "bad_request",
    "unauthorized",
    "quota",
    "context_full",
    "unfinished",
    "internal",
]


class ModelLost(Fact, frozen=True):
    """The call ended without an answer; what had been shown of it is kept."""

    moves = "turn"
    call: Seq
    reason: LostReason
    parts: tuple[ReplyPart, ...] = ()
    usage: Usage = Usage()
    response_id: str = ""
    status: int | None = None
    """The HTTP status, where there was one."""
    error: str = ""
    """The true cause for people; never sent to a model."""
    retry_at: int | None = None
    """When the next attempt may leave; None if there will be none."""
    pieces: int = 0
    """How many pieces there were. They may be dropped from here on."""


# --- tools ---


class ToolStarted(Fact, frozen=True):
    """The effect begins after this and not before."""

    moves = "turn"
    turn: Seq
    call_id: str
    name: str
    arguments: str
    """What it is run with, as JSON: the model's own, or what a policy made of it."""
    repeatable: bool = False
    """Running it again changes nothing, so after a crash it is run again."""


class ToolSpoke(Fact, frozen=True):
    """A piece of what a running tool printed."""

    moves = "turn"
    piece = True
    tool: Seq
    number: int
    text: str
    stream: Literal["stdout", "stderr"] = "stdout"


ToolOutcome = Literal["ok", "failed", "denied", "cancelled", "unknown"]


class ToolFinished(Fact, frozen=True):
    """The one end of a tool call, whether it was run or not."""

    moves = "turn"
    turn: Seq
    call_id: str
    outcome: ToolOutcome
    """`unknown`: it was begun, and nobody can say whether it was done."""
    parts: tuple[Part, ...] = ()
    """What the model is told of it."""
    tool: Seq | None = None
    """Its `ToolStarted`; None if it was never begun."""
    exit_code: int | None = None
    micros: int | None = None
    """How long it ran, in microseconds."""
    pieces: int = 0
    """How many pieces there were. They may be dropped from here on."""


class ProcessStarted(Fact, frozen=True):
    """A tool left a process running. A pid means something only with its start time and boot."""

    moves = "turn"
    tool: Seq
    pid: int
    started: int
    """When the system says it began."""
    boot: str
    """Which start of the machine it belongs to."""
    command: str
    background: bool = False


class ProcessFound(Fact, frozen=True):
    """After a crash, a process of an earlier run was looked for."""

    process: Seq
    alive: bool
    detail: str = ""


class ProcessEnded(Fact, frozen=True):
    """A process that a tool left running is gone, or is nobody's business here any more."""

    process: Seq
    exit_code: int | None = None
    how: Literal["exited", "killed", "vanished", "kept"] = "exited"
    output: Blob | None = None


class FileSaved(Fact, frozen=True):
    """What a file held before a tool changed it, so that a rewind can bring it back."""

    moves = "turn"
    tool: Seq
    path: str
    before: Blob | None = None
    """None: there was no such file."""
    file_mode: int | None = None


# --- permissions and questions ---


class ApprovalAsked(Fact, frozen=True):
    """A tool call waits for a person's yes."""

    moves = "turn"
    turn: Seq
    call_id: str
    tool: str
    summary: str
    reason: str = ""


class ApprovalAnswered(Fact, frozen=True):
    """A person said yes or no, once: a second answer is refused."""

    by = "anyone"
    moves = "turn"
    approval: Seq
    verdict: Literal["once", "session", "always", "deny"]
    reason: str = ""
    answered_by: str = ""


class ApprovalExpired(Fact, frozen=True):
    """Nobody answered, and nobody can any more."""

    approval: Seq
    cause: str = ""


class QuestionAsked(Fact, frozen=True):
    """The agent waits for a person's answers."""

    moves = "turn"
    questions: tuple[Question, ...]
    turn: Seq | None = None
    call_id: str = ""


class QuestionAnswered(Fact, frozen=True):
    """A person answered every part, once: a second answer is refused."""

    by = "anyone"
    moves = "turn"
    question: Seq
    answers: tuple[Answer, ...]
    answered_by: str = ""


class QuestionExpired(Fact, frozen=True):
    """Nobody answered, and nobody can any more."""

    question: Seq
    cause: str = ""


class RulesLoaded(Fact, frozen=True):
    """The permission rules in force from here on."""

    permission_mode: str
    prompting: bool
    allow: int = 0
    deny: int = 0
    ask: int = 0
    sources: tuple[RuleSource, ...] = ()
    rules: Blob | None = None
    changed_by: str = ""


class PermissionDecided(Fact, frozen=True):
    """What a policy said to one tool call, and why."""

    moves = "turn"
    turn: Seq
    call_id: str
    verdict: Literal["allow", "deny", "ask"]
    rule: str = ""
    reason: str = ""
    rewritten: str | None = None
    """Other arguments it is to be run with."""


# --- context ---


class ContextCompacted(Fact, frozen=True):
    """From here on the model is shown `summary` in place of everything before `kept_from`."""

    summary: str
    upto: Seq
    """The last fact the summary covers."""
    kept_from: Seq
    """The first message shown verbatim after it."""
    ordinal: int
    """1, 2, 3... within the session."""
    messages: int
    """How many messages the summary stands for."""
    tokens_before: int
    tokens_after: int
    strategy: Literal["model", "deterministic", "truncate"]
    focus: str = ""
    """What the summary was asked to keep in view."""
    call: Seq | None = None
    """The model call that wrote it; None if none did."""


class CompactionLost(Fact, frozen=True):
    """A compaction was tried and changed nothing."""

    reason: str
    call: Seq | None = None


class ContextCleared(Fact, frozen=True):
    """The model's context begins anew; what came before is archived, not gone."""

    by = "anyone"
    generation: int
    """1, 2, 3... within the session."""
    why: Literal["clear", "model", "persona"] = "clear"
    carried: bool = False
    """The conversation comes along (a switch), or does not (a clear)."""


class RecordExcluded(Fact, frozen=True):
    """The model is not shown this record from here on. People still are."""

    by = "anyone"
    record: Seq
    why: str = ""


class RecordIncluded(Fact, frozen=True):
    """The model is shown this record again."""

    by = "anyone"
    record: Seq


class RenderingChanged(Fact, frozen=True):
    """Requests are written in a newer form from here on, so the provider's cache starts anew."""

    rendering: int
    reason: str = ""


class Rewound(Fact, frozen=True):
    """The conversation, the files, or both go on from `to`. Nothing is removed: it may be undone."""

    by = "anyone"
    to: Seq
    """The last record that still counts."""
    what: Literal["conversation", "files", "both"] = "conversation"
    why: Literal["rewind", "undo", "edit", "retry"] = "rewind"


class RewindUndone(Fact, frozen=True):
    """The last rewind counts no more."""

    by = "anyone"
    rewind: Seq


# --- where the work stands ---


class TaskSet(Fact, frozen=True):
    """What is being worked on, and when it counts as done."""

    moves = "turn"
    statement: str
    criteria: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    """Commands that verify it."""
    retries: int = 3


class ModeRouted(Fact, frozen=True):
    """The work goes on in this mode, and why."""

    by = "anyone"
    moves = "turn"
    mode: Literal["clarify", "plan", "execute", "verify"]
    decision: Literal["initial_route", "requested", "forced", "handoff", "reentry", "artifact_reuse"]
    code: str = ""
    summary: str = ""
    ambiguity: float = 0.0
    complexity: float = 0.0
    score: float = 0.0
    runner_up: str = ""
    runner_up_score: float = 0.0
    next_mode: str = ""
    unresolved: tuple[str, ...] = ()
    routed_by: str = ""


class CompletionChecked(Fact, frozen=True):
    """A policy looked at whether the turn, or the task, is done."""

    moves = "turn"
    turn: Seq
    stage: Literal["continuation_check", "definition_of_done"]
    outcome: Literal["continue", "accept", "finalize", "complete"]
    code: str
    summary: str = ""
    done: tuple[str, ...] = ()
    """Criteria that are met."""
    pending: tuple[str, ...] = ()
    """Criteria that are not."""
    status: Literal["", "draft", "in_progress", "verifying", "fixing", "done", "failed"] = ""
    evidence: tuple[Evidence, ...] = ()


class LedgerChanged(Fact, frozen=True):
    """What is assumed, agreed or ruled out: one item of it, as it is now."""

    by = "anyone"
    moves = "turn"
    item: str
    """The item's own name: the same again changes it."""
    list: Literal["assumptions", "acceptance_anchors", "decision_boundaries"]
    text: str
    status: Literal["open", "tracked", "changed", "contradicted", "reopened", "settled"] = "open"
    phase: str = ""
    evidence: tuple[Evidence, ...] = ()


class PromptTold(Fact, frozen=True):
    """The instructions the model works under changed to this; the content is stored once by hash."""

    prompt: Blob
    format: str
    sections: tuple[PromptSection, ...] = ()
    mode: str = ""
    permission_mode: str = ""
    task: str = ""


class TodoChanged(Fact, frozen=True):
    """The todo list is this, all of it."""

    by = "anyone"
    moves = "turn"
    items: tuple[TodoItem, ...]


class GoalSet(Fact, frozen=True):
    """What the session works towards over many turns."""

    by = "anyone"
    goal: str
    status: Literal["active", "paused", "reached", "dropped"] = "active"
    budget: Budget | None = None


class VerificationRun(Fact, frozen=True):
    """A check of the work was run."""

    moves = "turn"
    turn: Seq
    command: str
    passed: bool | None
    """None: it could not be run, which is not a pass."""
    attempt: int = 1
    exit_code: int | None = None
    output: Blob | None = None
    tool: Seq | None = None


class BriefWritten(Fact, frozen=True):
    """What is wanted, as the agent understood it. It waits for a person's word."""

    by = "anyone"
    moves = "turn"
    outcome: str
    scope: tuple[str, ...] = ()
    non_goals: tuple[str, ...] = ()
    boundaries: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    written_by: str = "agent"


class BriefAccepted(Fact, frozen=True):
    """The brief that waited is agreed to."""

    by = "anyone"
    brief: Seq


class BriefRejected(Fact, frozen=True):
    """The brief that waited is not what was wanted."""

    by = "anyone"
    brief: Seq
    reason: str = ""


class PlanWritten(Fact, frozen=True):
    """How the work is to be done. It waits for a person's word."""

    by = "anyone"
    moves = "turn"
    steps: tuple[str, ...]
    checks: tuple[str, ...] = ()
    files: tuple[RuleSource, ...] = ()
    """What it was written against: when these change, the plan is stale."""
    brief: Seq | None = None
    written_by: str = "agent"


class PlanAccepted(Fact, frozen=True):
    """The plan that waited is agreed to."""

    by = "anyone"
    plan: Seq


class PlanRejected(Fact, frozen=True):
    """The plan that waited is not how it is to be done."""

    by = "anyone"
    plan: Seq
    reason: str = ""


# --- children, imports, erasure ---


class ChildStarted(Fact, frozen=True):
    """Names the child before it exists, so that a crash between the two leaves a name to look for."""

    moves = "turn"
    child: str
    """The id the child session will have."""
    turn: Seq | None = None
    call_id: str = ""
    persona: str = ""
    task: str = ""


class ChildFinished(Fact, frozen=True):
    """A child's result, appended with the child's id as its key, so that it arrives once."""

    by = "anyone"
    moves = "turn"
    child: str
    outcome: Literal["completed", "cancelled", "failed", "interrupted"]
    parts: tuple[Part, ...] = ()


class RecordErased(Fact, frozen=True):
    """The bytes of one record were removed for good; its place and its hash stay."""

    by = "anyone"
    record: Seq
    hash: str = ""
    """The record's link in the chain, so that an erased place cannot be passed off as another."""
    reason: str = ""


class RecordImported(Fact, frozen=True):
    """A record of another system, kept as it was found."""

    by = "anyone"
    source: str
    """The system it comes from."""
    data: str
    """The record, verbatim."""
    place: str = ""
    """Where in the source it stood."""
    role: str = ""
    text: str = ""
    at: int = 0
    """When it says it happened; 0 if it does not."""


class Unknown(Struct, frozen=True, tag=True, tag_field="kind"):
    """A fact that this build does not know, or with fields it does not know, carried as it stands.

    Never appended. Its session can be read here and not written.
    """

    kind: str = field(name="of")
    data: bytes = b""


class Unreadable(Struct, frozen=True, tag=True, tag_field="kind"):
    """A row whose bytes are damaged, in its place, so that a loss is seen and counted. Never appended."""

    why: str


class Erased(Struct, frozen=True, tag=True, tag_field="kind"):
    """A row whose bytes were removed on purpose. Never appended; `RecordErased` says why."""


AnyFact = (
    SessionCreated | ForkedFrom | SessionRenamed | SessionEnded | SessionReopened | SessionArchived
    | SessionUnarchived | SessionTrashed | SessionRestored | SessionPinned | SessionTagged | SessionRepointed
    | SessionShared | ShareRevoked | SessionMovedAway | SettingsChanged | OwnerChanged
    | MessageSent | RunAsked | MessageWithdrawn | MessageEdited | CancelAsked
    | TurnStarted | PhaseChanged | TurnEnded
    | ModelCalled | ModelSpoke | ModelReplied | ModelLost
    | ToolStarted | ToolSpoke | ToolFinished | ProcessStarted | ProcessFound | ProcessEnded | FileSaved
    | ApprovalAsked | ApprovalAnswered | ApprovalExpired | QuestionAsked | QuestionAnswered | QuestionExpired
    | RulesLoaded | PermissionDecided
    | ContextCompacted | CompactionLost | ContextCleared | RecordExcluded | RecordIncluded | RenderingChanged
    | Rewound | RewindUndone
    | TaskSet | ModeRouted | CompletionChecked | LedgerChanged | PromptTold | TodoChanged | GoalSet
    | VerificationRun | BriefWritten | BriefAccepted | BriefRejected | PlanWritten | PlanAccepted | PlanRejected
    | ChildStarted | ChildFinished | RecordErased | RecordImported
)  # fmt: skip
"""Every fact that can be appended. A new one goes here, into `grammar.py`, and into a golden session."""


class Event(Struct, frozen=True, array_like=True):
    """A fact in its place. Its stored bytes are the JSON of just this."""

    seq: Seq
    ts: int
    """When the store took it. For people; no order rests on it."""
    epoch: int
    """The owner's, for a fact of the owner; 0 for one that anyone may append."""
    key: str | None
    fact: AnyFact | Unknown | Unreadable | Erased
