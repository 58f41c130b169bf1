"""The terminal's door: reads the command line, finds the settings, and speaks to a person.

A command is a module beside this one with a `command` in it, and a line in `COMMANDS`. It is imported only when it is
asked for, because most commands need rooms that take longer to import than `perdure --help` may last.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from perdure.errors import (
    NOT_NATIVE,
    AmbiguousPrefix,
    ConfigError,
    ModelUnknown,
    PerdureError,
    PrefixTooShort,
    SessionEnded,
    SessionNotFound,
)
from perdure.version import __version__

COMMANDS = {
    "backup": "Write a copy of the whole store into a new file, and prove it.",
    "config": "Show every setting, its value, and where the value comes from.",
    "doctor": "Look for damage, mend what is derived, and say what is lost.",
    "run": "Answer one prompt, and exit.",
    "sessions": "List the sessions, and show what is in one.",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"perdure.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="perdure %(version)s")
@click.option("--workspace", metavar="FOLDER", help="Work in this folder instead of the current one.")
@click.option("--home", metavar="FOLDER", help="Keep the store, backups and log in this folder.")
@click.option(
    "--database-url", "--db", metavar="URL", help="Use this store: sqlite:///PATH, postgresql://..., memory:"
)
@click.pass_context
def perdure(ctx: click.Context, /, **flags: str | None) -> None:
    """Perdure runs LLM agents whose sessions cannot be lost."""
    ctx.obj = {name: text for name, text in flags.items() if text is not None}
    if ctx.invoked_subcommand is None:
        from perdure.cli import door

        click.echo(f"perdure {__version__}")
        store = door.store_line()
        click.echo(f"store: {store}")
        formatter = ctx.make_formatter()
        perdure.format_commands(ctx, formatter)
        click.echo(f"\n{formatter.getvalue()}\n`perdure COMMAND --help` says more about each.")
        if store.endswith(door.NOT_MADE):
            door.tell_of_other_store()


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrongly called or configured, 3 no such session or several,
    4 the session has ended; `run` has more."""
    if sys.platform == "win32":
        print(f"perdure: {NOT_NATIVE}", file=sys.stderr)
        sys.exit(1)
    if sys.stdout is not None:  # it is None if somebody closed it
        # A folder's name need not be text, and the terminal need not know every script: show such signs escaped.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        perdure()
    except PerdureError as error:
        from perdure.cli.door import plain

        click.echo(f"perdure: {plain(str(error))}", err=True)
        sys.exit(_exit_code(error))
    except (
        OSError
    ) as error:  # whatever a room could foresee is a `PerdureError`; left is where the output goes
        click.echo(f"perdure: {error.filename or 'the output'}: {error.strerror}", err=True)
        _give_up_the_output()
        sys.exit(1)


def _give_up_the_output() -> None:
    """What it still holds cannot be written; Python would try once more at the end, and say so in its own words."""
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def _exit_code(error: PerdureError) -> int:
    match error:
        case ConfigError() | ModelUnknown():
            return 2
        case SessionNotFound() | AmbiguousPrefix() | PrefixTooShort():
            return 3
        case SessionEnded():
            return 4
        case _:
            return 1
