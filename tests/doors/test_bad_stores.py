"""Stores that cannot be used, as people meet them: one sentence that names the file, and nothing is changed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import perdure
from tests.doors.conftest import Run

OPENING = [
    ("sessions", "list"),
    ("sessions", "show", "abcdef"),
    ("sessions", "prune", "--older-than", "1", "--yes"),
    ("sessions", "restore", "abcdef"),
    ("doctor", "--json"),
    ("backup", "copy.db"),
]


def no_database(store: Path) -> None:
    store.write_text("Milk, eggs, bread.\n" * 100)


def cut_short(store: Path) -> None:
    os.truncate(store, 9000)


def from_a_newer_version(store: Path) -> None:
    db = apsw.Connection(os.fspath(store))
    db.execute("UPDATE perdure_store SET value = 99 WHERE name = 'layout'")
    db.close()


def a_folder(store: Path) -> None:
    store.unlink()
    store.mkdir()


def a_pipe(store: Path) -> None:
    store.unlink()
    os.mkfifo(store)


BAD = [
    (
        no_database,
        "is not an SQLite database; nothing was changed; if it was one, run `perdure doctor --salvage",
    ),
    (cut_short, "is damaged (database disk image is malformed); run `perdure doctor --salvage FILE`"),
    (from_a_newer_version, "has layout 99, this Perdure knows 2; upgrade Perdure to open it"),
    (a_folder, "is a folder; name the file the store should be in"),
    (a_pipe, "is no ordinary file; name the file the store should be in"),
]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@pytest.mark.parametrize("arguments", OPENING, ids=" ".join)
@pytest.mark.parametrize(("spoil", "why"), BAD, ids=lambda each: getattr(each, "__name__", ""))
def test_it_is_refused_with_one_sentence_and_left_as_it_is(
    spoil: Callable[[Path], None], why: str, arguments: tuple[str, ...], run: Run, store: Path
) -> None:
    spoil(store)
    before = contents(store.parent)
    done = run("--db", f"sqlite:///{store}", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("perdure: ")
    assert f"{store}: {why}" in done.stderr
    assert done.stderr.count("\n") == 1
    after = contents(store.parent)
    assert {name: after[name] for name in before} == before
    # What SQLite and the queue of writers made while looking; never a copy, and no second store.
    assert after.keys() - before.keys() <= {store.name + ending for ending in (".lock", "-wal", "-shm")}


def test_what_is_intact_in_a_damaged_one_is_saved_and_the_damaged_one_only_read(
    run: Run, store: Path
) -> None:
    before = store.read_bytes()
    store.write_bytes(before[:4096] + b"\xff" * 4096 + before[8192:])
    damaged = store.read_bytes()
    done = run("--db", f"sqlite:///{store}", "doctor", "--salvage", "saved 구조.db")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        "saved 구조.db: 4 sessions, 8 events, 0 contents saved",
    )
    assert contents(store.parent).keys() == {store.name, "saved 구조.db"}
    assert store.read_bytes() == damaged
    listed = run("--db", f"sqlite:///{store.parent}/saved 구조.db", "sessions", "list")
    assert listed.stdout.count("\n") == 4
    again = run("--db", f"sqlite:///{store}", "doctor", "--salvage", "saved 구조.db")
    assert again.returncode == 1
    assert again.stderr == f"perdure: {store.parent}/saved 구조.db: is there already; name a new file\n"


def test_of_an_empty_one_there_is_nothing_to_save(run: Run, project: Path) -> None:
    asyncio.run(made(f"sqlite:///{project}/empty.db"))
    done = run("--db", f"sqlite:///{project}/empty.db", "doctor", "--salvage", "saved.db")
    assert (done.returncode, done.stdout) == (1, "")
    why = "holds no session that could be found; saved.db was not made"
    assert done.stderr.splitlines()[-1] == f"perdure: {project}/empty.db: {why}"
    assert not (project / "saved.db").exists()


async def made(url: str) -> None:
    async with await perdure.open(url):
        pass


@pytest.mark.parametrize(
    ("spoil", "why"), [(a_folder, "is a folder; name the damaged file"), (Path.unlink, "is not there; name")]
)
def test_what_is_no_file_cannot_be_salvaged(
    spoil: Callable[[Path], None], why: str, run: Run, store: Path
) -> None:
    spoil(store)
    done = run("--db", f"sqlite:///{store}", "doctor", "--salvage", "saved.db")
    assert done.returncode == 1
    assert done.stderr.startswith(f"perdure: {store}: {why}")
    assert not (store.parent / "saved.db").exists()


@pytest.mark.parametrize(
    ("url", "code", "why"),
    [
        ("mysql://ada:hush@here/x", 2, "must be sqlite:///PATH, postgresql://... or memory:"),
        ("sqlite:///", 2, "must be sqlite:///PATH, postgresql://... or memory:"),
        ("postgresql://ada:hush@localhost:1/x", 1, "check that the server runs"),
        ("postgresql://ada:hush@[::bad", 1, "the address cannot be read"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_sentence(url: str, code: int, why: str, run: Run) -> None:
    done = run("--db", url, "sessions", "list")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("perdure: ")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    assert "hush" not in done.stderr


def test_without_the_driver_of_postgresql_it_says_how_to_get_it() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.modules['psycopg'] = None; from perdure.cli import main; main()",
            *("--db", "postgresql://localhost/x", "sessions", "list"),
        ],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("perdure: postgresql: needs a driver (")
    assert '".[postgres]" in a clone' in done.stderr


def test_an_empty_file_becomes_a_store(run: Run, project: Path) -> None:
    (project / "new.db").touch()
    done = run("--db", "sqlite:///new.db", "sessions", "list")
    assert (done.returncode, done.stdout, done.stderr) == (0, "no sessions yet\n", "")
    assert (project / "new.db").read_bytes().startswith(b"SQLite format 3")


# Permissions


def test_a_store_in_a_read_only_folder_is_refused(bound: Run, store: Path) -> None:
    store.parent.chmod(0o500)
    before = contents(store.parent)
    for arguments in OPENING:
        done = bound("--db", f"sqlite:///{store}", *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(
            f"perdure: {store}.lock: cannot be opened (Permission denied); check that"
        )
    assert contents(store.parent) == before


def test_a_read_only_store_is_refused(bound: Run, store: Path) -> None:
    store.chmod(0o400)
    done = bound("--db", f"sqlite:///{store}", "sessions", "list")
    assert done.returncode == 1
    assert done.stderr.startswith(f"perdure: {store}: cannot be opened (Permission denied); check that")


def test_what_is_in_a_read_only_folder_can_still_be_saved_elsewhere(
    bound: Run, store: Path, tmp_path: Path
) -> None:
    store.parent.chmod(0o500)
    saved = tmp_path / "saved.db"
    done = bound("--db", f"sqlite:///{store}", "doctor", "--salvage", str(saved))
    assert (done.returncode, done.stdout) == (0, f"{saved}: 4 sessions, 8 events, 0 contents saved\n")
    assert contents(store.parent).keys() == {store.name}


def test_a_backup_that_cannot_be_written_names_its_file(bound: Run, store: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    done = bound("--db", f"sqlite:///{store}", "backup", f"{closed}/copy.db")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f"perdure: {closed}/copy.db: cannot be written: Permission denied\n")


def test_a_home_that_cannot_be_looked_into_is_named(bound: Run, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    done = bound("sessions", "list", PERDURE_HOME=f"{closed}/home")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"perdure: {closed}/home/perdure.db: cannot be opened (Permission denied)")


def test_a_log_that_cannot_be_written_is_told_and_costs_nothing(
    bound: Run, store: Path, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    store.rename(tmp_path / "old.db")
    prune = ("sessions", "prune", "--older-than", "0.0000001", "--yes")
    done = bound("--db", f"sqlite:///{tmp_path}/old.db", *prune, PERDURE_HOME=str(closed))
    assert done.returncode == 0
    assert "4 sessions moved to the trash" in done.stdout
    assert f"perdure: cannot write {closed}/logs/perdure.log: Permission denied\n" in done.stderr


def test_settings_that_cannot_be_read_are_named(bound: Run, tmp_path: Path) -> None:
    file = tmp_path / ".config" / "perdure" / "config.toml"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o000)
    done = bound("config")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"perdure: {file}: cannot be read: Permission denied\n"


def test_what_is_made_is_private(run: Run, store: Path, tmp_path: Path) -> None:
    db = ("--db", f"sqlite:///{store}", "--home", f"{tmp_path}/own/home")
    run(*db, "sessions", "prune", "--older-than", "0.0000001", "--yes")
    run(*db, "backup", f"{tmp_path}/copy.db")
    made = [tmp_path / "own", *(tmp_path / "own").rglob("*"), tmp_path / "copy.db"]
    assert len(made) == 5
    modes = {str(file): oct(file.stat().st_mode & 0o777) for file in made}
    assert modes == {str(file): "0o700" if file.is_dir() else "0o600" for file in made}
