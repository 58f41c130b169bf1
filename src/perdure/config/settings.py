"""What can be set, and what each setting means.

The sentence under a setting is also its entry in docs/reference/config.md. Beside its type stands what counts as a
good value, and whether a project's file may set it: such a file arrives with a clone, so whoever wrote it is not yet
trusted. It may tune how the agent works in that project. It may not say where sessions are kept or how long,
whom a key is sent to, what is done without asking after a crash, or that more is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal, cast, get_args, get_type_hints

Durability = Literal["power", "process"]
ContextStrategy = Literal["compact", "truncate"]
OnCrash = Literal["ask", "continue", "retry", "abandon"]
Mode = Literal["read-only", "prompt", "workspace-write", "allow", "danger-full-access"]

MODES: tuple[Mode, ...] = get_args(Mode)
"""From narrow to wide, by what can happen without a person's yes. `prompt` may end up doing more than
`workspace-write`, but stands before it because it asks each time."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that prints as a mask. Only the line that sends it where it belongs should say `.value`."""

    value: str

    def __str__(self) -> str:
        return "********"

    def __repr__(self) -> str:
        return "Secret(********)"


def masked_url(url: str) -> str:
    """The address without any password in it, for people and logs."""
    url = re.sub(r"(?<=://)([^:/?#]*):.*@", r"\1:********@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1********", url)


@dataclass(frozen=True, slots=True)
class Provider:
    """What `[providers.NAME]` in the user's file says about one provider."""

    api_key: Annotated[Secret | None, "secret"] = None
    """The key sent to this provider."""

    base_url: Annotated[str | None, "address"] = field(default=None, repr=False)
    """Where this provider listens, when that is not its usual address."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number from `least` to `most`, both included."""

    least: float
    most: float
    whole: bool = False

    def __str__(self) -> str:
        return f"a {'whole ' * self.whole}number from {self.least:,} to {self.most:,}"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these words."""

    among: tuple[str, ...]

    def __str__(self) -> str:
        return f"one of {', '.join(self.among)}"


Kind = Number | Choice | Literal["text", "folder", "store", "address", "secret", "tables"]

PROJECT = "a project's file may set it"


@dataclass(frozen=True, slots=True)
class Settings:
    workspace: Annotated[Path, "folder"]
    """The folder the agent works in, and where the project's file is looked for. Default: the current folder."""

    home: Annotated[Path, "folder"]
    """The folder for what Perdure keeps: store, backups, log. Default: `perdure` in the platform's data folder."""

    database_url: Annotated[str, "store"] = field(repr=False)
    """The store: `sqlite:///PATH`, `postgresql://...` or `memory:`. Default: `perdure.db` in `home`."""

    durability: Annotated[Durability, Choice(get_args(Durability))] = "power"
    """What an acknowledged fact survives: a `power` cut, or only the death of the `process`, which is faster."""

    model: Annotated[str | None, "text", PROJECT] = None
    """The model of a new session, as `provider:name`. Unset: the first provider that has a key."""

    mode: Annotated[Mode, Choice(MODES), PROJECT] = "workspace-write"
    """What a new session may do without asking. A project's file may narrow it, never widen it."""

    retry_attempts: Annotated[int, Number(1, 100, whole=True), PROJECT] = 5
    """How often a call to a model is tried when it fails in a way that may pass."""

    retry_base: Annotated[float, Number(0, 3600), PROJECT] = 0.5
    """The wait before the second attempt, in seconds, is drawn between 0 and this; before each next, twice that."""

    retry_cap: Annotated[float, Number(0, 3600), PROJECT] = 30.0
    """No such wait is longer than this many seconds."""

    context_strategy: Annotated[ContextStrategy, Choice(get_args(ContextStrategy)), PROJECT] = "compact"
    """How room is made when the model's window fills: by a summary, or by leaving older messages out."""

    compaction_share: Annotated[float, Number(0.01, 1), PROJECT] = 0.75
    """The share of the model's window at which room is made."""

    compaction_window_if_unknown: Annotated[int, Number(1, 100_000_000, whole=True), PROJECT] = 100_000
    """The window, in tokens, of a model that does not say how large its own is."""

    compaction_keep: Annotated[int, Number(1, 1000, whole=True), PROJECT] = 4
    """How many of the last messages a summary leaves as they are; more, where a call and its result would part."""

    truncation_keep: Annotated[int, Number(1, 100_000, whole=True), PROJECT] = 20
    """How many of the last messages truncation keeps, beside the user's first."""

    max_session_age_hours: Annotated[float | None, Number(1, 1_000_000)] = None
    """Sessions without activity for this long are cleaned up. Unset: none ever are."""

    on_crash: Annotated[OnCrash | None, Choice(get_args(OnCrash))] = None
    """What becomes of a turn whose process died. Unset: a terminal asks, a server or worker continues."""

    shutdown_deadline: Annotated[float, Number(0, 3600)] = 8.0
    """How many seconds running turns have to finish, once Perdure is told to stop, before they are interrupted."""

    child_depth: Annotated[int, Number(0, 3, whole=True), PROJECT] = 3
    """How deep sub-agents may start sub-agents of their own. With 0 there are none."""

    token: Annotated[Secret | None, "secret"] = None
    """What clients show to the HTTP door. Unset: the door makes one and keeps it in `home`."""

    providers: Annotated[Mapping[str, Provider], "tables"] = field(default_factory=dict)
    """Keys and addresses of model providers, a table `[providers.NAME]` each, in the user's file only."""


def _notes(cls: type) -> dict[str, tuple[object, ...]]:
    return {name: get_args(hint)[1:] for name, hint in get_type_hints(cls, include_extras=True).items()}


KINDS = {name: cast(Kind, notes[0]) for name, notes in _notes(Settings).items()}
PROVIDER_KINDS = {name: cast(Kind, notes[0]) for name, notes in _notes(Provider).items()}
PROJECT_MAY_SET = frozenset(name for name, notes in _notes(Settings).items() if PROJECT in notes)
DEFAULTS: dict[str, object] = {
    key.name: key.default for key in fields(Settings) if key.default is not MISSING
}
