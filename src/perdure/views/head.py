"""What the list shows of a session, and what `append` needs to know of it.

The head is folded in the transaction of every append, so it is never behind, and it does not grow with the
history, so neither appending nor listing ever reads that. What is open stands in it and is written with every append:
thousands of messages that wait untaken make each further one slower.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from perdure import events as e
from perdure.grammar import Standing
from perdure.views.title import shortened, storable, title_from

VERSION = 2
"""Raised when the same events would give another head. Heads of other versions are thrown away and refolded."""


STATES = ("active", "archived", "ended", "trashed", "moved")
"""What `Head.state` may say."""


class Owner(Struct, frozen=True, omit_defaults=True):
    """The process that runs the session, as it introduced itself."""

    process: str
    kind: str
    name: str = ""
    host: str = ""
    pid: int = 0
    since: int = 0


class Totals(Struct, frozen=True, omit_defaults=True):
    """What the session's own calls cost. A fork starts at nothing: its past was paid for by its parent."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    turns: int = 0
    calls: int = 0
    tools: int = 0


class Head(Struct, frozen=True, omit_defaults=True):
    """One session. `standing` is what is open in it; the rest is what people ask first.

    It grows with what is open (messages that wait, calls, questions) and not with what has happened.
    """

    session: str = ""
    standing: Standing = Standing()
    source: str = "library"
    title: str = ""
    named_by: str = ""
    """`person` or `model`; empty while the title is the first message's."""
    created_at: int = 0
    updated_at: int = 0
    last_message_at: int = 0
    start_workspace: str = ""
    workspace: str = ""
    project_key: str = ""
    """Fit for a text column: lists are filtered by it."""
    parent: str = ""
    depth: int = 0
    model: str = ""
    provider: str = ""
    persona: str = ""
    permission_mode: str = ""
    mode: str = "execute"
    tags: tuple[str, ...] = ()
    pinned: bool = False
    archived: bool = False
    messages: int = 0
    """What the person and the agent said: messages sent and answers given."""
    facts: int = 0
    totals: Totals = Totals()
    owner: Owner | None = None
    turn_since: int = 0
    turn_due: int = 0
    """Since when somebody has waited for the running turn: it keeps the place its message had in the queue."""
    retry_at: int = 0
    read_only: bool = False
    """It holds a fact that this build does not know."""

    @property
    def state(self) -> str:
        """The word a list filters by; the strongest one that is true."""
        if self.standing.moved:
            return "moved"
        if self.standing.trashed:
            return "trashed"
        if self.standing.ended:
            return "ended"
        return "archived" if self.archived else "active"

    @property
    def runnable_at(self) -> int | None:
        """When whoever runs turns should look at this session again; None while it waits for someone, or rests."""
        s = self.standing
        if s.ended or s.trashed or s.moved:
            return None
        if s.turn:
            if s.cancel or s.verdict == "abandon":
                return self.turn_due
            if s.waits_for_person or (s.children and not s.calls):
                return None
            return self.retry_at or self.turn_due
        return min((p.ts for p in s.pending if p.wants_a_turn), default=None)

    def after(self, event: e.Event) -> Head:
        """The head once this has happened."""
        fact = event.fact
        if isinstance(fact, e.Unreadable | e.Erased):
            return self
        if isinstance(fact, e.Unknown):
            return replace(self, read_only=True, standing=replace(self.standing, seq=event.seq))
        if fact.piece:
            return self
        told = _after(self, event, fact)
        at = max(event.ts, self.updated_at)
        return replace(
            told,
            standing=self.standing.after(event),
            facts=self.facts + 1,
            updated_at=at if fact.moves else told.updated_at,
            last_message_at=at if fact.moves == "message" else told.last_message_at,
        )


def _after(h: Head, event: e.Event, fact: e.Fact) -> Head:
    match fact:
        case e.MessageSent():
            said = fact.role != "note"
            title = h.title or (title_from(fact) if said and not h.messages else "")
            return replace(h, title=title, messages=h.messages + said)
        case e.TurnStarted():
            return replace(
                h, turn_since=event.ts, turn_due=h.runnable_at or event.ts, retry_at=0,
                totals=replace(h.totals, turns=h.totals.turns + 1),
            )  # fmt: skip
        case e.ModelCalled():
            return replace(h, retry_at=0, totals=replace(h.totals, calls=h.totals.calls + 1))
        case e.ModelReplied(call=call, usage=usage):
            answers = any(c.seq == call and c.purpose == "answer" for c in h.standing.calls)
            return replace(h, messages=h.messages + answers, totals=_plus(h.totals, usage))
        case e.ToolStarted():
            return replace(h, totals=replace(h.totals, tools=h.totals.tools + 1))
        case e.TurnEnded():
            return replace(h, turn_since=0, turn_due=0, retry_at=0)
        case e.SessionCreated():
            born = fact.created_at or event.ts
            return replace(
                h, session=fact.session, source=fact.source, title=shortened(fact.title),
                named_by="person" if fact.title else "", created_at=born, updated_at=born,
                start_workspace=fact.workspace, workspace=fact.workspace, project_key=storable(fact.project_key),
                parent=fact.parent, depth=fact.depth, model=fact.model, persona=fact.persona,
                permission_mode=fact.permission_mode, mode=fact.mode or "execute",
            )  # fmt: skip
        case e.ForkedFrom(session=session, parent=parent, title=title):
            return replace(
                h, session=session, parent=parent, created_at=event.ts,
                updated_at=max(event.ts, h.updated_at), owner=None,
                title=shortened(title) or h.title, totals=Totals(), pinned=False, archived=False,
                turn_since=0, turn_due=0, retry_at=0,
            )  # fmt: skip
        case e.SessionRenamed(title=title, given_by=given_by):
            if given_by == "model" and h.named_by == "person":
                return h
            return replace(h, title=shortened(title), named_by=given_by)
        case e.SessionArchived():
            return replace(h, archived=True)
        case e.SessionUnarchived():
            return replace(h, archived=False)
        case e.SessionPinned(pinned=pinned):
            return replace(h, pinned=pinned)
        case e.SessionTagged(tags=tags):
            return replace(h, tags=tags)
        case e.SessionRepointed(workspace=workspace, project_key=key):
            return replace(h, workspace=workspace, project_key=storable(key))
        case e.SettingsChanged():
            return _settings(h, fact)
        case e.OwnerChanged(process=process):
            owner = Owner(process, fact.owner_kind, fact.name, fact.host, fact.pid, event.ts)
            return replace(h, owner=owner if process else None)
        case e.ModelLost(usage=usage, retry_at=retry_at):
            return replace(h, retry_at=retry_at or 0, totals=_plus(h.totals, usage))
        case e.RulesLoaded(permission_mode=mode):
            return replace(h, permission_mode=mode)
        case e.ModeRouted(mode=mode):
            return replace(h, mode=mode)
        case e.ContextCleared(why="clear"):
            return replace(h, mode="execute")
        case _:
            return h


def _settings(h: Head, change: e.SettingsChanged) -> Head:
    named = ("model", "provider", "persona", "permission_mode", "workspace", "project_key")
    changed = {name: value for name in named if (value := getattr(change, name)) is not None}
    if change.project_key is not None:
        changed["project_key"] = storable(change.project_key)
    return replace(h, **changed)


def _plus(t: Totals, u: e.Usage) -> Totals:
    return replace(
        t, input=t.input + u.input, output=t.output + u.output, cache_read=t.cache_read + u.cache_read,
        cache_write=t.cache_write + u.cache_write, reasoning=t.reasoning + u.reasoning,
    )  # fmt: skip
