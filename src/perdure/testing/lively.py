"""Random sessions that keep every law: for crash tests, fold laws and benches.

`lawful(seed, length)` gives the same session for the same seed, always. It tries facts at random and keeps what the
grammar allows, with a taste for what has not happened yet; a few seeds together hold every kind of fact there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from perdure import events as e
from perdure.grammar import Standing

NASTY = (
    "hello", "two words", " \t\n ", "שלום עולם", "مرحبا\u202eabc", "👨‍👩‍👧‍👦 family", "🇩🇪🇫🇷", "e\u0301", "각", "\0", "\u2028\u2029",
    "\ud83d", "\udc80\udcff", "\ufeff\uffff", "𐍈", "नमस्ते", "';--", "<b>&amp;", "\\u0000", '{"kind":"Text"}', "\x1b[31m", "",
)  # fmt: skip
"""Texts that have broken somebody's program."""

BEGAN = 1_700_000_000_000_000


class Scene:
    """What the makers of facts look at: what is open, what there is to name, and a source of chance."""

    def __init__(self, seed: int, session: str) -> None:
        self.moves_away = seed % 4 == 3
        """It ends elsewhere, so that little may follow its last facts."""
        self.chance = Random(seed)
        self.session = session
        self.standing = Standing()
        self.events: list[e.Event] = []
        self.pieces: dict[int, int] = {}
        self.left = 0

    @property
    def seq(self) -> int:
        return len(self.events) + 1

    @property
    def turn(self) -> int:
        return self.standing.turn

    @property
    def past(self) -> int:
        return self.chance.randrange(1, max(2, self.seq))

    def text(self) -> str:
        if self.chance.random() < 0.03:
            return self.chance.choice(NASTY) * 3000
        return " ".join(self.chance.choices(NASTY, k=self.chance.randrange(1, 4)))

    def parts(self) -> tuple[e.Part, ...]:
        if self.chance.random() < 0.1:
            return (e.Text(self.text()), e.Blob(hash="ab" * 32, size=12, name=self.text()))
        return (e.Text(self.text()),)

    def seal(self) -> str:
        return f"{self.chance.getrandbits(64):016x}"

    def open_tool(self) -> tuple[str, int] | None:
        """A call that has begun, by its name and its `ToolStarted`."""
        begun = [(o.call_id, o.tool) for o in self.standing.owed if o.tool]
        return self.chance.choice(begun) if begun else None

    def waiting_tool(self) -> str | None:
        waiting = [o.call_id for o in self.standing.owed if not o.tool]
        return self.chance.choice(waiting) if waiting else None

    def add(self, fact: e.Fact) -> bool:
        """Append it if it is lawful."""
        epoch = self.standing.epoch if fact.by == "owner" else 0
        key = f"key-{self.seq}" if fact.by == "anyone" and self.chance.random() < 0.15 else None
        # The machine's clock stands still now and then, and is set back now and then.
        ts = BEGAN + self.seq * 1_000_000 + self.chance.choice((0, 0, 0, -1_000_000, -5_000_000))
        event = e.Event(self.seq, ts, epoch, key, fact)  # type: ignore[arg-type]
        if self.standing.objection(event):
            return False
        self.standing = self.standing.after(event)
        self.events.append(event)
        self._count(fact)
        return True

    def _count(self, fact: e.Fact) -> None:
        match fact:
            case e.ModelSpoke(call=of) | e.ToolSpoke(tool=of):
                self.pieces[of] = self.pieces.get(of, 0) + 1


Maker = Callable[[Scene], e.Fact | None]


def lawful(seed: int, length: int = 100, session: str = "") -> list[e.Event]:
    """A session of `length` facts that breaks no law, and may stop anywhere."""
    scene = Scene(seed, session or f"lively{seed}")
    scene.add(
        e.SessionCreated(
            session=scene.session,
            source="library",
            workspace="/tmp/ä \udc80",
            project_key="p",
            title=scene.text()[:80],
            model="scripted",
            budget=e.Budget(tokens=10),
            tools=("read", "write"),
            version="0",
        )
    )
    while len(scene.events) < length:
        scene.left = length - len(scene.events)
        _go_on(scene)
    return scene.events


