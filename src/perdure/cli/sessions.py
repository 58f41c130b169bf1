"""`perdure sessions`: what there is, and what is in it."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

import click
from msgspec import to_builtins

from perdure.cli import door
from perdure.codec import encode
from perdure.config import Settings
from perdure.events import Erased, Event, Unknown, Unreadable
from perdure.journal import Journal, Listed, Wanted
from perdure.journal.care import prune

STATES = ("active", "archived", "ended", "trashed", "moved")


@click.group()
def command() -> None:
    """List the sessions, and show what is in one."""


@command.command("list")
@click.option(
    "--state", type=click.Choice(STATES), multiple=True, help="Only these; may be given several times."
)
@click.option("--project", metavar="KEY", help="Only sessions of the project with this key.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many to show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_(state: tuple[str, ...], project: str | None, limit: int, as_json: bool) -> None:
    """Show the sessions, the last active one first.

    Without options this is all of them, whatever their state; a filter says how many it hides.
    """
    wanted = Wanted(state or None, project, limit=limit)

    async def found(journal: Journal, _: Settings) -> tuple[list[Listed], int, int]:
        return await journal.sessions(wanted), await journal.count(wanted), await journal.count()

    listed, fitting, all_of_them = door.with_journal(found)
    if as_json:
        click.echo(json.dumps([_object(one) for one in listed], indent=2))
        return
    for one in listed:
        click.echo(
            f"{one.id}  {_time(one.head.updated_at)}  {one.head.state:8}  {door.plain(one.head.title) or '-'}"
        )
    if fitting > len(listed):
        click.echo(f"{fitting - len(listed)} more; --limit {fitting} shows them")
    if all_of_them > fitting:
        click.echo(f"{all_of_them - fitting} hidden by the filter")
    if not all_of_them:
        click.echo("no sessions yet")


@command.command()
@click.argument("session")
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="How many events to show."
)
@click.option("--before", type=click.IntRange(1), metavar="SEQ", help="The events in front of this one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(session: str, limit: int, before: int | None, as_json: bool) -> None:
    """Show one session: where it stands, and its last events.

    SESSION is an id, the first six or more characters of one, or an exact title.
    """

    async def found(journal: Journal, _: Settings) -> tuple[Listed, list[Event], bool]:
        name = await journal.resolve(session)
        page = await journal.last(name, before=before, limit=limit)
        return await journal.head(name), page.events, page.more

    one, events, more = door.with_journal(found)
    lost = sum(isinstance(event.fact, Unreadable) for event in events)
    if as_json:
        click.echo(
            json.dumps({"session": _object(one), "events": [_event(e) for e in events], "upto": one.upto})
        )
    else:
        for name, value in _object(one).items():
            if value not in ("", None, (), [], 0, False):
                click.echo(f"{name:16} {door.plain(str(value))}")
        click.echo()
        if more:
            click.echo(f"... earlier events: --before {events[0].seq}")
        for event in events:
            click.echo(_line(event))
    if lost:
        door.tell(f"perdure: {lost} of these events cannot be read; perdure doctor {one.id} says why")
        sys.exit(1)


@command.command("prune")
@click.option("--older-than", type=click.FloatRange(0, min_open=True), metavar="HOURS",
              help="Instead of the setting max_session_age_hours.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do it, instead of saying what would be done.")
def prune_(older_than: float | None, yes: bool) -> None:
    """Move sessions to the trash that nobody has used for long.

    Nothing is deleted: what is in the trash can be restored. Pinned and running sessions stay. Without --yes this
    only shows what would be moved.
    """

    async def pruned(journal: Journal, settings: Settings) -> list[Listed]:
        hours = older_than if older_than is not None else settings.max_session_age_hours
        if hours is None:
            raise click.UsageError("no age is set: give --older-than HOURS, or set max_session_age_hours")
        return await prune(journal, hours, act=yes)

    old = door.with_journal(pruned)
    for one in old:
        click.echo(f"{one.id}  {_time(one.head.updated_at)}  {door.plain(one.head.title) or '-'}")
    done = (
        "moved to the trash; perdure sessions restore SESSION brings one back"
        if yes
        else "would be moved; --yes does it"
    )
    click.echo(f"{len(old)} sessions {done}")


@command.command()
@click.argument("session")
def restore(session: str) -> None:
    """Bring a session back from the trash."""
    from perdure.events import SessionRestored

    async def restored(journal: Journal, _: Settings) -> str:
        name = await journal.resolve(session)
        await journal.append(name, SessionRestored())
        return name

    click.echo(f"{door.with_journal(restored)} is back")


def _object(one: Listed) -> dict[str, Any]:
    fields = to_builtins(one.head)
    standing = fields.pop("standing", {})
    times = {name: _time(getattr(one.head, name)) for name in ("created_at", "updated_at", "last_message_at")}
    fields.pop("session", None)
    return {
        "id": one.id,
        "state": one.head.state,
        **fields,
        **times,
        "turn": standing.get("turn", 0),
        "upto": one.upto,
    }


def _event(event: Event) -> Any:
    if isinstance(event.fact, Unknown | Unreadable | Erased):
        return [event.seq, event.ts, event.epoch, event.key, {"kind": type(event.fact).__name__}]
    return json.loads(encode(event))


def _line(event: Event) -> str:
    fields = _event(event)[4]
    kind = fields.pop("kind")
    said = door.plain(json.dumps(fields, ensure_ascii=False))
    if isinstance(event.fact, Unreadable):
        said = f"cannot be read: {event.fact.why}"
    return f"{event.seq:6}  {_time(event.ts)}  {kind:18} {said if len(said) <= 160 else said[:159] + '…'}"


def _time(micros: int) -> str:
    if not micros:
        return "-"
    return datetime.fromtimestamp(micros / 1e6).astimezone().isoformat(sep=" ", timespec="seconds")
