"""The committed store of layout 1: where it is put, what is expected of it, and what else stands in its database.

It was made by `make_layout_1.py` and is never edited. `placed(url)` puts it where a test wants it; `unlike(journal)`
says in sentences what a journal that was opened on it tells otherwise than it should.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import msgspec
import psycopg
from backports import zstd
from psycopg.conninfo import conninfo_to_dict

from perdure.errors import PerdureError
from perdure.journal import Journal, Wanted
from perdure.testing.clock import ManualClock
from tests.postgres import fresh_database

HERE = Path(__file__).with_name("layout-1")
OURS = (
    "perdure_events", "perdure_sessions", "perdure_keys", "perdure_blobs", "perdure_desk", "perdure_store",
    "perdure_processes",
)  # fmt: skip
FOREIGN = ("checkpoints", "checkpoint_writes", "alembic_version")
SHORT = 60
"""Sessions in the short form of the store, for tests that need very many of them: the first ones of each kind."""
LATER = ManualClock(wall=1_800_000_000_000_000)
"""When everything in it that was put off is due."""


def placed(url: str, *, short: bool = False) -> str:
    """A store of layout 1 at this address of an SQLite file; or a new database with one, if it is one of PostgreSQL."""
    if url.startswith("postgres"):
        return fresh_database(more=f"TEMPLATE {conninfo_to_dict(_template(short))['dbname']}")
    path = Path(url.removeprefix("sqlite:///"))
    path.touch(mode=0o600)
    path.write_bytes(sqlite_file(short))
    return url


@cache
def sqlite_file(short: bool = False) -> bytes:
    whole = zstd.decompress((HERE / "sqlite.db.zst").read_bytes())
    if not short:
        return whole
    db = apsw.Connection(":memory:")
    db.deserialize("main", whole[:18] + b"\1\1" + whole[20:])  # there is no write-ahead log in memory
    for table, number in _NUMBERED.items():
        db.execute(f"DELETE FROM {table} WHERE {number[0]} > ?", (SHORT,))
    db.execute("VACUUM")
    return bytes(db.serialize("main"))


_NUMBERED = {
    "perdure_events": ("id >> 32", "stretch"),
    "perdure_sessions": ("stretch", "stretch"),
    "perdure_keys": ("stretch", "stretch"),
}


@cache
def _template(short: bool) -> str:
    """The address of a database that is copied, and that nobody may be connected to."""
    address = fresh_database()
    tables = dict(_postgres_files())
    with psycopg.connect(address) as db:
        db.execute(tables.pop("schema.sql"))
        for name, rows in tables.items():
            with db.cursor().copy(f"COPY {name.removesuffix('.copy')} FROM STDIN") as copy:
                copy.write(rows)
        for table, number in _NUMBERED.items() if short else ():
            db.execute(f"DELETE FROM {table} WHERE {number[1]} > {SHORT}")  # type: ignore[arg-type]
    return address


def _postgres_files() -> list[tuple[str, bytes]]:
    data = zstd.decompress((HERE / "postgres.tar.zst").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(info.name, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]


@cache
def expected(short: bool = False) -> list[dict[str, Any]]:
    """Every session as its rows tell of it, in the order of the list."""
    lines = zstd.decompress((HERE / "expected.json.zst").read_bytes()).splitlines()
    sessions = [json.loads(line) for line in lines]
    return [one for one in sessions if one["stretch"] <= SHORT] if short else sessions


def canonical(events: Sequence[Any]) -> bytes:
    """One form for the same JSON, however it was spaced and ordered."""
    return json.dumps(events, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


# What a journal says


async def unlike(journal: Journal, *, short: bool = False) -> list[str]:
    """What this journal tells otherwise than the store of layout 1 did. Its clock is `LATER`."""
    sessions = expected(short)
    listed = await everything_listed(journal)
    found = []
    if [one.id for one in listed] != [one["id"] for one in sessions]:
        found.append(f"the list has another order, or other sessions: {len(listed)}")
    due = sorted((one["runnable_at"], one["id"]) for one in sessions if one["runnable_at"] is not None)
    if await journal.runnable(limit=len(sessions)) != [id for _, id in due]:
        found.append("others are runnable, or in another order")
    for one in sessions:
        told = await _told(journal, one["id"])
        found += [
            f"{one['id']}: {name} is {told[name]!r}, was {one[name]!r}"
            for name in told
            if told[name] != one[name]
        ]
    return found


async def everything_listed(journal: Journal) -> list[Any]:
    listed: list[Any] = []
    while page := await journal.sessions(Wanted(after=listed[-1].place if listed else None, limit=300)):
        listed += page
    return listed


async def _told(journal: Journal, id: str) -> dict[str, Any]:
    try:
        listed = await journal.head(id)
    except PerdureError as why:
        return {"id": str(why)}
    events = [msgspec.to_builtins(event) async for event in journal.events(id)]
    head = listed.head
    return {
        "upto": listed.upto, "state": head.state, "project": head.project_key, "title": head.title,
        "updated_at": head.updated_at, "runnable_at": head.runnable_at, "events": len(events),
        "digest": sha256(canonical(events)).hexdigest()[:16],
        "totals": {name: n for name, n in sorted(msgspec.to_builtins(head.totals).items()) if n},
    }  # fmt: skip


# What stands in a database, whoever asks


def foreign(url: str) -> list[Any]:
    """All there is of the tables that are not ours: how they were made, their rows, and the very pages or places."""
    if url.startswith("postgres"):
        with psycopg.connect(url) as db:
            return [_foreign_in_postgres(db, table) for table in FOREIGN]
    db = _looking(url)
    try:
        made = f"SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE tbl_name IN {FOREIGN}"
        names = [name for _, name, *_ in db.execute(made)]
        image, size = db.serialize("main"), db.pragma("page_size")
        pages = db.execute(
            f"SELECT name, pageno FROM dbstat WHERE name IN ({_marks(names)}) ORDER BY 1, 2", names
        )
        kept = [(name, number, bytes(image[(number - 1) * size : number * size])) for name, number in pages]
        rows = [db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid").fetchall() for table in FOREIGN]
        return [sorted(db.execute(made).fetchall()), kept, rows]
    finally:
        db.close()


def _foreign_in_postgres(db: psycopg.Connection[Any], table: str) -> list[Any]:
    ask = (
        "SELECT relfilenode, relnatts, reloptions FROM pg_class WHERE relname = %s",
        "SELECT attname, atttypid, attnotnull, attstorage FROM pg_attribute WHERE attrelid = %s::regclass",
        "SELECT indexdef FROM pg_indexes WHERE tablename = %s ORDER BY 1",
    )
    found: list[Any] = [db.execute(sql, (table,)).fetchall() for sql in ask]
    # A row that was written again has another place and another author.
    return [*found, db.execute(f"SELECT ctid, xmin, * FROM {table} ORDER BY ctid").fetchall()]  # type: ignore[arg-type]


def rows(url: str) -> dict[str, list[Any]]:
    """What every table of layout 1 holds in the columns that it had then."""
    sessions = "stretch, id, lineage, head, chain, state, project_key, title, updated_at, folded"
    if url.startswith("postgres"):
        sessions = sessions.replace("lineage", "lineage, lineage_upto")
    shown = {"perdure_sessions": sessions}
    return {table: query(url, f"SELECT {shown.get(table, '*')} FROM {table} ORDER BY 1, 2") for table in OURS}


def query(url: str, sql: str) -> list[Any]:
    if url.startswith("postgres"):
        with psycopg.connect(url) as db:
            return db.execute(sql).fetchall()  # type: ignore[arg-type]
    db = _looking(url)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def execute(url: str, sql: str) -> None:
    """Change something, as another program would."""
    if url.startswith("postgres"):
        with psycopg.connect(url) as db:
            db.execute(sql)  # type: ignore[arg-type]
        return
    db = apsw.Connection(url.removeprefix("sqlite:///"))
    db.execute(sql)
    db.close()


def _looking(url: str) -> apsw.Connection:
    db = apsw.Connection(url.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READWRITE)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # whoever opens it next finds its log as it was left
    return db


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
