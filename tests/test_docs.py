"""The documents say what is true of the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import perdure
from perdure import errors
from perdure.cli import COMMANDS
from perdure.codec import KINDS
from perdure.config import Settings, load
from perdure.config.settings import Provider
from tools import docs

ROOT = docs.ROOT
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ERRORS = [
    name for name, it in vars(errors).items() if isinstance(it, type) and issubclass(it, errors.PerdureError)
]
BIN = Path(sys.executable).parent


def fenced(page: Path, *languages: str) -> list[tuple[str, str]]:
    """The blocks of a page in these languages, indented ones too."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^ *```(\w+)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    return [(language, block) for language, block in found if language in languages]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


EXAMPLES = [
    pytest.param(block, id=f"{name_of(page)}-{number}")
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/how-to/*.md"))]
    for number, (_, block) in enumerate(fenced(page, "python"), 1)
]


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(folder / "home"), "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize("name", [*docs.PAGES, *docs.PARTS])
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert name not in docs.differing(), "write it with: python -m tools.docs"


@pytest.mark.parametrize("key", [key.name for of in (Settings, Provider) for key in fields(of)])
def test_every_setting_has_a_page(key: str) -> None:
    assert f"| `{key}` |" in (ROOT / "docs/reference/config.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [context.command_path for context in docs.commands()])
def test_every_command_has_a_page(path: str) -> None:
    assert f"\n## {path}\n" in (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_event_has_a_page_and_an_example(kind: str) -> None:
    assert f"\n### {kind}\n" in (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")
    assert f'{{"kind":"{kind}"' in (ROOT / "docs/explanation/journal-format.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_has_a_page(name: str) -> None:
    assert f"\n## {name}\n" in (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in perdure.__all__ if name != "__version__"])
def test_every_name_of_the_surface_has_a_page(name: str) -> None:
    assert f"\nfrom perdure import {name} " in (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", EXAMPLES)
def test_an_example_runs(block: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(block, encoding="utf-8")
    done = run([sys.executable, "-W", "error", "example.py"], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    script = ["set -e"]
    for language, block in fenced(ROOT / "docs/tutorial.md", "python", "sh"):
        if language == "sh":
            script.append(block)
        else:
            name = block.partition("\n")[0].removeprefix("# ")
            (tmp_path / name).write_text(block, encoding="utf-8")
    done = run(["bash", "-c", "\n".join(script)], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = (tmp_path / "shown.txt").read_text().split()
    before, mark, after = (tmp_path / "watched.txt").read_text().partition("[interrupted]")
    assert len(shown) > 1
    assert before.split()[: len(shown)] == shown
    assert len(before.split()) <= len(shown) + 1
    assert mark
    assert after.endswith("[completed]\n")
    assert ", 0 findings, " in done.stdout
    assert "1 sessions, verified" in done.stdout


def test_leaving_as_the_page_says_takes_every_session_along(tmp_path: Path) -> None:
    _, export = fenced(ROOT / "docs/how-to/leave.md", "sh")[1]
    made = """
import asyncio, perdure
from perdure.events import MessageSent, Text
async def main():
    async with await perdure.open("sqlite:///sessions.db") as journal:
        for text in ("안녕", "one half of a sign: " + chr(0xD800)):
            await journal.append(await journal.create(), MessageSent((Text(text),)))
asyncio.run(main())
"""
    assert run([sys.executable, "-c", made], tmp_path).returncode == 0
    done = run(["bash", "-ec", f"export PERDURE_DATABASE_URL=sqlite:///sessions.db\n{export}"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    ids = [one["id"] for one in json.loads((tmp_path / "sessions.json").read_text())]
    taken = [json.loads((tmp_path / f"{id}.json").read_text())["events"] for id in ids]
    texts = [events[-1][4]["parts"][0]["text"] for events in taken]
    assert sorted(texts) == ["one half of a sign: \ud800", "안녕"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_shown_as_an_example_exist(page: Path) -> None:
    known = {context.command_path for context in docs.commands()}
    for _, block in fenced(page, "sh", "console"):
        for line in re.findall(r"^ *(?:\$ )?perdure( .*)?$", block, re.MULTILINE):
            words = re.sub(r" --(db|database-url|home|workspace) \S+", "", line.partition("#")[0]).split()
            path = "perdure"
            while words and f"{path} {words[0]}" in known:
                path = f"{path} {words.pop(0)}"
            assert path != "perdure" or not words, line
            for option in (word for word in words if word.startswith("--")):
                assert any(option in opt.opts for c in docs.commands() if c.command_path == path
                           for opt in c.command.params), line  # fmt: skip


def test_the_architecture_has_a_phrase_for_every_file_and_for_no_other() -> None:
    source = ROOT / "src" / "perdure"
    there = sorted(
        str(file.relative_to(source)) for end in ("py", "sql") for file in source.rglob(f"*.{end}")
    )
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[\w/]+\.(?:py|sql)`.*?) \| (.+) \|$", page, re.MULTILINE)
    assert sorted(name for files, _ in rows for name in re.findall(r"`(.+?)`", files)) == there


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_of_this_tree_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"`((?:src|tests|tools|docs|bench)/[\w/.-]+\.\w+)`", page.read_text(encoding="utf-8"))
    places = (ROOT, ROOT / "src" / "perdure")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_every_test_with_real_processes_shows_a_promise() -> None:
    page = (ROOT / "docs/explanation/durability.md").read_text(encoding="utf-8")
    assert [f.name for f in ROOT.glob("tests/kill/test_*.py") if f"`tests/kill/{f.name}`" not in page] == []


def test_the_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [name for name in COMMANDS if f"perdure {name}" not in readme]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link, place in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            target = page.parent / link if link else page
            assert target.exists(), link
            assert not place or place in places(target), f"{link}#{place}"


def places(page: Path) -> set[str]:
    """What one may link to within a page: its headings, as the usual renderers name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_settings_shown_as_an_example_are_good_settings(page: Path, tmp_path: Path) -> None:
    for example in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        file = tmp_path / "perdure" / "config.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(example, encoding="utf-8")
        load(flags={}, environ={"XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path)


def test_ci_runs_the_readmes_own_commands() -> None:
    told = subprocess.run(
        [ROOT / ".ci" / "run", "--tell"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line for line in readme.splitlines() if line.startswith("python3 -m venv ")]
    assert len(commands) == 2
    assert told.splitlines()[:2] == commands