def _go_on(scene: Scene) -> None:
    had = {type(event.fact) for event in scene.events}
    weights = [
        weight * (5 if kind not in had else 1) * _urgency(scene, kind) for kind, (weight, _) in MAKERS.items()
    ]
    for kind in scene.chance.choices(list(MAKERS), weights, k=200):
        fact = MAKERS[kind][1](scene)
        if fact is not None and scene.add(fact):
            return
    scene.add(_owner(scene))  # lawful whatever has happened


def _urgency(scene: Scene, kind: type[e.Fact]) -> float:
    """Nothing much happens in a session that has ended or that nobody runs."""
    s = scene.standing
    if kind is e.OwnerChanged and not s.process:
        return 10
    if kind in (e.SessionReopened, e.SessionRestored) and (s.ended or s.trashed):
        return 30
    if kind is e.SessionMovedAway:
        return 1e6 if scene.moves_away and scene.left < 40 and s.at_rest and not s.moved else 0
    return 1


def _owner(scene: Scene) -> e.Fact:
    epoch = scene.standing.epoch + 1
    if scene.chance.random() < 0.2:
        return e.OwnerChanged(epoch=epoch)
    return e.OwnerChanged(
        epoch=epoch, process=scene.seal(), owner_kind="worker", name="w", host="h", pid=4, version="0"
    )


def _takes(scene: Scene, *roles: str) -> tuple[int, ...]:
    return tuple(p.seq for p in scene.standing.pending if p.role in roles)


def _answer_call(scene: Scene) -> int | None:
    return scene.standing.calls[-1].seq if scene.standing.calls else None


def _replied(scene: Scene) -> e.Fact | None:
    call = _answer_call(scene)
    if call is None:
        return None
    said: list[e.ReplyPart] = [e.Text(scene.text())]
    if scene.chance.random() < 0.3:
        said.insert(0, e.Thinking(scene.text(), signature=scene.seal()))
    if scene.chance.random() < 0.6:
        said += [
            e.ToolCall(f"c{call}-{i}", "run", scene.chance.choice(('{"x": 1}', "{", "")))
            for i in range(scene.chance.randrange(1, 4))
        ]
    usage = e.Usage(input=scene.past, output=7, cache_read=1, cache_write=2, reasoning=3)
    return e.ModelReplied(call, tuple(said), usage, "stop", scene.seal(), pieces=scene.pieces.get(call, 0))


def _lost(scene: Scene) -> e.Fact | None:
    call = _answer_call(scene)
    if call is None:
        return None
    reason = scene.chance.choice(("interrupted", "connection", "overloaded", "refused"))
    return e.ModelLost(
        call,
        reason,  # type: ignore[arg-type]
        parts=(e.Text(scene.text()),),
        error=scene.text(),
        retry_at=BEGAN + scene.seq * 1_000_000 if scene.chance.random() < 0.5 else None,
        pieces=scene.pieces.get(call, 0),
    )


def _called(scene: Scene) -> e.Fact:
    if scene.turn and scene.chance.random() < 0.8:
        return e.ModelCalled(scene.turn, takes=_takes(scene, "steer"), model="m", shown=(scene.seal(),))
    purpose = scene.chance.choice(("compaction", "title", "side"))
    return e.ModelCalled(scene.turn or None, purpose, model="m", attempt=2)  # type: ignore[arg-type]


def _tool_started(scene: Scene) -> e.Fact | None:
    call_id = scene.waiting_tool()
    if call_id is None:
        again = [o.call_id for o in scene.standing.owed if o.repeatable]
        call_id = scene.chance.choice(again) if again else ""
    if call_id == "" and scene.chance.random() < 0.8:
        return None
    return e.ToolStarted(scene.turn, call_id, "run", "{}", repeatable=scene.chance.random() < 0.4)


