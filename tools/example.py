"""One session in which every kind of fact happens once, stored for real and shown as it was stored.

It runs on a `memory:` journal whose clock stands still, and every law of the grammar holds in it, because a journal
that breaks one cannot be written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from perdure import events as e
from perdure import journal
from perdure.codec import KINDS, encode
from perdure.journal import Journal, blob_of
from perdure.journal.store import Append
from perdure.testing.clock import ManualClock

CREATED = 1_795_046_400_000_000
FORK = "n4sk0e8w2y6c1r9t7q5b"


class Session:
    """What an owner, and anyone, says in one session."""

    def __init__(self, store: Journal, id: str) -> None:
        self.store, self.id = store, id

    async def anyone(self, fact: e.AnyFact, key: str | None = None) -> int:
        return (await self.store.append(self.id, fact, key=key)).last

    async def owner(self, fact: e.AnyFact) -> int:
        return (await self.store.submit(Append(self.id, (fact,), epoch=1))).last


OUTPUT = b"2 passed\n" * 9
LISTING = blob_of(OUTPUT, name="output.txt")


async def _born(s: Session) -> None:
    await s.anyone(
        e.OwnerChanged(epoch=1, process="7f3a5c1e9b2d4068", owner_kind="terminal", host="lark", pid=4711)
    )
    rules = e.RulesLoaded("workspace-write", True, allow=4, sources=(e.RuleSource("rules.toml", "ab" * 32),))
    await s.owner(rules)
    await s.owner(e.PromptTold(prompt=LISTING, format="text", sections=(e.PromptSection("role", "cd" * 32),)))


async def _a_turn(s: Session) -> None:
    """Messages, a lost call, an answer, a tool, its process, a question, and the end."""
    asked = await s.anyone(e.MessageSent((e.Text("Why does the build fail?"),)), key="send-1")
    note = await s.anyone(e.MessageSent((e.Text("It is urgent."),), role="note"))
    await s.anyone(e.MessageEdited(note, (e.Text("It is not urgent."),)))
    await s.anyone(e.MessageWithdrawn(note, reason="a mistake"))
    turn = await s.owner(e.TurnStarted(takes=(asked,)))
    await s.owner(e.TaskSet("find out why the build fails", criteria=("a cause",), checks=("make",)))
    await s.owner(e.PhaseChanged(turn, "prepare"))
    await s.anyone(e.ModeRouted("execute", "initial_route", ambiguity=0.1, complexity=0.3, score=0.9))
    await s.owner(e.PhaseChanged(turn, "assistant"))
    lost = await s.owner(e.ModelCalled(turn=turn, model="m-1", provider="example"))
    retry = CREATED + 500_000
    await s.owner(e.ModelLost(lost, "overloaded", status=503, error="try again later", retry_at=retry))
    call = await s.owner(e.ModelCalled(turn=turn, model="m-1", provider="example", attempt=2))
    await s.owner(e.ModelSpoke(call, 1, "I will ru"))
    await s.owner(e.ModelSpoke(call, 2, "n it."))
    wish = e.ToolCall("call_1", "run", '{"command": "make"}')
    parts = (e.Text("I will run it."), wish)
    usage = e.Usage(1200, 40, cache_read=1000)
    await s.owner(e.ModelReplied(call, parts, usage, finish="tool_calls", response_id="r-1", pieces=2))
    await s.owner(e.PhaseChanged(turn, "tools"))
    await _a_tool(s, turn, wish)
    question = e.Question("Which compiler?", (e.Choice("gcc"), e.Choice("clang")))
    first = await s.owner(e.QuestionAsked((question,), turn=turn))
    await s.anyone(e.QuestionAnswered(first, (e.Answer((1,)),), answered_by="ada"))
    second = await s.owner(e.QuestionAsked((question,), turn=turn))
    await s.owner(e.QuestionExpired(second, cause="the turn was cancelled"))
    await s.anyone(e.CancelAsked(turn, reason="never mind"))
    evidence = e.Evidence("command", "make", "it exits with 2", status="supports", rests_on=(call,))
    checked = e.CompletionChecked(turn, "continuation_check", "accept", "cancelled", evidence=(evidence,))
    await s.owner(checked)
    await s.owner(e.TurnEnded(turn, "cancelled", cause="asked for by ada"))


async def _a_tool(s: Session, turn: int, wish: e.ToolCall) -> None:
    await s.owner(e.PermissionDecided(turn, wish.call_id, "ask", rule="run: ask"))
    waits = await s.owner(e.ApprovalAsked(turn, wish.call_id, "run", "make"))
    await s.owner(e.ApprovalExpired(waits, cause="asked again in another form"))
    waits = await s.owner(e.ApprovalAsked(turn, wish.call_id, "run", "make, in the workspace"))
    await s.anyone(e.ApprovalAnswered(waits, "once", answered_by="ada"), key="answer-1")
    tool = await s.owner(e.ToolStarted(turn, wish.call_id, wish.name, wish.arguments))
    await s.owner(e.FileSaved(tool, "Makefile", before=LISTING, file_mode=0o644))
    process = await s.owner(e.ProcessStarted(tool, 4800, CREATED, "b0071d", "make"))
    await s.owner(e.ToolSpoke(tool, 1, "cc -c main.c\n"))
    await s.owner(e.ProcessFound(process, alive=False))
    await s.owner(e.ProcessEnded(process, exit_code=2))
    said = (e.Text("cc -c main.c\nmain.c:7: error\n"),)
    await s.owner(
        e.ToolFinished(turn, wish.call_id, "failed", said, tool, exit_code=2, micros=81_000, pieces=1)
    )


async def _the_work(s: Session) -> None:
    """A second turn, with what a plan, a check and a sub-agent leave behind."""
    again = await s.anyone(e.MessageSent((e.Text("Mend it."),), run=False))
    await s.anyone(e.RunAsked())
    turn = await s.owner(e.TurnStarted(takes=(again,)))
    brief = await s.anyone(e.BriefWritten("the build passes", criteria=("make exits with 0",)))
    await s.anyone(e.BriefAccepted(brief))
    brief = await s.anyone(e.BriefWritten("the build passes, with warnings"))
    await s.anyone(e.BriefRejected(brief, reason="without warnings"))
    plan = await s.anyone(e.PlanWritten(("read main.c", "mend line 7"), checks=("make",)))
    await s.anyone(e.PlanRejected(plan, reason="test it too"))
    plan = await s.anyone(e.PlanWritten(("read main.c", "mend line 7", "make test")))
    await s.anyone(e.PlanAccepted(plan))
    await s.anyone(e.TodoChanged((e.TodoItem("read main.c", "completed"), e.TodoItem("mend line 7"))))
    await s.anyone(e.LedgerChanged("a1", "assumptions", "the compiler is clang"))
    await s.anyone(e.GoalSet("no warnings by Friday", budget=e.Budget(turns=20)))
    await s.owner(e.ChildStarted("p0c5u3hz8v1m6x4d2k9j", turn=turn, task="read main.c"))
    done = (e.Text("line 7 lacks a semicolon"),)
    await s.anyone(e.ChildFinished("p0c5u3hz8v1m6x4d2k9j", "completed", done), key="p0c5u3hz8v1m6x4d2k9j")
    await s.owner(e.VerificationRun(turn, "make test", passed=True, exit_code=0, output=LISTING))
    await s.owner(e.TurnEnded(turn, "completed"))


async def _its_context(s: Session) -> None:
    await s.owner(e.CompactionLost("the model was overloaded"))
    summary = "Ada asked why the build fails."
    await s.owner(e.ContextCompacted(summary, 40, 41, 1, 12, 90_000, 2_000, "model"))
    await s.anyone(e.RecordExcluded(5, why="noise"))
    await s.anyone(e.RecordIncluded(5))
    await s.owner(e.RenderingChanged(2, reason="tools are described in a shorter form"))
    rewind = await s.anyone(e.Rewound(to=41))
    await s.anyone(e.RewindUndone(rewind))
    await s.anyone(e.ContextCleared(generation=1))
    await s.anyone(e.SettingsChanged(model="m-2", changed_by="ada"))
    await s.anyone(e.RecordImported("loader", '{"role": "user"}', place="messages[0]", role="user"))
    await s.anyone(e.RecordErased(5, hash="ef" * 32, reason="a password"))


async def _its_life(s: Session) -> None:
    await s.anyone(e.SessionRenamed("The build"))
    await s.anyone(e.SessionPinned())
    await s.anyone(e.SessionTagged(("build",)))
    await s.anyone(e.SessionRepointed("/home/ada/new", "5f1d0c7a9e3b2864"))
    await s.anyone(e.SessionShared("share-1", upto=40))
    await s.anyone(e.ShareRevoked("share-1"))
    await s.anyone(e.SessionArchived())
    await s.anyone(e.SessionUnarchived())
    await s.anyone(e.SessionEnded(reason="done"))
    await s.anyone(e.SessionReopened())
    await s.anyone(e.SessionTrashed())
    await s.anyone(e.SessionRestored())
    await s.anyone(e.OwnerChanged(epoch=2))
    await s.anyone(e.SessionMovedAway(to="postgresql://example/perdure"))


PARTS = {
    "It begins": _born,
    "A turn": _a_turn,
    "Another one": _the_work,
    "What the model is shown": _its_context,
    "The session itself": _its_life,
}


async def _told() -> list[tuple[str, list[e.Event]]]:
    told: list[tuple[str, list[e.Event]]] = []
    async with await journal.open("memory:", clock=ManualClock(CREATED)) as store:
        born = e.SessionCreated(session="k7v2m9x4q1d8r5t3w6z0", source="terminal", workspace="/home/ada/old")
        s = Session(store, await store.create(born))
        await store.append(s.id, e.MessageSent((LISTING,), run=False), blobs=[OUTPUT])
        upto = 0
        for name, part in PARTS.items():
            await part(s)
            page = await store.read(s.id, after=upto, limit=1000)
            told.append((name, page.events))
            upto = page.upto
            if part is _the_work:
                told_fork = [await _fork(store, s.id)]
    told.append(("A fork of it, after the second turn", told_fork))
    return told


async def _fork(store: Journal, id: str) -> e.Event:
    head = await store.head(id)
    fork = await store.fork(id)
    return (await store.read(fork, after=head.upto)).events[0]


def kinds() -> str:
    """The example as it stands in the page: what is stored, line for line."""
    told = asyncio.run(_told())
    missing = KINDS.keys() - {type(event.fact).__name__ for _, events in told for event in events}
    if missing:
        raise SystemExit(f"tools/example.py shows no {', '.join(sorted(missing))}")
    return "\n\n".join(
        f"**{name}.**\n\n```json\n{chr(10).join(_lines(events))}\n```" for name, events in told
    )


def _lines(events: list[e.Event]) -> Iterator[str]:
    for event in events:
        line = encode(event).decode()
        if isinstance(event.fact, e.ForkedFrom):
            line = line.replace(event.fact.session, FORK)
        yield line
