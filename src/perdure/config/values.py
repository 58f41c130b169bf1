"""One value as somebody said it, made into what the setting wants, or refused with the place where it was said."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from perdure.config.settings import Choice, Kind, Number, Secret, masked_url
from perdure.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Said:
    """Somebody gave a setting a value."""

    name: str

    value: object = field(repr=False)

    where: str
    """`--home`, `PERDURE_HOME` or `<file>:<line>`."""

    spelled: bool
    """The value is text even where a number is meant, as in the environment."""


def value_of(said: Said, kind: Kind, *, base: Path, user_home: Path) -> object:
    """The value, checked. Relative paths start from `base`, `~` is `user_home`."""
    match kind:
        case Number():
            return _number(said, kind)
        case Choice():
            if said.value not in kind.among:
                raise _bad(said, str(kind), said.value)
            return said.value
        case "folder":
            return _path(said, _text(said), base, user_home)
        case "store":
            return _store(said, _text(said), base, user_home)
        case "address":
            if not _text(said).startswith(("http://", "https://")):
                raise _bad(said, "an address that begins with http:// or https://")
            return said.value
        case "secret":
            return Secret(_text(said))
        case "text" | "tables":
            return _text(said)


def _bad(said: Said, wanted: str, shown: object = None) -> ConfigError:
    """What was said is shown only by those who know that it is no secret."""
    return ConfigError(
        said.where, f"{said.name} must be {wanted}" + ("" if shown is None else f", not {shown!r}")
    )


def _text(said: Said) -> str:
    if not isinstance(said.value, str) or not said.value.strip() or "\0" in said.value:
        raise _bad(said, "text, and not empty")
    return said.value


def _number(said: Said, kind: Number) -> int | float:
    number = _as_number(said, kind.whole)
    # NaN lies within no bounds, so it is refused here too.
    if number is None or not kind.least <= number <= kind.most:
        raise _bad(said, str(kind), said.value)
    return number if kind.whole else float(number)


def _as_number(said: Said, whole: bool) -> int | float | None:
    match said.value:
        case bool():  # an int, to Python
            return None
        case int() as number:
            return number
        case float() as number if not whole:
            return number
        case str() as text if said.spelled:
            try:
                return int(text) if whole else float(text)
            except ValueError:
                return None
    return None


def _path(said: Said, text: str, base: Path, user_home: Path) -> Path:
    path = Path(text)
    if path.parts and path.parts[0] == "~":
        path = user_home.joinpath(*path.parts[1:])
    try:
        return (base / path).resolve()
    except (OSError, RuntimeError) as error:
        raise _bad(said, f"a path that leads somewhere ({error})", text) from None


def _store(said: Said, url: str, base: Path, user_home: Path) -> str:
    if url == "memory:" or url.startswith(("postgresql://", "postgres://")):
        return url
    prefix, _, path = url.partition("sqlite:///")
    if prefix or path in ("", ":memory:"):
        raise _bad(said, "sqlite:///PATH, postgresql://... or memory:", masked_url(url))
    # Made absolute here, so that the same store is meant wherever the value is carried to.
    return f"sqlite:///{_path(said, path, base, user_home)}"
