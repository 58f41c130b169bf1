"""Writes the pages of docs/reference from the code, or says which no longer agree with it.

    python -m tools.docs            write them
    python -m tools.docs --check    change nothing; exit 1 and name what differs

A page is a function that returns its text, and a line in `PAGES`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from perdure.cli import perdure
from perdure.config import MODES
from perdure.config.settings import DEFAULTS, KINDS, PROJECT_MAY_SET, PROVIDER_KINDS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "perdure"


def field_sentences(file: Path, of_class: str) -> dict[str, str]:
    """What stands under each field of a class, in the order of the source; a field without one is an error."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == of_class)
    sentences = {}
    for field, below in zip(body, [*body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        match below:
            case ast.Expr(value=ast.Constant(value=str(sentence))):
                sentences[field.target.id] = " ".join(sentence.split())
            case _:
                raise SystemExit(f"{file}:{field.lineno}: {field.target.id} has no sentence")
    return sentences


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; the first row is its head."""
    head, *rest = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


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
    )
    helps = "\n".join(f"## {c.command_path}\n\n```text\n{c.get_help()}\n```\n" for c in commands())
    return f"""# Commands

What `--help` prints. Errors go to standard error, as one sentence that begins with `perdure:`.

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


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/config.md": config_page,
    "docs/reference/cli.md": cli_page,
}


def differing() -> list[str]:
    """The pages that are not what the code says now."""
    return [name for name, page in PAGES.items() if _on_disk(ROOT / name) != page()]


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
        (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
