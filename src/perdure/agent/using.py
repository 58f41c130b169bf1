"""Using a tool: its beginning on disk before it begins, its output as it comes, and the one end of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from itertools import count, groupby

from perdure import events as e
from perdure.agent.carry import Agent, Facts, Here, seq_of
from perdure.agent.decide import RunTool
from perdure.agent.pieces import gathered
from perdure.errors import SessionError, StoreError
from perdure.tools import Done, Output, Place, Tool
from perdure.tools.leftover import end


async def run_tool(agent: Agent, here: Here, move: RunTool, again: e.Seq = 0) -> Facts:
    """Run what the model wished for. `again` is the `ToolStarted` of an earlier process that is gone."""
    wish = move.wish
    tool = agent.tools.get(wish.name)
    arguments = _arguments(wish.arguments)
    if tool is None or arguments is None:
        why = (
            f"There is no tool called {wish.name!r}." if tool is None else "The arguments are no JSON object."
        )
        yield (e.ToolFinished(here.turn, wish.call_id, "failed", (e.Text(why),), again or None),)
        return
    if again:
        await asyncio.to_thread(end, _name(here, again))
    news = yield (e.ToolStarted(here.turn, wish.call_id, wish.name, wish.arguments, tool.repeatable),)
    begun = seq_of(news, e.ToolStarted)
    if here.stop.asked.is_set():
        yield (e.ToolFinished(here.turn, wish.call_id, "cancelled", (), begun),)
        return
    here.may_act()
    async with aclosing(_running(agent, here, wish, tool, arguments, begun)) as running:
        async for facts in running:
            yield facts


async def _running(
    agent: Agent, here: Here, wish: e.ToolCall, tool: Tool, arguments: Mapping[str, object], begun: e.Seq
) -> Facts:
    since = agent.clock.steady()
    printed: list[str] = []
    done: Done | None = None
    why, number = "", count(1)
    try:
        place = Place(_name(here, begun), agent.workspace)
        async with aclosing(gathered(tool.run(arguments, place), here.stop.asked, agent.pause)) as batches:
            async for batch in batches:
                spoken = [one for one in batch if isinstance(one, Output)]
                printed += [one.text for one in spoken]
                facts = []
                for stream, run in groupby(spoken, lambda one: one.stream):
                    facts.append(e.ToolSpoke(begun, next(number), "".join(one.text for one in run), stream))
                if facts:
                    yield tuple(facts)
                done = next((one for one in batch if isinstance(one, Done)), done)
    except (SessionError, StoreError):
        raise  # the journal's, not the tool's
    except Exception as broken:  # the model is told, and may do better
        why = f"{type(broken).__name__}: {broken}"
    outcome: e.ToolOutcome = "ok" if done and done.ok else "failed"
    if done is None and not why:
        outcome, why = (
            ("cancelled", "") if here.stop.asked.is_set() else ("failed", "It ended without a word.")
        )
    parts = done.parts if done and done.parts is not None else _told("".join(printed), why)
    yield (
        e.ToolFinished(
            here.turn, wish.call_id, outcome, parts, begun, done.exit_code if done else None,
            int((agent.clock.steady() - since) * 1e6), next(number) - 1,
        ),
    )  # fmt: skip


def _told(printed: str, why: str) -> tuple[e.Part, ...]:
    return tuple(e.Text(text) for text in (printed, why) if text)


def _name(here: Here, begun: e.Seq) -> str:
    return f"{here.session}:{begun}"


def _arguments(text: str) -> Mapping[str, object] | None:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
