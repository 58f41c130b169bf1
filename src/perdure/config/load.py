"""Whose word counts, and what a project's file may not say."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from perdure.config.settings import DEFAULTS, KINDS, MODES, PROJECT_MAY_SET, Mode, Provider, Settings
from perdure.config.sources import Given, in_environment, in_file, on_command_line, platform_folders
from perdure.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and how they came about."""

    settings: Settings

    origins: Mapping[str, str]
    """Where each value comes from: `--home`, `PERDURE_HOME`, `<file>:<line>` or `default`. What a provider's table
    says has names like `providers.openai.api_key`."""

    user_file: Path
    """Where the user's file is, or would be."""

    project_file: Path
    """Where the project's file is, or would be."""

    usual_store: Path
    """Where the store is while nobody says otherwise."""

    ignored: tuple[str, ...]
    """Variables that begin with PERDURE_ and are no settings."""


def load(
    *, flags: Mapping[str, str], environ: Mapping[str, str], folder: Path, platform: str = sys.platform
) -> Loaded:
    """Find every setting, or raise a `ConfigError` that names the place to mend.

    `flags` is what the command line says, by name of the setting; `folder` is the current folder. A bad value is an
    error even where a nearer one replaces it: it would lie in wait for the day when it does not.
    """
    user_home = _user_home(environ, folder)
    config_folder, data_folder = platform_folders(environ, user_home, platform)

    user_file = config_folder / "config.toml"
    user = in_file(user_file, user_home)
    variables, ignored = in_environment(environ, folder, user_home)
    near = variables | on_command_line(flags, folder, user_home)

    # The workspace is settled before the rest, because the project's file lies in it.
    workspace = _workspace(user | near, folder)
    project_file = workspace / ".perdure" / "config.toml"
    project = in_file(project_file, user_home)
    for name in project:
        _refuse_what_a_project_may_not(name, project[name], user, user_file)

    given = user | project | near
    settings = _settings(given, workspace, data_folder)
    origins = dict.fromkeys(KINDS, "default") | {name: where for name, (_, where) in given.items()}
    _refuse_a_cap_below_its_base(settings, origins)
    return Loaded(settings, origins, user_file, project_file, data_folder / "perdure.db", ignored)


def _user_home(environ: Mapping[str, str], folder: Path) -> Path:
    if environ.get("HOME"):
        return folder / environ["HOME"]
    import pwd  # rarely needed, and not there on Windows, where only one sentence is said

    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise ConfigError("HOME", "is not set, and this user has no home folder; set HOME") from None


def _workspace(given: Mapping[str, Given], folder: Path) -> Path:
    if "workspace" not in given:
        return folder
    workspace, where = cast(tuple[Path, str], given["workspace"])
    if not workspace.is_dir():
        raise ConfigError(where, f"the workspace {workspace} is not a folder")
    return workspace


def _refuse_what_a_project_may_not(
    name: str, given: Given, user: Mapping[str, Given], user_file: Path
) -> None:
    elsewhere = f"set it in {user_file}"
    if not name.startswith("providers."):
        elsewhere += f" or as PERDURE_{name.upper()}"
    if name not in PROJECT_MAY_SET:
        raise ConfigError(given.where, f"a project's file cannot set {name}; {elsewhere}")
    if name == "mode":
        own = cast(Mode, user["mode"].value if "mode" in user else DEFAULTS["mode"])
        if MODES.index(cast(Mode, given.value)) > MODES.index(own):
            raise ConfigError(
                given.where,
                f"a project's file cannot widen the mode from {own} to {given.value}; {elsewhere}",
            )


def _settings(given: Mapping[str, Given], workspace: Path, data_folder: Path) -> Settings:
    values = DEFAULTS | {name: value for name, (value, _) in given.items() if name in KINDS}
    values["workspace"] = workspace
    home = values.setdefault("home", data_folder)
    values.setdefault("database_url", f"sqlite:///{home}/perdure.db")

    tables = dict[str, dict[str, Any]]()
    for name in given.keys() - KINDS.keys():
        provider, _, key = name.removeprefix("providers.").rpartition(".")
        tables.setdefault(provider, {})[key] = given[name].value
    values["providers"] = {provider: Provider(**tables[provider]) for provider in sorted(tables)}

    return Settings(**cast(dict[str, Any], values))


def _refuse_a_cap_below_its_base(settings: Settings, origins: Mapping[str, str]) -> None:
    base, cap = settings.retry_base, settings.retry_cap
    if base > cap:
        # Named is what somebody said, which the default is not.
        where = next(origins[name] for name in ("retry_base", "retry_cap") if origins[name] != "default")
        raise ConfigError(where, f"retry_base ({base:g}) is more than retry_cap ({cap:g})")
