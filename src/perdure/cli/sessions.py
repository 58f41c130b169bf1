"""`perdure sessions`: what there is, and what is in it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from perdure.cli import door
from perdure.codec import encode, in_full
from perdure.config import Settings
from perdure.events import Erased, Event, Unknown, Unreadable
from perdure.journal import Journal, Listed, Page, Wanted
from perdure.journal.care import Broken, broken, prune
from perdure.views.head import STATES

log = logging.getLogger("perdure.cli")

TIMES = ("created_at", "updated_at", "last_message_at", "turn_since", "turn_due", "retry_at")
MOST = 1_000_000


@click.group()
def command() -> None:
    """List the sessions, and show what is in one."""


@command.command("list")
@click.option(
    "--state", type=click.Choice(STATES), multiple=True, help="Only these; may be given several times."
)
@click.option("--project", metavar="KEY", help="Only sessions of the project with this key.")
@click.option(
    "--limit", type=click.IntRange(1, MOST), default=50, show_default=True, help="How many to show."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_(state: tuple[str, ...], project: str | None, limit: int, as_json: bool) -> None:
    """Show the sessions, the last active one first.

    Without options this is all of them, whatever their state; a filter says how many it hides.
    """
    wanted = Wanted(state or None, project, limit=limit)

    async def found(journal: Journal, _: Settings) -> tuple[list[Listed], int, int]:
        return await journal.sessions(wanted), await journal.count(wanted), await journal.count()

    none: list[Listed] = []
    listed, fitting, all_of_them = door.with_journal(found, without=(none, 0, 0))
    if not all_of_them:
        door.tell_of_other_store()
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
    "--limit", type=click.IntRange(1, MOST), default=50, show_default=True, help="How many events to show."
)
@click.option("--before", type=click.IntRange(1, 1 << 62), metavar="SEQ", help="The events before this one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(session: str, limit: int, before: int | None, as_json: bool) -> None:
    """Show one session: where it stands, and its last events.

    SESSION is an id, the first six or more characters of one, or an exact title. However few events are shown, the
    checksums and the chain of all of them are looked over: if any cannot be read, this says how many and exits with 1.
    """

    async def found(journal: Journal, _: Settings) -> tuple[Listed, Page, list[Broken]]:
        name = await journal.resolve(session)
        page = await journal.last(name, before=before, limit=limit)
        return await journal.head(name), page, await broken(journal, name)

    one, page, damage = door.with_journal(found)
    events, lost = page.events, sum(place.lost for place in damage)
    if as_json:
        shown = {"session": _object(one), "events": [_event(e) for e in events], "upto": one.upto}
        click.echo(json.dumps({**shown, "unreadable": lost}))
    else:
        for name, said in _said(one):
            click.echo(f"{name:16} {door.plain(said)}")
        click.echo()
        if page.more:
            click.echo(f"... earlier events: --before {events[0].seq}")
        for event in events:
            click.echo(_line(event))
    if damage:
        what = f"{lost} of this session's events" if lost else "parts of this session"
        door.tell(f"perdure: {what} cannot be read, or were changed; perdure doctor {one.id} says which")
        sys.exit(1)


class _Hours(click.FloatRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        hours: float = super().convert(value, param, ctx)
        if hours != hours:  # NaN is within no bounds, and outside of none
            self.fail(f"{value} is no number of hours.", param, ctx)
        return hours


@command.command("prune")
@click.option("--older-than", type=_Hours(0, MOST, min_open=True), metavar="HOURS",
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

    none: list[Listed] = []
    old = door.with_journal(pruned, without=none)
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
        log.info("restored", extra={"session": name})
        return name

    click.echo(f"{door.with_journal(restored)} is back")


def _object(one: Listed) -> dict[str, Any]:
    """What is known of a session without reading its events: the same names for every session."""
    known = in_full(one.head)
    del known["session"]
    times = {name: _utc(known[name]) for name in TIMES}
    return {"id": one.id, "state": one.head.state, **known, **times, "upto": one.upto}


def _said(one: Listed) -> Iterator[tuple[str, str]]:
    """The same for people, without what has nothing to say."""
    for name, value in _object(one).items():
        match value:
            case dict() if name == "standing":
                if value["turn"]:
                    yield "turn", str(value["turn"])
            case dict():
                if said := ", ".join(f"{part} {number}" for part, number in value.items() if number):
                    yield name, said
            case list():
                if value:
                    yield name, ", ".join(value)
            case _ if name in TIMES:
                if value:
                    yield name, _time(getattr(one.head, name))
            case _:
                if value:
                    yield name, str(value)


def _event(event: Event) -> Any:
    match event.fact:
        case Unknown(data=data):  # as the newer build wrote it
            fact = json.loads(data)
        case Unreadable(why=why):
            fact = {"kind": "Unreadable", "why": why}
        case Erased():
            fact = {"kind": "Erased"}
        case _:
            return json.loads(encode(event))
    return [event.seq, event.ts, event.epoch, event.key, fact]


def _line(event: Event) -> str:
    fields = _event(event)[4]
    kind = fields.pop("kind")
    said = door.plain(json.dumps(fields, ensure_ascii=False))
    if isinstance(event.fact, Unreadable):
        said = f"cannot be read: {event.fact.why}"
    return f"{event.seq:6}  {_time(event.ts):25}  {kind:18} {said if len(said) <= 160 else said[:159] + '…'}"


def _time(micros: int) -> str:
    """For people: their own time zone, to the second."""
    at = _moment(micros)
    try:
        return at.astimezone().isoformat(sep=" ", timespec="seconds") if at else "-"
    except (OverflowError, ValueError):
        return "-"


def _utc(micros: int) -> str | None:
    """For programs."""
    at = _moment(micros)
    return at.isoformat(timespec="microseconds") if at else None


def _moment(micros: int) -> datetime | None:
    """None for no time, and for one that no calendar has: what was imported may hold any number."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros) if micros else None
    except OverflowError:
        return None
