"""What people type for a session, and what they are told of it."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from tests.doors.conftest import Run

ONE, TWO, THREE = "abcdef00000000000001", "abcdef00000000000002", "zyxwvt00000000000001"


@pytest.mark.parametrize("name", [ONE, ONE.upper(), "안녕 🦆 세계"])
def test_a_session_answers_to_its_id_in_any_case_and_to_its_title(name: str, run: Run, store: Path) -> None:
    done = run("--db", f"sqlite:///{store}", "sessions", "show", name)
    assert done.returncode == 0
    assert f"id               {ONE}\n" in done.stdout
    assert "title            안녕 🦆 세계\n" in done.stdout


def test_six_characters_of_an_id_are_enough(run: Run, store: Path) -> None:
    done = run("--db", f"sqlite:///{store}", "sessions", "show", "zyxwvt")
    assert done.returncode == 0
    assert f"id               {THREE}\n" in done.stdout


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("abcdef", f"several sessions match: {ONE}, {TWO}"),
        ("twin", f"several sessions match: {THREE}, {TWO}"),
        ("abcde", f"a prefix needs at least 6 characters: {ONE}, {TWO}"),
        ("zyx", f"a prefix needs at least 6 characters: {THREE}"),
        ("zyxwvtzzz", f"not found; `perdure sessions list` shows them all; near it: {THREE}"),
        ("nobody", "not found; `perdure sessions list` shows them all"),
        ("안녕", "not found; `perdure sessions list` shows them all"),
        ("x" * 5000, "not found; `perdure sessions list` shows them all"),
        ("%", "not found; `perdure sessions list` shows them all"),
    ],
)
def test_a_name_that_is_not_one_sessions_name_is_exit_code_3(
    name: str, why: str, run: Run, store: Path
) -> None:
    done = run("--db", f"sqlite:///{store}", "sessions", "show", name)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"perdure: session {name}: {why}\n"


@pytest.mark.parametrize("command", [("sessions", "restore"), ("doctor",)], ids=" ".join)
def test_every_command_takes_names_alike(command: tuple[str, ...], run: Run, store: Path) -> None:
    done = run("--db", f"sqlite:///{store}", *command, "abcdef")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"perdure: session abcdef: several sessions match: {ONE}, {TWO}\n"


@pytest.mark.parametrize("name", ["", "  "])
def test_no_name_is_no_session(name: str, run: Run, store: Path) -> None:
    done = run("--db", f"sqlite:///{store}", "sessions", "show", name)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"perdure: session {name!r}: is no name\n"


def test_a_session_that_is_damaged_says_so_however_little_of_it_is_shown(run: Run, store: Path) -> None:
    show = ("--db", f"sqlite:///{store}", "sessions", "show", ONE, "--limit", "1")
    assert run(*show).returncode == 0
    db = apsw.Connection(str(store))
    db.execute("UPDATE perdure_events SET checksum = 5 WHERE id = (1 << 32) + 1")
    db.close()
    done, told = run(*show), json.loads(run(*show, "--json").stdout)
    assert done.returncode == 1
    assert "SessionCreated" not in done.stdout
    why = "1 of this session's events cannot be read, or were changed"
    assert done.stderr == f"perdure: {why}; perdure doctor {ONE} says which\n"
    assert (len(told["events"]), told["unreadable"]) == (1, 1)


def test_what_is_not_in_the_trash_cannot_be_restored(run: Run, store: Path) -> None:
    done = run("--db", f"sqlite:///{store}", "sessions", "restore", ONE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"perdure: session {ONE}: ")


def test_sessions_go_to_the_trash_and_come_back(run: Run, store: Path) -> None:
    db = ("--db", f"sqlite:///{store}")
    old = ("sessions", "prune", "--older-than", "0.0000001")
    assert "4 sessions would be moved; --yes does it\n" in run(*db, *old).stdout
    assert "4 sessions moved to the trash" in run(*db, *old, "--yes").stdout
    assert run(*db, "sessions", "list", "--state", "active").stdout == "4 hidden by the filter\n"
    assert run(*db, "sessions", "restore", "zyxwvt").stdout == f"{THREE} is back\n"
    logged = (store.parents[1] / ".local/share/perdure/logs/perdure.log").read_text().splitlines()
    assert [json.loads(line)["event"] for line in logged] == ["pruned"] * 4 + ["restored"]
    back, hidden = run(*db, "sessions", "list", "--state", "active").stdout.splitlines()
    assert back.startswith(THREE)
    assert hidden == "3 hidden by the filter"


def test_a_list_says_how_many_it_leaves_out(run: Run, store: Path) -> None:
    done = run("--db", f"sqlite:///{store}", "sessions", "list", "--limit", "1")
    assert done.stdout.splitlines()[1:] == ["3 more; --limit 4 shows them"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions", "list", "--limit", "0"),
        ("sessions", "list", "--limit", "many"),
        ("sessions", "list", "--state", "asleep"),
        ("sessions", "show"),
        ("sessions", "show", ONE, "--before", "0"),
        ("sessions", "prune"),
        ("sessions", "prune", "--older-than", "nan"),
        ("sessions", "prune", "--older-than", "-1"),
        ("sessions", "forget", ONE),
        ("doctor", ONE, "--salvage", "saved.db"),
        ("backup",),
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_exit_code_2_and_does_nothing(
    arguments: tuple[str, ...], run: Run, store: Path
) -> None:
    before = store.read_bytes()
    done = run("--db", f"sqlite:///{store}", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error: " in done.stderr
    assert store.read_bytes() == before
