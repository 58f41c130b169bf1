"""`perdure doctor`: is everything there, and is it right?"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from perdure.cli import door
from perdure.config import Settings, masked_url
from perdure.journal import Journal
from perdure.journal.care import Finding, doctor
from perdure.journal.salvage import salvage

TO_SAVE = "to save what is intact into a new store: perdure doctor --salvage FILE"
RESTORE = "a PostgreSQL server is restored from its own backups"


@click.command()
@click.argument("session", required=False)
@click.option("--look-only", is_flag=True, help="Change nothing, not even what is derived.")
@click.option(
    "--salvage", "into", type=click.Path(path_type=Path), metavar="FILE",
    help="Save every intact event of a damaged SQLite store into FILE, a new store.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(session: str | None, look_only: bool, into: Path | None, as_json: bool) -> None:
    """Look for damage, mend what is derived, and say what is lost.

    Checks every record's checksum and the chain between them, the laws of each journal, and every derived row
    against a fresh fold. Derived rows are mended; damaged records are named and left as they are. Exits with 1 if
    something is damaged.
    """
    if into is not None:
        if session is not None:
            raise click.UsageError("--salvage saves all sessions; leave out SESSION")
        _salvage(into, as_json)
        return

    async def look(journal: Journal, settings: Settings) -> bool:
        found = damaged = seen = 0
        name = await journal.resolve(session) if session else None

        def looked(_: str) -> None:
            nonlocal seen
            seen += 1
            if seen % 1000 == 0:
                door.tell(f"{seen} sessions looked at")

        async for finding in doctor(journal, name, mend=not look_only, looked=looked):
            found += 1
            damaged += finding.kind == "damage"
            _say(finding, as_json)
        if not as_json:
            click.echo(
                f"{'1 session' if name else f'{seen} sessions'} looked at, {found} findings, {damaged} of damage"
            )
            if damaged:
                is_file = settings.database_url.startswith("sqlite:///")
                door.tell(f"perdure: {TO_SAVE if is_file else RESTORE}")
        return damaged > 0

    if door.with_journal(look, without=None if session else False):
        sys.exit(1)


def _say(finding: Finding, as_json: bool) -> None:
    click.echo(json.dumps(asdict(finding)) if as_json else door.plain(f"{finding.kind}: {finding}"))


def _salvage(into: Path, as_json: bool) -> None:
    url = door.enter().database_url
    if not url.startswith("sqlite:///"):
        raise click.UsageError(
            f"--salvage reads SQLite files, and this store is {masked_url(url)}; {RESTORE}"
        )
    damaged = Path(url.removeprefix("sqlite:///"))
    saved = asyncio.run(salvage(damaged, into.absolute(), door.tell))
    if as_json:
        click.echo(json.dumps(asdict(saved)))
    else:
        for sentence in saved.missing:
            click.echo(door.plain(f"missing: {sentence}"))
        for sentence in saved.notes:
            click.echo(door.plain(f"note: {sentence}"))
        if into.exists():
            click.echo(
                f"{into}: {saved.sessions} sessions, {saved.events} events, {saved.blobs} contents saved"
            )
    if not saved.sessions:
        made = "" if into.exists() else f"; {into} was not made"
        door.tell(f"perdure: {damaged}: holds no session that could be found{made}")
    if saved.missing or not saved.sessions:
        sys.exit(1)
