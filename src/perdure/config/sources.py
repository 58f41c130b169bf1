"""Who may say something about a setting: a file, the environment, the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from perdure.config.settings import KINDS, PROVIDER_KINDS, Kind
from perdure.config.toml import Entry, read_toml
from perdure.config.values import Said, value_of
from perdure.errors import ConfigError


class Given(NamedTuple):
    value: object
    where: str
    """`--home`, `PERDURE_HOME` or `<file>:<line>`."""


def platform_folders(environ: Mapping[str, str], user_home: Path, platform: str) -> tuple[Path, Path]:
    """Where a user's configuration and data are kept on this platform. The XDG variables count on every one."""
    mac = user_home / "Library" / "Application Support"
    config = mac if platform == "darwin" else user_home / ".config"
    data = mac if platform == "darwin" else user_home / ".local" / "share"
    return _xdg(environ, "XDG_CONFIG_HOME", config) / "perdure", _xdg(
        environ, "XDG_DATA_HOME", data
    ) / "perdure"


def _xdg(environ: Mapping[str, str], variable: str, usual: Path) -> Path:
    said = Path(environ.get(variable, ""))
    # Its specification wants a relative path to be ignored.
    return said if said.is_absolute() else usual


def in_file(file: Path, user_home: Path) -> dict[str, Given]:
    """What the file says; relative paths in it start from its own folder."""
    found = {}
    for entry in read_toml(file):
        if entry.value == {} and entry.path[0] == "providers" and len(entry.path) <= 2:
            continue
        where = f"{file}:{entry.line}"
        said = Said(".".join(entry.path), entry.value, where, spelled=False)
        found[said.name] = Given(
            value_of(said, _kind(entry, where), base=file.parent, user_home=user_home), where
        )
    return found


def _kind(entry: Entry, where: str) -> Kind:
    known: Iterable[str] = KINDS
    match entry.path:
        case (name,) if name in KINDS and name != "providers":
            return KINDS[name]
        case ("providers", _, name) if name in PROVIDER_KINDS:
            return PROVIDER_KINDS[name]
        case ("providers",) | ("providers", _):
            raise ConfigError(where, "providers are tables, such as [providers.openai]")
        case ("providers", _, name, *_):
            known = PROVIDER_KINDS
        case (name, *_):
            pass
    why = f"unknown key {'.'.join(entry.path)}"
    if name in KINDS:
        why += " here; it belongs above the first [table]"
    elif near := _nearest(name, known):
        why += f"; did you mean {near}?"
    raise ConfigError(where, why)


def in_environment(
    environ: Mapping[str, str], folder: Path, user_home: Path
) -> tuple[dict[str, Given], tuple[str, ...]]:
    """What the environment says, and which PERDURE_ variables are no settings. An empty variable says nothing.

    A misspelled PERDURE_DATABASE_URL would quietly open another store, so a near miss is an error. Anything else is
    let pass: Kubernetes invents PERDURE_PORT for a service of that name, and a newer Perdure may have started us.
    """
    found = {}
    ignored = []
    for variable in sorted(environ):
        name = variable.removeprefix("PERDURE_").lower()
        if variable != f"PERDURE_{name.upper()}":
            continue
        if name in KINDS and name != "providers":
            if environ[variable]:
                found[name] = _spelled(name, environ[variable], variable, folder, user_home)
        elif name == "providers":
            if environ[variable]:
                raise ConfigError(
                    variable, "providers are tables of the user's file, such as [providers.openai]"
                )
        elif near := _nearest(name, KINDS):
            raise ConfigError(variable, f"no such setting; did you mean PERDURE_{near.upper()}?")
        else:
            ignored.append(variable)
    return found, tuple(ignored)


def on_command_line(flags: Mapping[str, str], folder: Path, user_home: Path) -> dict[str, Given]:
    """What the flags say, by name of the setting."""
    return {
        name: _spelled(name, text, f"--{name.replace('_', '-')}", folder, user_home)
        for name, text in flags.items()
    }


def _spelled(name: str, text: str, where: str, folder: Path, user_home: Path) -> Given:
    said = Said(name, text, where, spelled=True)
    return Given(value_of(said, KINDS[name], base=folder, user_home=user_home), where)


def _nearest(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # rarely needed, and start-up is counted in milliseconds

    return next(iter(get_close_matches(name, known, n=1, cutoff=0.75)), None)
