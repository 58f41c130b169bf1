"""Where the output goes, and what it looks like there: programs, pipes, terminals of every kind, and nowhere."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import apsw
import pexpect
import pytest

from tests.doors.conftest import PERDURE, TITLES, Run
from tests.golden.layout_1 import expected, placed
from tools.docs import commands

ID = "abcdef00000000000001"
SPEAKING = [
    (),
    ("--help",),
    ("--version",),
    ("config",),
    ("config", "--json"),
    ("sessions", "list"),
    ("sessions", "list", "--json"),
    ("sessions", "show", ID),
    ("sessions", "show", ID, "--json"),
    ("sessions", "prune", "--older-than", "1"),
    ("doctor",),
    ("backup", "copy.db"),
]


def told(store: Path, arguments: tuple[str, ...], redirected: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", PERDURE, "--db", f"sqlite:///{store}", *arguments],
        cwd=store.parent,
        env={"HOME": str(store.parent), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def is_sound(store: Path) -> bool:
    """A file of ours that was opened in place of the output would have been written into."""
    db = apsw.Connection(os.fspath(store))
    found = db.execute("PRAGMA integrity_check").fetchall()
    db.close()
    return found == [("ok",)]


# Nowhere


@pytest.mark.parametrize("arguments", SPEAKING, ids=" ".join)
def test_without_a_standard_output_it_does_its_work_all_the_same(
    arguments: tuple[str, ...], store: Path
) -> None:
    done = told(store, arguments, ">&-")
    assert done.returncode == 0
    assert done.stderr.replace(f"copying sqlite:///{store}\n", "") == ""
    assert is_sound(store)
    assert (store.parent / "copy.db").exists() == (arguments[:1] == ("backup",))


def test_without_any_output_it_fails_as_it_should(store: Path) -> None:
    assert told(store, ("sessions", "list"), ">&- 2>&-").returncode == 0
    assert told(store, ("sessions", "show", "nobody"), ">&- 2>&-").returncode == 3
    assert told(store, ("confg",), ">&- 2>&-").returncode == 2
    assert is_sound(store)


@pytest.mark.parametrize("arguments", SPEAKING, ids=" ".join)
def test_a_reader_that_has_gone_is_no_error_to_speak_of(arguments: tuple[str, ...], store: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(
            [PERDURE, "--db", f"sqlite:///{store}", *arguments],
            cwd=store.parent,
            env={"HOME": str(store.parent), "PATH": os.environ["PATH"]},
            stdout=gone,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
    assert done.stderr.replace(f"copying sqlite:///{store}\n", "") == ""
    assert done.returncode == 1


def test_a_first_line_is_all_that_head_wants(store: Path) -> None:
    done = told(store, ("sessions", "list"), "| head -1")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


@pytest.mark.parametrize(
    "arguments", [("config",), ("sessions", "list", "--json"), ("doctor",)], ids=" ".join
)
def test_a_full_disk_under_the_output_is_one_sentence(arguments: tuple[str, ...], store: Path) -> None:
    done = told(store, arguments, ">/dev/full")
    assert done.returncode == 1
    assert done.stderr == "perdure: the output: No space left on device\n"


# A program


def test_every_command_with_json_is_tried_here() -> None:
    able = {c.command_path for c in commands() if any("--json" in p.opts for p in c.command.params)}
    assert able == {
        "perdure config", "perdure doctor", "perdure sessions list", "perdure sessions show",
        "perdure run",  # in test_run.py
    }  # fmt: skip


@pytest.mark.parametrize("arguments", [a for a in SPEAKING if "--json" in a], ids=" ".join)
def test_json_is_one_value_and_the_same_each_time(arguments: tuple[str, ...], run: Run, store: Path) -> None:
    first, second = (run("--db", f"sqlite:///{store}", *arguments) for _ in range(2))
    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout)
    assert first.stdout == second.stdout


def test_a_session_has_the_same_names_wherever_it_is_told_of(run: Run, store: Path) -> None:
    listed = json.loads(run("--db", f"sqlite:///{store}", "sessions", "list", "--json").stdout)
    shown = json.loads(run("--db", f"sqlite:///{store}", "sessions", "show", ID, "--json").stdout)
    assert {one["id"]: one["title"] for one in listed} == TITLES
    assert shown["session"] in listed
    assert shown["upto"] == 2
    assert [event[4]["kind"] for event in shown["events"]] == ["SessionCreated", "MessageSent"]
    # A program that was written against these names goes on working: names are added and never taken away.
    assert set(shown["session"]) >= {
        "id", "state", "title", "named_by", "created_at", "updated_at", "last_message_at", "workspace",
        "project_key", "parent", "model", "tags", "pinned", "archived", "messages", "facts", "owner", "totals",
        "standing", "upto",
    }  # fmt: skip
    assert shown["session"]["created_at"].endswith("+00:00")


def test_a_finding_is_one_object_a_line(run: Run, store: Path) -> None:
    store.chmod(0o644)
    done = run("--db", f"sqlite:///{store}", "doctor", "--json")
    (finding,) = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, finding["kind"], finding["session"]) == (0, "note", "")
    assert finding["what"] == f"{store} can be read by others; run `chmod 600 '{store}'`"


def test_a_salvage_is_one_object(run: Run, store: Path) -> None:
    done = run("--db", f"sqlite:///{store}", "doctor", "--salvage", "saved.db", "--json")
    assert json.loads(done.stdout) == {"sessions": 4, "events": 8, "blobs": 0, "missing": [], "notes": []}


def test_an_empty_store_is_an_empty_list(run: Run) -> None:
    assert run("sessions", "list", "--json").stdout == "[]\n"


# A terminal


@pytest.mark.parametrize(
    "environ",
    [
        {"LANG": "C"},
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "xx_YY.nonsense"},
    ],
    ids=str,
)
def test_whatever_the_locale_is_what_cannot_be_shown_is_escaped(
    environ: dict[str, str], run: Run, store: Path
) -> None:
    done = run("--db", f"sqlite:///{store}", "sessions", "list", **environ)
    assert (done.returncode, done.stderr) == (0, "")
    escaped = "안녕 🦆 세계".encode("ascii", "backslashreplace").decode()
    assert "안녕 🦆 세계" in done.stdout or escaped in done.stdout
    backup = run("--db", f"sqlite:///{store}", "backup", "사본 🦆.db", **environ)
    assert backup.returncode == 0
    assert (store.parent / "사본 🦆.db").is_file()


def test_what_models_and_people_wrote_does_not_reach_the_terminal_as_commands(run: Run, store: Path) -> None:
    for arguments in [("sessions", "list"), ("sessions", "show", "tttttt"), ("sessions", "show", "\x1b[2J")]:
        done = run("--db", f"sqlite:///{store}", *arguments)
        assert "\x1b" not in done.stdout + done.stderr
        assert "\\x1b[" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "environ", [{"NO_COLOR": "1", "TERM": "xterm-256color"}, {"TERM": "dumb"}, {}], ids=str
)
@pytest.mark.parametrize(
    "arguments", [(), ("sessions", "list"), ("sessions", "show", "nobody")], ids=" ".join
)
def test_a_terminal_that_wants_no_colour_gets_none(
    arguments: tuple[str, ...], environ: dict[str, str], store: Path
) -> None:
    shown = _in_a_terminal(store, arguments, environ)
    assert b"\x1b" not in shown
    assert shown.strip()


def _in_a_terminal(store: Path, arguments: tuple[str, ...], environ: dict[str, str]) -> bytes:
    child = pexpect.spawn(
        str(PERDURE),
        ["--db", f"sqlite:///{store}", *arguments],
        env={"HOME": str(store.parent), "PATH": os.environ["PATH"]} | environ,
        cwd=str(store.parent),
        timeout=60,
    )
    shown: bytes = child.read()
    child.close()
    return shown


def test_an_upgrade_is_told_beside_the_result(run: Run, project: Path) -> None:
    url = placed(f"sqlite:///{project}/old.db", short=True)
    done = run("--db", url, "sessions", "list", "--json")
    assert done.returncode == 0
    assert [one["id"] for one in json.loads(done.stdout)] == [one["id"] for one in expected(short=True)][:50]
    (backup,) = project.glob("old.db.layout-1-*.backup")
    told = f"perdure: upgrading {project}/old.db from layout 1; a backup is at {backup}\n"
    assert done.stderr == told
    assert backup.stat().st_mode & 0o777 == 0o600
    assert run("--db", url, "doctor").stderr == ""
    # Going back, as the page about it says.
    backup.replace(project / "old.db")
    assert run("--db", url, "sessions", "list", "--json").stdout == done.stdout
