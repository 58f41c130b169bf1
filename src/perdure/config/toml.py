"""A TOML file as a list of keys that know their line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perdure.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Entry:
    path: tuple[str, ...]

    value: object = field(repr=False)
    """Never a table, except an empty one: a filled table is the entries within it."""

    line: int


def read_toml(file: Path) -> list[Entry]:
    """The file's keys in its own order, or none if there is no such file. Raises `ConfigError` with file and line."""
    try:
        if file.exists() and not file.is_file():
            raise ConfigError(str(file), "cannot be read: it is no ordinary file")
        text = file.read_bytes().decode("utf-8-sig")  # some editors put a mark before the first line
    except (FileNotFoundError, NotADirectoryError):
        return []
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}", "this is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read: {error.strerror}") from None
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _syntax_error(file, text, str(error)) from None
    return list(_entries(text))


def _syntax_error(file: Path, text: str, said: str) -> ConfigError:
    if place := re.search(r" \(at line (\d+), column \d+\)$", said):
        return ConfigError(f"{file}:{place[1]}", said[: place.start()])
    last = text.rstrip().count("\n") + 1
    return ConfigError(f"{file}:{last}", said.removesuffix(" (at end of document)"))


def _entries(text: str) -> Iterator[Entry]:
    # tomllib does not say where a key stands. But TOML is a list of statements, each of which is TOML by itself and
    # none of which can be cut short at the end of a line: so the shortest run of lines that parses is a statement.
    table: tuple[str, ...] = ()
    statement, first = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        statement += line + "\n"
        try:
            parsed = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        is_header = statement.lstrip().startswith("[")
        for path, value in _leaves(parsed):
            table = path if is_header else table
            yield Entry(path if is_header else table + path, value, first)
        statement, first = "", number + 1


def _leaves(value: dict[str, object], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, (*path, key))
        else:
            yield (*path, key), inner