def _tool_spoke(scene: Scene) -> e.Fact | None:
    if (open_tool := scene.open_tool()) is None:
        return None
    tool = open_tool[1]
    stream = scene.chance.choice(("stdout", "stderr"))
    return e.ToolSpoke(tool, scene.pieces.get(tool, 0) + 1, scene.text(), stream)  # type: ignore[arg-type]


def _model_spoke(scene: Scene) -> e.Fact | None:
    call = _answer_call(scene)
    if call is None:
        return None
    channel = scene.chance.choice(("text", "thinking", "call"))
    return e.ModelSpoke(call, scene.pieces.get(call, 0) + 1, scene.text(), channel)  # type: ignore[arg-type]


def _tool_finished(scene: Scene) -> e.Fact | None:
    open_tool, waiting = scene.open_tool(), scene.waiting_tool()
    if open_tool is not None:
        call_id, tool = open_tool
        outcome = scene.chance.choice(("ok", "failed", "cancelled", "unknown"))
        pieces = scene.pieces.get(tool, 0)
        return e.ToolFinished(
            scene.turn,
            call_id,
            outcome,  # type: ignore[arg-type]
            scene.parts(),
            tool,
            exit_code=0,
            micros=5,
            pieces=pieces,
        )
    return e.ToolFinished(scene.turn, waiting, "denied") if waiting and scene.chance.random() < 0.3 else None


def _asked(scene: Scene) -> e.Fact | None:
    call_id = scene.waiting_tool()
    return None if call_id is None else e.ApprovalAsked(scene.turn, call_id, "run", scene.text(), "rule")


def _approval(scene: Scene, make: Callable[[int], e.Fact]) -> e.Fact | None:
    return make(scene.standing.approvals[0].seq) if scene.standing.approvals else None


def _question(scene: Scene) -> e.Fact:
    asked = e.Question(
        scene.text() or "?", choices=(e.Choice("a", scene.text()), e.Choice("b")), several=True
    )
    return e.QuestionAsked((asked,) * scene.chance.randrange(1, 3), turn=scene.turn or None)


def _answered(scene: Scene) -> e.Fact | None:
    if not scene.standing.questions:
        return None
    asked = scene.standing.questions[0]
    return e.QuestionAnswered(asked.seq, (e.Answer((0, 1), scene.text()),) * asked.parts, answered_by="me")


def _expired(scene: Scene) -> e.Fact | None:
    return e.QuestionExpired(scene.standing.questions[0].seq, "late") if scene.standing.questions else None


def _phase(scene: Scene) -> e.Fact:
    phase = scene.chance.choice(("prepare", "assistant", "tools", "critique", "completion", "finalize"))
    how = scene.chance.choice(("normal", "normal", "retry", "reroute", "recovery"))
    return e.PhaseChanged(scene.turn, phase, how, code="c", summary=scene.text())  # type: ignore[arg-type]


def _ended(scene: Scene) -> e.Fact:
    outcome = scene.chance.choice(("completed", "cancelled", "failed", "interrupted"))
    return e.TurnEnded(scene.turn, outcome, cause=scene.text(), code="x")  # type: ignore[arg-type]


def _of_pending(scene: Scene, make: Callable[[int], e.Fact]) -> e.Fact | None:
    return make(scene.standing.pending[-1].seq) if scene.standing.pending else None


def _of_tool(scene: Scene, make: Callable[[int], e.Fact]) -> e.Fact | None:
    open_tool = scene.open_tool()
    return None if open_tool is None else make(open_tool[1])


def _of_process(scene: Scene, make: Callable[[int], e.Fact]) -> e.Fact | None:
    return make(scene.standing.processes[0]) if scene.standing.processes else None


def _message(scene: Scene) -> e.Fact:
    role = scene.chance.choice(("prompt", "prompt", "prompt", "steer", "note"))
    attached = (e.Attachment("ü.txt", e.Blob(hash="cd" * 32, size=3)),) if scene.chance.random() < 0.2 else ()
    return e.MessageSent(scene.parts(), attached, "person", role, scene.chance.random() < 0.9)  # type: ignore[arg-type]


