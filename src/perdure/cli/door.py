"""What the commands have in common: the settings of this call, and the log."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from perdure.config import Loaded, Settings, load, masked_url
from perdure.errors import ConfigError, NoStore

if TYPE_CHECKING:
    from perdure.journal import Journal

T = TypeVar("T")
NOT_MADE = " (not made yet)"


def loaded() -> Loaded:
    """The settings of this call and where each comes from. Makes no files and no folders."""
    flags = click.get_current_context().find_root().obj
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the current folder", "it no longer exists; change to another one") from None
    return load(flags=flags, environ=os.environ, folder=folder)


def enter() -> Settings:
    """The settings of this call, for a command that will open the store: from here on the log is kept."""
    from perdure import (
        logs,
    )  # only here, because most calls keep no log and `logging` takes a while to import

    settings = loaded().settings
    logs.keep(settings.home)
    return settings


def with_journal(work: Callable[[Journal, Settings], Awaitable[T]], *, without: T | None = None) -> T:
    """Open the store of this call, do `work` with it, and close it again.

    None of these commands makes a store: an address with a slip in it would become one. Where there is none, the
    answer is `without`, and a person is told; `NoStore` is raised if the command cannot do without.
    """
    import asyncio  # with the journal, half of what starting takes; most calls of `perdure --help` need neither

    from perdure import journal

    settings = enter()

    async def opened() -> T:
        async with await journal.open(
            settings.database_url,
            kind="terminal",
            durability=settings.durability,
            announce=tell,
            create=False,
        ) as store:
            return await work(store, settings)

    try:
        return asyncio.run(opened())
    except NoStore as none:
        if without is None:
            raise
        tell(f"perdure: no store yet at {plain(none.store)}")
        return without


def tell(sentence: str) -> None:
    """Say something beside the result: to standard error, so that `--json` stays JSON."""
    click.echo(sentence, err=True)


def plain(text: str) -> str:
    """`text` as it may go to a terminal: what models and tools wrote must not move its cursor or ring its bell."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(c: str) -> str:
    # Joiners are no letters, yet family emoji and several scripts are written with them.
    return c if c in "\u200c\u200d" else c.encode("unicode_escape").decode()


def store_line() -> str:
    """The store as people may see it: without a password, and with a word if it does not exist yet."""
    url = loaded().settings.database_url
    path = Path(url.removeprefix("sqlite:///"))
    is_missing = url.startswith("sqlite:///") and not path.exists()
    return masked_url(url) + (NOT_MADE if is_missing else "")


def tell_of_other_store() -> None:
    """Whoever finds nothing here may have looked in the wrong place: say so if there is a store in the usual one."""
    found = loaded()
    usual = f"sqlite:///{found.usual_store}"
    if usual != found.settings.database_url and found.usual_store.is_file():
        where = found.origins["database_url" if found.origins["database_url"] != "default" else "home"]
        tell(f"perdure: {where} names this store; there is another one in the usual place: {plain(usual)}")
