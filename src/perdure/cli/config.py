"""`perdure config`: what is set, and by whom."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import click

from perdure.cli import door
from perdure.config import Loaded, Secret, Settings, masked_url


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> None:
    """Show every setting, its value, and where the value comes from.

    Nearer wins: the command line, then PERDURE_* variables, then the project's file, then the user's file, then the
    default. Keys and passwords are masked.
    """
    found = door.loaded()
    rows = {name: {"value": value, "from": found.origins[name]} for name, value in _values(found).items()}
    files = {"user_file": found.user_file, "project_file": found.project_file}
    if as_json:
        paths = {name: str(file) for name, file in files.items()}
        click.echo(json.dumps(paths | {"settings": rows, "ignored": found.ignored}, indent=2))
        return

    width = max(map(len, rows))
    for name, file in files.items():
        click.echo(f"{name:{width}}  {file}{'' if file.exists() else '  (not there)'}")
    click.echo()
    for name, row in rows.items():
        shown = "unset" if row["value"] is None else row["value"]
        click.echo(f"{name:{width}}  {shown}  ({row['from']})")
    if found.ignored:
        click.echo(f"\nNot settings, and ignored: {', '.join(found.ignored)}")


def _values(found: Loaded) -> dict[str, str | int | float | None]:
    """Every setting as it may be shown. A provider's are listed one by one, in place of `providers`."""
    values = {
        key.name: _shown(getattr(found.settings, key.name))
        for key in fields(Settings)
        if key.name != "providers"
    }
    if not found.settings.providers:
        values["providers"] = None
    for name, provider in found.settings.providers.items():
        for key in fields(provider):
            path = f"providers.{name}.{key.name}"
            if path in found.origins:
                values[path] = _shown(getattr(provider, key.name))
    return values


def _shown(value: object) -> str | int | float | None:
    match value:
        case Secret() | Path():
            return str(value)
        case str():
            return masked_url(value)
        case int() | float() | None:
            return value
        case _:
            raise TypeError(f"no way to show {type(value).__name__}")
