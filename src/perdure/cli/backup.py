"""`perdure backup`: a copy that is proved to be one."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.cli import door
from perdure.config import Settings, masked_url
from perdure.journal import Journal
from perdure.journal.care import backup


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def command(file: Path) -> None:
    """Write a copy of the whole store into a new file, and prove it.

    Sessions may go on meanwhile: the copy is of one moment. It is read again from end to end before this command
    says that it is good. To go back to it, name it: perdure --db sqlite:///FILE
    """

    target = file.absolute()

    async def copied(journal: Journal, _: Settings) -> str:
        door.tell(f"copying {masked_url(journal.store.url)}")
        count = await backup(journal, target)
        return f"{file}: {count} sessions, verified"

    click.echo(door.plain(door.with_journal(copied)))
