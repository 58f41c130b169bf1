"""The real console script, as its own process, in a home of its own."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from perdure import __version__
from perdure.cli import COMMANDS
from perdure.config import MODES
from perdure.errors import NOT_NATIVE
from tests.doors.conftest import PERDURE, Run


def test_it_says_its_version(run: Run) -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"perdure {__version__}\n", "")


def test_alone_it_shows_version_store_and_what_works(run: Run, tmp_path: Path) -> None:
    done = run()
    assert done.returncode == 0
    assert f"perdure {__version__}\n" in done.stdout
    assert f"store: sqlite:///{tmp_path}/.local/share/perdure/perdure.db (not made yet)\n" in done.stdout
    for name, sentence in COMMANDS.items():
        assert f"  {name}" in done.stdout
        assert sentence in done.stdout


@pytest.mark.parametrize("where", ["", "gone/far/perdure.db"])
def test_looking_makes_nothing(where: str, run: Run, tmp_path: Path, project: Path) -> None:
    db = ("--db", f"sqlite:///{project}/{where}") if where else ()
    for arguments in ((), ("--help",), ("config",)):
        assert run(*db, *arguments).returncode == 0
    said = f"perdure: no store yet at sqlite:///{f'{project}/{where}' if where else f'{tmp_path}/.local/share/perdure/perdure.db'}\n"
    for arguments, shown in (
        (("sessions", "list"), "no sessions yet\n"),
        (("sessions", "list", "--json"), "[]\n"),
        (("sessions", "prune", "--older-than", "1", "--yes"), None),
        (("doctor",), ""),
    ):
        done = run(*db, *arguments)
        assert (done.returncode, done.stderr) == (0, said)
        assert shown in (done.stdout, None)
    for arguments in (
        ("sessions", "show", "x"),
        ("sessions", "restore", "x"),
        ("doctor", "x"),
        ("backup", "copy.db"),
    ):
        done = run(*db, *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith("perdure.db: there is no store yet\n")
    assert list(tmp_path.iterdir()) == [project]
    assert not list(project.iterdir())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_the_same_of_itself_as_the_list_does(name: str) -> None:
    command = import_module(f"perdure.cli.{name}").command
    assert isinstance(command, click.Command)
    assert (command.help or "").splitlines()[0] == COMMANDS[name]


def test_the_stores_password_is_never_shown(run: Run) -> None:
    for arguments in ((), ("config",), ("config", "--json")):
        done = run("--db", "postgresql://ada:hush@localhost/x", *arguments)
        assert done.returncode == 0
        assert "postgresql://ada:********@localhost/x" in done.stdout
        assert "hush" not in done.stdout + done.stderr


def test_config_shows_each_value_and_its_origin(run: Run, tmp_path: Path, project: Path) -> None:
    (project / ".perdure").mkdir()
    (project / ".perdure" / "config.toml").write_text('\nmodel = "ollama:모델"\n', encoding="utf-8")
    (tmp_path / ".config" / "perdure").mkdir(parents=True)
    user_file = tmp_path / ".config" / "perdure" / "config.toml"
    user_file.write_text('[providers.openai]\napi_key = "hush"\n', encoding="utf-8")
    done = run("--home", "~/kept", "config", PERDURE_RETRY_CAP="9", PERDURE_PORT="tcp://x")
    assert done.returncode == 0
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line]
    assert ["home", f"{tmp_path}/kept  (--home)"] in lines
    assert ["retry_cap", "9.0  (PERDURE_RETRY_CAP)"] in lines
    assert ["model", f"ollama:모델  ({project}/.perdure/config.toml:2)"] in lines
    assert ["max_session_age_hours", "unset  (default)"] in lines
    assert ["providers.openai.api_key", f"********  ({user_file}:2)"] in lines
    assert "ignored: PERDURE_PORT" in done.stdout


def test_config_can_be_read_by_a_program(run: Run, tmp_path: Path, project: Path) -> None:
    found = json.loads(run("config", "--json", PERDURE_TOKEN="hush").stdout)
    assert found["user_file"] == f"{tmp_path}/.config/perdure/config.toml"
    assert found["project_file"] == f"{project}/.perdure/config.toml"
    assert found["settings"]["retry_attempts"] == {"value": 5, "from": "default"}
    assert found["settings"]["token"] == {"value": "********", "from": "PERDURE_TOKEN"}


def test_a_bad_setting_is_one_sentence_and_exit_code_2(run: Run, project: Path) -> None:
    (project / ".perdure").mkdir()
    file = project / ".perdure" / "config.toml"
    file.write_text("retry_attempts = 0\n", encoding="utf-8")
    done = run("config")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (f"perdure: {file}:1: retry_attempts must be a whole number from 1 to 100, not 0\n")


def test_help_works_however_bad_the_settings_are(run: Run) -> None:
    assert run("--help", PERDURE_MODE="nonsense").returncode == 0
    assert run("config", "--help", PERDURE_MODE="nonsense").returncode == 0
    assert run("--version", PERDURE_MODE="nonsense").returncode == 0


@pytest.mark.parametrize("arguments", [("confg",), ("--hom", "x"), ("config", "extra"), ("--home",)])
def test_a_wrong_call_is_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_current_folder_that_is_gone_is_one_sentence(run: Run, project: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f'rmdir "$PWD" && exec "{PERDURE}" config'],
        cwd=project,
        env={"HOME": str(project.parent), "PATH": os.environ["PATH"]},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "perdure: the current folder: it no longer exists; change to another one\n"


def test_a_folder_whose_name_is_not_text_can_still_be_shown(run: Run, project: Path) -> None:
    folder = project / os.fsdecode(b"\xff")
    folder.mkdir()
    done = run("--workspace", str(folder), "config")
    assert done.returncode == 0
    assert "\\udcff" in done.stdout


def test_signs_that_the_terminal_lacks_are_shown_escaped(run: Run) -> None:
    done = run("config", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    assert "code \\ucf54\\ub4dc" in done.stdout


def test_start_up_loads_nothing_it_does_not_need(run: Run) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, perdure.cli; print(*sys.modules)"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    loaded = set(done.stdout.split())
    assert not loaded & {
        "asyncio",
        "apsw",
        "msgspec",
        "psycopg",
        "rich",
        "logging",
        "tomllib",
        "perdure.journal",
    }


# Settings


def test_the_nearer_word_counts(run: Run, tmp_path: Path, project: Path) -> None:
    users = tmp_path / ".config" / "perdure" / "config.toml"
    projects = project / ".perdure" / "config.toml"
    for file in (users, projects):
        file.parent.mkdir(parents=True)
    users.write_text("retry_cap = 8\nhome = 'of/the/user'\n")
    projects.write_text("retry_cap = 9\n")
    said = [
        (
            ("--home", "of/a/flag"),
            {"PERDURE_HOME": "env", "PERDURE_RETRY_CAP": "7"},
            "--home",
            "PERDURE_RETRY_CAP",
        ),
        ((), {"PERDURE_HOME": "env", "PERDURE_RETRY_CAP": "7"}, "PERDURE_HOME", "PERDURE_RETRY_CAP"),
        ((), {"PERDURE_HOME": "", "PERDURE_RETRY_CAP": ""}, f"{users}:2", f"{projects}:1"),
    ]
    for flags, environ, home, cap in said:
        found = json.loads(run(*flags, "config", "--json", **environ).stdout)["settings"]
        assert (found["home"]["from"], found["retry_cap"]["from"]) == (home, cap)
    projects.unlink()
    assert json.loads(run("config", "--json").stdout)["settings"]["retry_cap"]["from"] == f"{users}:1"
    users.unlink()
    found = json.loads(run("config", "--json").stdout)["settings"]
    assert (found["home"]["from"], found["retry_cap"]["from"]) == ("default", "default")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('database_url = "postgresql://elsewhere/x"', "database_url"),
        ('home = "/elsewhere"', "home"),
        ('token = "hush"', "token"),
        ('providers.openai.api_key = "hush"', "providers.openai.api_key"),
        ('providers.openai.base_url = "http://elsewhere"', "providers.openai.base_url"),
    ],
)
def test_a_project_cannot_set_what_is_the_users(line: str, name: str, run: Run, project: Path) -> None:
    file = project / ".perdure" / "config.toml"
    file.parent.mkdir()
    file.write_text(f"# of a clone\n{line}\n")
    done = run("sessions", "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"perdure: {file}:2: a project's file cannot set {name}; set it in ")
    assert "hush" not in done.stderr
    assert not (project.parent / ".local").exists()


def test_a_project_cannot_widen_what_may_be_done(run: Run, project: Path) -> None:
    file = project / ".perdure" / "config.toml"
    file.parent.mkdir()
    file.write_text(f'mode = "{MODES[-1]}"\n')
    done = run("config")
    assert done.returncode == 2
    assert done.stderr.startswith(f"perdure: {file}:1: a project's file cannot widen the mode from ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("retry_atempts = 3", 1),
        ("\nmodel = 3", 2),
        ("\n\nmodel = ", 3),
        ("[nonsense]", 1),
        ("model = '\0'", 1),
    ],
)
def test_a_bad_file_is_named_with_its_line(text: str, line: int, run: Run, tmp_path: Path) -> None:
    file = tmp_path / ".config" / "perdure" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = run("config")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"perdure: {file}:{line}: ")


def test_without_home_the_users_own_folder_is_known_all_the_same(run: Run) -> None:
    home = pwd.getpwuid(os.getuid()).pw_dir
    for nothing in (None, ""):
        found = json.loads(run("config", "--json", HOME=nothing).stdout)
        assert found["user_file"] == f"{home}/.config/perdure/config.toml"


# Windows


def test_on_windows_it_says_one_sentence_and_exits() -> None:
    # What Windows does not have is not there, and the rest is found before the system has another name.
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, click; sys.platform = 'win32'\n"
            "for name in ('fcntl', 'grp', 'pwd', 'resource', 'termios'): sys.modules[name] = None\n"
            "from perdure.cli import main; main()",
        ],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"perdure: {NOT_NATIVE}\n")
    assert "WSL" in NOT_NATIVE
