"""The documents say what is true of the code."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from perdure.cli import COMMANDS
from perdure.config import Settings, load
from perdure.config.settings import Provider
from tools import docs

ROOT = docs.ROOT
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("name", docs.PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert name not in docs.differing(), "write it with: python -m tools.docs"


@pytest.mark.parametrize("key", [key.name for of in (Settings, Provider) for key in fields(of)])
def test_every_setting_has_a_page(key: str) -> None:
    assert f"| `{key}` |" in (ROOT / "docs/reference/config.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [context.command_path for context in docs.commands()])
def test_every_command_has_a_page(path: str) -> None:
    assert f"\n## {path}\n" in (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")


def test_the_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [name for name in COMMANDS if f"perdure {name}" not in readme]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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
