"""Opening a store: what is asked for wrongly is said, and a store that is taken away takes nothing more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from perdure import journal
from perdure.errors import NOT_NATIVE, ConfigError, NoStore, StoreDamaged, StoreError, StoreUnavailable
from perdure.events import SessionPinned
from perdure.journal import Journal
from tests.postgres import fresh_database

pytestmark = pytest.mark.anyio


# Arguments


@pytest.mark.parametrize("material", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        *(
            ({"durability": each}, "durability: must be one of power, process, not ")
            for each in ("Power", "none", "", None)
        ),
        ({"kind": "robot"}, "kind: must be one of terminal, server, worker, library, not 'robot'"),
        *(
            ({"lease": each}, "lease: is a number of seconds above 0, not ")
            for each in (0, -1.0, float("nan"), float("inf"), "10")
        ),
    ],
    ids=str,
)
async def test_an_argument_that_is_none_of_those_there_are_is_refused_before_anything_is_made(
    wrong: dict[str, object], why: str, material: str, tmp_path: Path
) -> None:
    url = {
        "memory": "memory:",
        "sqlite": f"sqlite:///{tmp_path}/a/x.db",
        "postgres": "postgresql://nobody@nowhere/x",
    }
    with pytest.raises(ConfigError) as refused:
        await journal.open(url[material], **wrong)  # type: ignore[arg-type]
    assert str(refused.value).startswith(why)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", [None, 5, Path("x.db"), "", "x.db", "sqlite://x.db"], ids=repr)
async def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="is no address of a store: use sqlite:///path"):
        await journal.open(url)


async def test_whoever_only_looks_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(NoStore, match="there is no store yet"):
        await journal.open(f"sqlite:///{tmp_path}/a/x.db", create=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x.db-wal").write_bytes(b"x" * 5000)
    with pytest.raises(StoreDamaged, match="holds what was written last"):
        await journal.open(f"sqlite:///{tmp_path}/x.db", create=False)
    url = fresh_database()
    with pytest.raises(NoStore, match="there is no store yet"):
        await journal.open(url, create=False)
    with psycopg.connect(url) as db:
        assert db.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'perdure_%'").fetchone() == (
            0,
        )
    await (await journal.open(url)).close()
    await (await journal.open(url, create=False)).close()


# PostgreSQL


@pytest.mark.parametrize(
    ("made", "more", "kind", "why"),
    [
        ("", "&options=-csearch_path%3Dfoo", StoreUnavailable, "has no schema to put its tables in"),
        ("CREATE TABLE perdure_store (x int)", "", StoreDamaged, "choose another database"),
        ("CREATE TABLE perdure_store (name int, value text)", "", StoreDamaged, "choose another database"),
        (
            "CREATE TABLE perdure_store (name text, value text); INSERT INTO perdure_store VALUES ('layout', 'big')",
            "",
            StoreDamaged,
            "(layout 'big'); if another program made them",
        ),
        ("CREATE TABLE perdure_sessions (x int)", "", StoreDamaged, "choose another database"),
    ],
)
async def test_a_database_of_somebody_else_is_one_sentence_that_names_it(
    made: str, more: str, kind: type[StoreError], why: str
) -> None:
    url = fresh_database()
    with psycopg.connect(url, autocommit=True) as db:
        for statement in made.split("; ") if made else ():
            db.execute(statement)
    with pytest.raises(kind) as refused:
        await journal.open(url.replace("postgres@", "postgres:hush@") + more)
    said = str(refused.value)
    assert psycopg.conninfo.conninfo_to_dict(url)["dbname"] in said
    assert why in said
    assert "hush" not in said
    assert "\n" not in said


# A file that is taken away


def remove(file: Path) -> None:
    file.unlink()


def rename(file: Path) -> None:
    file.rename(file.with_name("elsewhere.db"))


def replace(file: Path) -> None:
    other = file.with_name("other.db")
    other.write_bytes(file.read_bytes())
    other.replace(file)


def take_its_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("elsewhere"))


async def refused(opened: Journal, session: str) -> None:
    for _ in range(2):
        with pytest.raises(
            StoreUnavailable, match=r"perdure\.db: was removed or replaced while it was open; nothing"
        ):
            await opened.append(session, SessionPinned())


@pytest.mark.parametrize("take", [remove, rename, replace, take_its_folder])
async def test_nothing_is_acknowledged_into_a_file_that_nobody_will_find(
    take: Callable[[Path], None], tmp_path: Path
) -> None:
    file = tmp_path / "home" / "perdure.db"
    async with await journal.open(f"sqlite:///{file}") as opened:
        session = await opened.create()
        take(file)
        await refused(opened, session)


async def test_a_file_that_is_put_back_is_gone_on_with(tmp_path: Path) -> None:
    file, url = tmp_path / "perdure.db", f"sqlite:///{tmp_path}/perdure.db"
    async with await journal.open(url) as opened:
        session = await opened.create()
        rename(file)
        await refused(opened, session)
        (tmp_path / "elsewhere.db").rename(file)
        await opened.append(session, SessionPinned())
    async with await journal.open(url) as again:
        assert (await again.head(session)).upto == 2


# Windows


@pytest.mark.parametrize("line", ["import perdure; perdure.open", "from perdure import journal"])
def test_on_windows_a_program_is_told_what_the_command_line_says(line: str) -> None:
    # What Windows does not have is not there.
    code = f"import sys; sys.modules['fcntl'] = None\n{line}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert done.stderr.splitlines()[-1] == f"ImportError: {NOT_NATIVE}"
