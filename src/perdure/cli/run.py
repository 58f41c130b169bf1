"""`perdure run`: one prompt, its answer on standard output as it becomes durable, and an exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perdure.cli import door
from perdure.cli.viewing import CANCELLED, FAILED, STOPPED, Viewer
from perdure.config import Settings
from perdure.config.settings import MODES

if TYPE_CHECKING:
    from perdure.journal import Journal
    from perdure.worker import Started

WITH_SHELL = ("allow", "danger-full-access")
"""Until there are permissions, the shell is offered only where everything is allowed."""


@click.command()
@click.argument("prompt", required=False)
@click.option("--continue", "latest", is_flag=True, help="Go on with the last session of this project.")
@click.option("--session", metavar="SESSION", help="Go on with this session: an id, a prefix or a title.")
@click.option("--model", metavar="NAME", help="Use this model, such as anthropic:claude-... or demo.")
@click.option(
    "--mode", type=click.Choice(MODES), help="What may be done without asking. The shell needs `allow`."
)
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
def command(
    prompt: str | None, latest: bool, session: str | None, model: str | None, mode: str | None, as_json: bool
) -> None:
    """Answer one prompt, and exit.

    PROMPT may come from standard input. Words are printed once they are durable.

    Exits with 0 if it was answered, 1 if the turn failed, 3 if there is no such session or several, 4 if the session has
    ended, 5 if a person has to be asked, 130 if it was cancelled (Ctrl-C), 143 if it was stopped.
    """
    if latest and session:
        raise click.UsageError("--continue and --session name two sessions; leave one out")
    text = sys.stdin.read() if prompt in (None, "-") and not sys.stdin.isatty() else prompt
    if not text or not text.strip():
        raise click.UsageError("there is nothing to answer; give a PROMPT, or pipe one in")
    sys.exit(asyncio.run(_run(door.enter(), text, latest, session, model, mode, as_json)))


async def _run(
    settings: Settings,
    text: str,
    latest: bool,
    named: str | None,
    model: str | None,
    mode: str | None,
    as_json: bool,
) -> int:
    from perdure import journal as journals
    from perdure.agent.carry import Agent
    from perdure.models.opening import choose_model, open_model
    from perdure.policy.retrying import Retrying
    from perdure.tools.shell import Shell
    from perdure.worker import Started

    journal = await journals.open(
        settings.database_url, kind="terminal", durability=settings.durability, announce=door.tell
    )
    mine: list[str] = []
    chosen = ""
    try:
        session = await _session(journal, settings, latest, named)
        head = (await journal.head(session)).head if session else None
        chosen = choose_model(model, head.model if head else "", settings, os.environ)
        effective = mode or (head.permission_mode if head else "") or settings.mode
        tools = [Shell()] if effective in WITH_SHELL else []
        retrying = Retrying(settings.retry_attempts, settings.retry_base, settings.retry_cap)
        agent = Agent(
            open_model(chosen, settings.providers, os.environ), settings.workspace, journal.clock,
            {tool.name: tool for tool in tools}, retrying=retrying, on_crash="abandon",
        )  # fmt: skip
    except BaseException:
        await journal.close()
        raise
    if chosen == "demo":
        door.tell(
            "perdure: no model is set, so this is the stand-in `demo`; set a key, for example ANTHROPIC_API_KEY"
        )
    async with Started(journal, lambda id: agent if id in mine else None, settings.shutdown_deadline) as desk:
        session = session or await desk.create(
            workspace=settings.workspace, model=model or "", mode=mode or "", source="terminal"
        )
        mine.append(session)
        return await _answer(desk, session, text, as_json)


async def _session(journal: Journal, settings: Settings, latest: bool, named: str | None) -> str:
    from perdure.journal import Wanted
    from perdure.runtime import project_key

    if named:
        return await journal.resolve(named)
    if not latest:
        return ""
    found = await journal.sessions(Wanted(("active",), project_key(Path(settings.workspace)), limit=1))
    if not found:
        door.tell("perdure: there is no session in this project to go on with; this is a new one")
    return found[0].id if found else ""


async def _answer(desk: Started, session: str, text: str, as_json: bool) -> int:
    after = (await desk.journal.head(session)).upto
    sent = await desk.send(session, text)
    viewer = Viewer(sent, as_json)
    _on_signals(desk, session, sent, viewer)
    async with aclosing(desk.journal.follow(session, after=after)) as events:
        async for event in events:
            viewer.show(event)
            if viewer.code is not None:
                break
    if not as_json:
        door.tell(f'perdure: go on with: perdure run --session {session} "..."')
    return viewer.code if viewer.code is not None else FAILED


def _on_signals(desk: Started, session: str, sent: int, viewer: Viewer) -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def stop(code: int) -> None:
        if viewer.stopped_by:
            os._exit(code)  # asked twice: what is stored is stored, and the next process sees to the rest
        viewer.stopped_by = code
        task = loop.create_task(
            _cancel(desk, session, sent) if code == CANCELLED else desk.worker.close(desk.deadline)
        )
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGINT, stop, CANCELLED)
    loop.add_signal_handler(signal.SIGTERM, stop, STOPPED)


async def _cancel(desk: Started, session: str, sent: int) -> None:
    from perdure.errors import Refused

    try:
        await desk.withdraw(session, sent)
    except Refused:
        await desk.cancel(session, "cancelled in the terminal")