def _evidence(scene: Scene) -> tuple[e.Evidence, ...]:
    return (e.Evidence("test", "run", scene.text(), status="supports", rests_on=(scene.past,)),)


MAKERS: Mapping[type[e.Fact], tuple[float, Maker]] = {
    e.ForkedFrom: (0.2, lambda s: e.ForkedFrom(s.session, "parent", s.seq - 1, s.text()[:20])),
    e.SessionRenamed: (0.5, lambda s: e.SessionRenamed(s.text(), s.chance.choice(("person", "model")))),
    e.SessionEnded: (0.2, lambda s: e.SessionEnded(s.text())),
    e.SessionReopened: (1, lambda s: e.SessionReopened()),
    e.SessionArchived: (0.3, lambda s: e.SessionArchived()),
    e.SessionUnarchived: (0.3, lambda s: e.SessionUnarchived()),
    e.SessionTrashed: (0.2, lambda s: e.SessionTrashed("old")),
    e.SessionRestored: (1, lambda s: e.SessionRestored()),
    e.SessionPinned: (0.3, lambda s: e.SessionPinned(s.chance.random() < 0.5)),
    e.SessionTagged: (0.3, lambda s: e.SessionTagged((s.text(), "b"))),
    e.SessionRepointed: (0.3, lambda s: e.SessionRepointed("/new \udcff", s.text())),
    e.SessionShared: (0.3, lambda s: e.SessionShared(s.seal(), s.past)),
    e.ShareRevoked: (0.5, lambda s: e.ShareRevoked(s.standing.shares[0]) if s.standing.shares else None),
    e.SessionMovedAway: (0.01, lambda s: e.SessionMovedAway("elsewhere")),
    e.SettingsChanged: (0.5, lambda s: e.SettingsChanged(model="m2", tools=("read",), changed_by="me")),
    e.OwnerChanged: (0.5, _owner),
    e.MessageSent: (4, _message),
    e.RunAsked: (0.3, lambda s: e.RunAsked(s.chance.choice(("continue", "retry", "abandon")))),
    e.MessageWithdrawn: (0.4, lambda s: _of_pending(s, lambda of: e.MessageWithdrawn(of, "no"))),
    e.MessageEdited: (0.4, lambda s: _of_pending(s, lambda of: e.MessageEdited(of, s.parts()))),
    e.CancelAsked: (0.4, lambda s: e.CancelAsked(s.turn, s.text())),
    e.TurnStarted: (8, lambda s: e.TurnStarted(t) if (t := _takes(s, "prompt", "note")) else None),
    e.PhaseChanged: (1, _phase),
    e.TurnEnded: (5, _ended),
    e.ModelCalled: (8, _called),
    e.ModelSpoke: (6, _model_spoke),
    e.ModelReplied: (8, _replied),
    e.ModelLost: (1, _lost),
    e.ToolStarted: (8, _tool_started),
    e.ToolSpoke: (5, _tool_spoke),
    e.ToolFinished: (8, _tool_finished),
    e.ProcessStarted: (1, lambda s: _of_tool(s, lambda of: e.ProcessStarted(of, 77, 5, s.seal(), "sleep 1"))),
    e.ProcessFound: (0.7, lambda s: _of_process(s, lambda of: e.ProcessFound(of, True, "there"))),
    e.ProcessEnded: (0.7, lambda s: _of_process(s, lambda of: e.ProcessEnded(of, -9, "killed"))),
    e.FileSaved: (
        1,
        lambda s: _of_tool(s, lambda of: e.FileSaved(of, "/ü \udc80", e.Blob("ef" * 32, 9), 0o644)),
    ),
    e.ApprovalAsked: (3, _asked),
    e.ApprovalAnswered: (
        3,
        lambda s: _approval(s, lambda of: e.ApprovalAnswered(of, "once", answered_by="me")),
    ),
    e.ApprovalExpired: (1, lambda s: _approval(s, lambda of: e.ApprovalExpired(of, "late"))),
    e.QuestionAsked: (0.7, _question),
    e.QuestionAnswered: (2, _answered),
    e.QuestionExpired: (0.7, _expired),
    e.RulesLoaded: (0.4, lambda s: e.RulesLoaded("ask", True, 1, 2, 3, (e.RuleSource("/r", s.seal()),))),
    e.PermissionDecided: (1, lambda s: e.PermissionDecided(s.turn, "c", "allow", "rule", s.text(), "{}")),
    e.ContextCompacted: (
        0.6,
        lambda s: e.ContextCompacted(
            s.text(), s.past, s.past, s.standing.compactions + 1, 4, 1000, 100, "deterministic", call=s.past
        ),
    ),
    e.CompactionLost: (0.4, lambda s: e.CompactionLost(s.text())),
    e.ContextCleared: (
        0.4,
        lambda s: e.ContextCleared(s.standing.generation + 1, s.chance.choice(("clear", "model"))),
    ),
    e.RecordExcluded: (0.4, lambda s: e.RecordExcluded(s.past, "noise")),
    e.RecordIncluded: (0.4, lambda s: e.RecordIncluded(s.past)),
    e.RenderingChanged: (0.3, lambda s: e.RenderingChanged(2, "newer")),
    e.Rewound: (0.6, lambda s: e.Rewound(s.past, s.chance.choice(("conversation", "files", "both")), "undo")),
    e.RewindUndone: (0.6, lambda s: e.RewindUndone(s.standing.rewinds[-1]) if s.standing.rewinds else None),
    e.TaskSet: (0.4, lambda s: e.TaskSet(s.text(), ("a",), ("pytest",), 2)),
    e.ModeRouted: (0.4, lambda s: e.ModeRouted("plan", "requested", score=0.1 + 0.2, unresolved=(s.text(),))),
    e.CompletionChecked: (
        1,
        lambda s: e.CompletionChecked(s.turn, "definition_of_done", "accept", "ok", evidence=_evidence(s)),
    ),
    e.LedgerChanged: (0.4, lambda s: e.LedgerChanged("i", "assumptions", s.text(), evidence=_evidence(s))),
    e.PromptTold: (
        0.4,
        lambda s: e.PromptTold(e.Blob("12" * 32, 5), "text", (e.PromptSection("intro", s.seal()),)),
    ),
    e.TodoChanged: (0.4, lambda s: e.TodoChanged((e.TodoItem(s.text()), e.TodoItem("b", "completed")))),
    e.GoalSet: (0.4, lambda s: e.GoalSet(s.text(), "paused", e.Budget(micros=5, turns=2, seconds=9))),
    e.VerificationRun: (
        1,
        lambda s: e.VerificationRun(s.turn, "make", None, 2, 1, e.Blob("34" * 32, 5), s.past),
    ),
    e.BriefWritten: (0.5, lambda s: e.BriefWritten(s.text(), ("s",), ("n",), ("b",), ("a",), ("c",))),
    e.BriefAccepted: (0.7, lambda s: e.BriefAccepted(s.standing.brief)),
    e.BriefRejected: (0.7, lambda s: e.BriefRejected(s.standing.brief, s.text())),
    e.PlanWritten: (
        0.5,
        lambda s: e.PlanWritten((s.text(),), ("c",), (e.RuleSource("/f", s.seal()),), s.past),
    ),
    e.PlanAccepted: (0.7, lambda s: e.PlanAccepted(s.standing.plan)),
    e.PlanRejected: (0.7, lambda s: e.PlanRejected(s.standing.plan, s.text())),
    e.ChildStarted: (0.5, lambda s: e.ChildStarted(s.seal(), s.turn or None, "c", "persona", s.text())),
    e.ChildFinished: (
        1,
        lambda s: (
            e.ChildFinished(s.standing.children[0], "completed", s.parts()) if s.standing.children else None
        ),
    ),
    e.RecordErased: (0.2, lambda s: e.RecordErased(s.past, s.seal(), "secret")),
    e.RecordImported: (0.4, lambda s: e.RecordImported("other", s.text(), "line 1", "user", s.text(), 5)),
}
"""How each kind is made, and how often it is tried. `SessionCreated` begins every session and stands in none later."""
