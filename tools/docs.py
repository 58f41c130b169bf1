"""Writes what in docs/ comes from the code, or says what no longer agrees with it.

    python -m tools.docs            write it
    python -m tools.docs --check    change nothing; exit 1 and name what differs

A page is a function that returns its text, and a line in `PAGES`. A part of a page that people write is a function
too, and a line in `PARTS`; it stands between `<!-- name: made by tools.docs -->` and `<!-- name: end -->`.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from perdure.cli import perdure
from perdure.config import MODES
from perdure.config.settings import DEFAULTS, KINDS, PROJECT_MAY_SET, PROVIDER_KINDS
from tools.example import kinds
from tools.reference import errors_page, events_page, python_page, table
from tools.source import ROOT, SOURCE, class_named, module_doc


def field_sentences(file: Path, of_class: str) -> dict[str, str]:
    """What stands under each field of a class, in the order of the source; a field without one is an error."""
    found = {each.name: each.sentence for each in class_named(file, of_class).fields}
    for name, sentence in found.items():
        if not sentence:
            raise SystemExit(f"{file}: {of_class}.{name} has no sentence")
    return found


def config_page() -> str:
    settings_file = SOURCE / "config" / "settings.py"
    rows = [("Setting", "Default", "Value", "In a project", "What it does")]
    for name, sentence in field_sentences(settings_file, "Settings").items():
        sentence, _, found = sentence.partition(" Default: ")
        default = DEFAULTS.get(name)
        shown = found.rstrip(".") or ("unset" if default is None else f"`{default}`")
        rows.append((f"`{name}`", shown, _value(name), "yes" if name in PROJECT_MAY_SET else "", sentence))

    providers = [("Key", "Value", "What it does")]
    for name, sentence in field_sentences(settings_file, "Provider").items():
        providers.append((f"`{name}`", str(PROVIDER_KINDS[name]), sentence))

    return f"""# Settings

What counts, from near to far:

1. the command line: `--workspace`, `--home`, `--database-url`;
2. the environment: `PERDURE_` and the setting's name in capitals, such as `PERDURE_RETRY_ATTEMPTS`;
3. the project's file: `.perdure/config.toml` in the workspace;
4. the user's file: `config.toml` in the platform's configuration folder, which is `~/.config/perdure` on Linux
   (or `$XDG_CONFIG_HOME/perdure`) and `~/Library/Application Support/perdure` on macOS;
5. the default.

`perdure config` shows every value and where it comes from. An unknown key or a bad value is an error that names file
and line, wherever it stands. So is a `PERDURE_` variable whose name is nearly that of a setting; other `PERDURE_`
variables are let pass, because some systems invent such names, and `perdure config` lists them. A variable that is
set but empty says nothing.

In the environment and on the command line, a relative path starts from the current folder; in the user's file, from
the folder of that file. `~` is the user's folder. After `sqlite:///` comes a path exactly as it is, nothing escaped:
an absolute one makes four slashes.

Settings of parts that are not built yet are checked and shown like the others; nothing reads them so far.

## All settings

{table(*rows)}

A project's file comes with a clone, so it may set only what is marked: how the agent works there. It can narrow
`mode` but not widen it. From narrow to wide, by what can happen without a person's yes:
{", ".join(f"`{mode}`" for mode in MODES)}.

## Providers

The user's file, and no other place, may hold one table for each provider of models, such as `[providers.openai]`:

{table(*providers)}
"""


def _value(name: str) -> str:
    return "one table each, see below" if name == "providers" else str(KINDS[name])


def cli_page() -> str:
    codes = table(
        ("Exit code", "Meaning"),
        ("0", "done"),
        ("1", "failed"),
        ("2", "wrongly called, or a setting is wrong"),
        ("3", "no such session, or several"),
        ("4", "the session has ended"),
        ("5", "a person has to be asked (`run`)"),
        ("130", "cancelled, by Ctrl-C or by somebody else (`run`)"),
        ("143", "told to stop (`run`)"),
    )
    helps = "\n".join(f"## {c.command_path}\n\n```text\n{c.get_help()}\n```\n" for c in commands())
    return f"""# Commands

What `--help` prints. Errors go to standard error. One of Perdure's own is one sentence that begins with `perdure:`; a
command line that cannot be understood is answered as `--help` would be begun, with `Usage:` and a last line `Error: ...`.
A command that finds no store makes none: it says `no store yet`, and fails only if it cannot do without.

{codes}

{helps}"""


def commands(
    name: str = "perdure", command: click.Command = perdure, parent: click.Context | None = None
) -> Iterator[click.Context]:
    """Every command, each in the context it is called in, parents first."""
    context = click.Context(
        command, parent, info_name=name, **{**command.context_settings, "terminal_width": 100}
    )
    yield context
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            assert inner is not None, inner_name
            yield from commands(inner_name, inner, context)


def rooms() -> str:
    """The rooms there are, from the top down, as import-linter guards them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    floors = [[name for name in re.findall(r"\w+", layer) if _sentence_of(name)] for layer in layers]
    rows = [(" | ".join(floor), [_sentence_of(name) for name in floor]) for floor in floors if floor]
    width = max(len(names) for names, _ in rows)
    lines = [f"{names:{width}}   {'; '.join(sentences)}" for names, sentences in rows]
    return "```text\n" + "\n".join(lines) + "\n```"


def _sentence_of(room: str) -> str:
    """What a room says of itself in its first line; empty if it does not exist yet."""
    file = next((f for f in (SOURCE / f"{room}.py", SOURCE / room / "__init__.py") if f.exists()), None)
    return module_doc(file).partition("\n")[0].rstrip(".") if file else ""


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/cli.md": cli_page,
    "docs/reference/config.md": config_page,
    "docs/reference/errors.md": errors_page,
    "docs/reference/events.md": events_page,
    "docs/reference/python.md": python_page,
}

PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/explanation/architecture.md": {"rooms": rooms},
    "docs/explanation/journal-format.md": {"kinds": kinds},
}


def text_of(name: str) -> str:
    """What a page has to be, by the code as it is now."""
    if name in PAGES:
        return PAGES[name]()
    text = (ROOT / name).read_text(encoding="utf-8")
    for part, made in PARTS[name].items():
        begin, end = f"<!-- {part}: made by tools.docs -->\n", f"\n<!-- {part}: end -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise SystemExit(f"{name}: the marks of {part!r} are not there once each")
        before, rest = text.split(begin)
        text = before + begin + made() + end + rest.split(end)[1]
    return text


def differing() -> list[str]:
    """The pages that are not what the code says now."""
    return [name for name in [*PAGES, *PARTS] if _on_disk(ROOT / name) != text_of(name)]


def _on_disk(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None


def main() -> None:
    stale = differing()
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(
                f"no longer what the code says: {', '.join(stale)}\nwrite them with: python -m tools.docs"
            )
        return
    for name in stale:
        (ROOT / name).write_text(text_of(name), encoding="utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
