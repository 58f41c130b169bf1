"""Makes `layout-1/`: a store of layout 1 with a thousand sessions, on SQLite and on PostgreSQL. Run by hand, once:

    .venv/bin/python -m tests.golden.make_layout_1

What it wrote is committed and is not made again: it stands for the stores that people have. The sessions are lived
through today's journal, for a fact is stored now as it was then; the rows are then laid out as layout 1 lays them out.
What is expected of them (`expected.json.zst`) is read from those rows with nothing but `sqlite3`, `zstd` and `json`.
"""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import psycopg
from backports import zstd

from perdure import events as e
from perdure.journal import Journal, blob_of
from perdure.journal.sqlite import SqliteStore
from perdure.journal.store import Append
from perdure.testing.clock import ManualClock
from perdure.testing.journals import replay
from perdure.testing.lively import lawful
from tests.golden.layout_1 import FOREIGN, HERE, OURS, canonical
from tests.postgres import fresh_database

SESSIONS = 1000
WORDS = (
    "Why does the build fail?", "शुभ प्रभात, क्या हाल है?", "日本語のテストを書いて", "צריך עזרה עם הקוד", "مرحبا، أصلح هذا",
    "Почему тесты красные?", "한국어로 설명해 줘", "👩‍👩‍👧 family, 🇩🇪 flag, e\u0301", "ขอบคุณมาก", "naïve café – “quotes”",
    "Ξεκίνα από την αρχή", "'; DROP TABLE perdure_sessions; --",
)  # fmt: skip
SCHEMA = Path("src/perdure/journal/schema")
FOREIGN_SCHEMA = (
    "CREATE TABLE checkpoints (thread text NOT NULL, id text NOT NULL, parent text, body {blob} NOT NULL, "
    "PRIMARY KEY (thread, id))",
    "CREATE INDEX checkpoints_by_parent ON checkpoints (parent)",
    "CREATE TABLE checkpoint_writes (id text NOT NULL, task text NOT NULL, place integer NOT NULL, body {blob})",
    "CREATE TABLE alembic_version (version_num varchar(32) NOT NULL PRIMARY KEY)",
)


class Pen:
    """Writes into one journal as people and as owners do, and remembers what must come of it."""

    def __init__(self, journal: Journal, clock: ManualClock, chance: Random) -> None:
        self.journal, self.clock, self.chance = journal, clock, chance
        self.known: dict[str, dict[str, object]] = {}
        self.resting: list[str] = []
        """Sessions in which nothing is open, so that they can be forked."""

    def id(self) -> str:
        return "".join(self.chance.choices("0123456789abcdefghjkmnpqrstvwxyz", k=20))

    async def say(
        self, id: str, *facts: e.AnyFact, key: str | None = None, blobs: tuple[bytes, ...] = ()
    ) -> int:
        if (
            self.chance.random() < 0.7
        ):  # sometimes the clock stands still, and equal times are to be put in order
            self.clock.advance(self.chance.randrange(1, 4000) / 7)
        return (await self.journal.append(id, *facts, key=key, blobs=blobs)).first

    async def own(self, id: str, *facts: e.AnyFact) -> int:
        self.clock.advance(1.25)
        epoch = (await self.journal.head(id)).head.standing.epoch
        return (await self.journal.submit(Append(id, facts, epoch=epoch))).first

    async def begin(self, **more: Any) -> str:
        id = self.id()
        born = e.SessionCreated(
            id, workspace="/home/å/code", project_key=self.chance.choice(["", "p", "q"]), **more
        )
        self.clock.advance(self.chance.choice([0, 0.5, 3600]))
        return await self.journal.create(born)

    async def taken(self, id: str) -> str:
        owner = e.OwnerChanged(
            epoch=1, process="gone0", owner_kind="worker", name="w1", host="h", pid=7, version="0.1"
        )
        await self.say(id, owner)
        return id

    async def asked(self, id: str, text: str) -> int:
        turn = await self.say(id, message(text))
        await self.taken(id)
        return await self.own(id, e.TurnStarted(takes=(turn,)))


def message(text: str, *more: e.Part, **rest: Any) -> e.MessageSent:
    return e.MessageSent(parts=(e.Text(text), *more), **rest)


# Each lives one session and returns its id.


async def unanswered(pen: Pen, text: str) -> str:
    id = await pen.begin()
    await pen.say(id, message(text))
    pen.known[id] = {"title": text, "state": "active", "runnable_at": pen.clock.wall(), "events": 2}
    return id


async def noted(pen: Pen, text: str) -> str:
    id = await pen.begin(title="noted")
    await pen.say(id, message(text, role="note"), message(text, run=False), key="both")
    pen.known[id] = {"title": "noted", "runnable_at": None, "events": 3}
    pen.resting.append(id)
    return id


async def answered(pen: Pen, text: str) -> str:
    """With pieces, a tool and its output; of some, the pieces are gone again."""
    id = await pen.begin(model="scripted")
    turn = await pen.asked(id, text)
    call = await pen.own(id, e.ModelCalled(turn=turn, model="scripted"))
    for number in (1, 2):
        await pen.own(id, e.ModelSpoke(call, number, text))
    use = e.ToolCall("c1", "shell", '{"x": "ü"}')
    spent = e.Usage(input=pen.chance.randrange(9000), output=40, cache_read=7, cache_write=2, reasoning=5)
    await pen.own(id, e.ModelReplied(call, (e.Text(text * 2), use), spent, "tool_use", pieces=2))
    tool = await pen.own(id, e.ToolStarted(turn, "c1", "shell", '{"x": "ü"}'))
    printed = f"{text} \ud83d\0\u2028\n" * pen.chance.choice([1, 1, 300])
    await pen.own(id, e.ToolFinished(turn, "c1", "ok", (e.Text(printed),), tool, exit_code=0, micros=12))
    last = await pen.own(id, e.ModelCalled(turn=turn, model="scripted"))
    await pen.own(id, e.ModelReplied(last, (e.Text("done"),), e.Usage(input=3, output=1), "stop"))
    await pen.own(id, e.TurnEnded(turn, "completed"))
    await pen.say(id, e.OwnerChanged(epoch=2))
    gone = 0
    if pen.chance.random() < 0.5:
        stored = await pen.journal.read_store(pen.journal.store.session, id)
        assert stored is not None
        await pen.journal.write(pen.journal.store.drop, stored.stretch, [call + 1, call + 2])
        gone = 2
    totals = {"input": spent.input + 3, "output": 41, "cache_read": 7, "cache_write": 2, "reasoning": 5}
    totals |= {"turns": 1, "calls": 2, "tools": 1}
    pen.known[id] = {"title": text, "runnable_at": None, "events": 14 - gone, "totals": totals}
    pen.resting.append(id)
    return id


async def left_behind(pen: Pen, text: str) -> str:
    """Its owner was killed in the middle of a call."""
    id = await pen.begin()
    asked = pen.clock.wall()
    turn = await pen.asked(id, text)
    call = await pen.own(id, e.ModelCalled(turn=turn))
    await pen.own(id, e.ModelSpoke(call, 1, text))
    head = (await pen.journal.head(id)).head
    assert asked <= head.turn_due <= head.turn_since
    pen.known[id] = {"title": text, "runnable_at": head.turn_due, "events": 6}
    return id


async def to_be_retried(pen: Pen, text: str) -> str:
    id = await pen.begin()
    turn = await pen.asked(id, text)
    call = await pen.own(id, e.ModelCalled(turn=turn))
    again = pen.clock.wall() + 30_000_000
    await pen.own(id, e.ModelLost(call, "overloaded", error="503", usage=e.Usage(input=11), retry_at=again))
    pen.known[id] = {"title": text, "runnable_at": again}
    return id


async def waiting(pen: Pen, text: str) -> str:
    """For a person's yes."""
    id = await pen.begin()
    turn = await pen.asked(id, text)
    call = await pen.own(id, e.ModelCalled(turn=turn))
    await pen.own(id, e.ModelReplied(call, (e.ToolCall("c1", "shell", "{}"),), pieces=0))
    await pen.own(id, e.ApprovalAsked(turn, "c1", "shell", text))
    pen.known[id] = {"title": text, "runnable_at": None}
    return id


async def named(pen: Pen, text: str) -> str:
    id = await pen.begin()
    await pen.say(id, message(text), key=f"first-{text[:3]}")
    await pen.say(id, e.SessionRenamed(f"{text[:20]} *"))
    await pen.say(id, e.MessageWithdrawn(2))
    await pen.say(
        id, pen.chance.choice([e.SessionPinned(), e.SessionTagged(("a", text)), e.SessionArchived()])
    )
    pen.known[id] = {"title": f"{text[:20]} *", "runnable_at": None, "events": 5}
    pen.resting.append(id)
    return id


async def over(pen: Pen, text: str) -> str:
    id = await unanswered(pen, text)
    fact, state = pen.chance.choice([(e.SessionEnded("done"), "ended"), (e.SessionTrashed("old"), "trashed")])
    await pen.say(id, fact)
    pen.known[id] = {"title": text, "runnable_at": None, "state": state, "events": 3}
    return id


async def with_content(pen: Pen, text: str) -> str:
    id = await pen.begin()
    content = text.encode() * pen.chance.randrange(1, 400)
    blob = blob_of(content, name="ü.txt")
    await pen.say(id, message(text, blob, attachments=(e.Attachment("ü.txt", blob),)), blobs=(content,))
    pen.known[id] = {"title": text, "runnable_at": pen.clock.wall()}
    return id


async def forked(pen: Pen, text: str) -> str:
    parent = pen.chance.choice(pen.resting)
    id = await pen.journal.fork(parent, title=pen.chance.choice(["", "a fork"]))
    last = await pen.say(id, message(text))
    pen.known[id] = {"runnable_at": pen.clock.wall(), "upto": last, "totals": {}}
    if (await pen.journal.head(id)).head.standing.pending[0].seq == last:
        return id
    del pen.known[id]["runnable_at"]  # its parent had a message that waits, and so has it
    return id


async def lively(pen: Pen, _: str) -> str:
    """Anything that is lawful; what it speaks of is there."""
    length = pen.chance.choice([5, 10, 10, 20, 20, 40, 150])
    events = lawful(pen.chance.randrange(1 << 30), length, session=pen.id())
    erased = (n for n, event in enumerate(events) if isinstance(event.fact, e.RecordErased))
    events = events[: next(erased, len(events))]  # nothing was erased in truth
    spoken = [msgspec.structs.replace(event, fact=_with_real(event.fact)) for event in events]
    return await replay(pen.journal, spoken, together=pen.chance.randrange(1, 5))


CONTENTS = {"ab": b"one " * 9, "cd": b"two", "ef": b"three", "12": b"four", "34": b"five"}
"""What `lawful` speaks of, by the beginnings of the hashes that it invents."""


async def stored_contents(pen: Pen) -> str:
    id = await pen.begin()
    await pen.say(id, message(WORDS[0]), blobs=tuple(CONTENTS.values()))
    pen.known[id] = {"title": WORDS[0], "runnable_at": pen.clock.wall(), "events": 2}
    return id


def _with_real(fact: Any) -> Any:
    def real(value: Any) -> Any:
        if isinstance(value, dict):
            if {"hash", "size"} <= value.keys():
                content = CONTENTS[value["hash"][:2]]
                value = value | {"hash": sha256(content).hexdigest(), "size": len(content)}
            return {name: real(each) for name, each in value.items()}
        return [real(each) for each in value] if isinstance(value, list | tuple) else value

    return msgspec.convert(real(msgspec.to_builtins(fact)), type(fact))


RECIPES: list[tuple[Callable[[Pen, str], Any], int]] = [
    (lively, 8), (unanswered, 14), (noted, 8), (answered, 14), (left_behind, 7), (to_be_retried, 6), (waiting, 6),
    (named, 12), (over, 8), (with_content, 8), (forked, 9),
]  # fmt: skip


async def live(path: Path) -> dict[str, dict[str, object]]:
    chance, clock = Random(1), ManualClock()
    async with Journal(
        SqliteStore(path, clock, durability="process"), clock, path.parent / "processes"
    ) as journal:
        pen = Pen(journal, clock, chance)
        recipes, weights = zip(*RECIPES, strict=True)
        await stored_contents(pen)
        for recipe in [*recipes, *chance.choices(recipes, weights, k=SESSIONS - len(recipes) - 1)]:
            clock.advance(0 if chance.random() < 0.3 else chance.randrange(7200))
            await recipe(pen, chance.choice(WORDS))
        for id in chance.sample(pen.resting, 20):  # so that the newest are not the last
            head = (await journal.head(id)).head
            if head.state == "active" and not head.standing.pending:
                await pen.say(id, message("one more thing"))
                pen.known.pop(id, None)
        await journal.put_on_desk("draft", pen.resting[0], "żółć, to be continued".encode())
        await journal.put_on_desk("read", pen.resting[1], b"4")
    return pen.known


def lay_out_as_1(now: Path, target: Path) -> None:
    """The rows of a store of today in the tables of layout 1, with what others keep beside them."""
    db = sqlite3.connect(target, isolation_level=None)
    db.execute("PRAGMA page_size = 8192")
    for statement in (SCHEMA / "sqlite/0001.sql").read_text("utf-8").split(";\n"):
        db.execute(statement)
    db.execute("CREATE TABLE perdure_store (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
    db.execute("ATTACH ? AS now", (str(now),))
    for table in OURS:
        names = ", ".join(name for _, name, *_ in db.execute(f"PRAGMA main.table_info({table})"))
        db.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM now.{table} ORDER BY 1, 2")
    # Whoever stands first in the list today need not have its place written again with each fact.
    db.execute(
        "UPDATE perdure_sessions SET updated_at = json_extract(CAST(folded AS TEXT), '$[1].updated_at')"
    )
    db.execute("DELETE FROM perdure_store")
    db.execute("INSERT INTO perdure_store VALUES ('layout', '1'), ('writes', '1')")
    db.execute("DELETE FROM perdure_processes")
    gone = ("gone0", '["worker","w1"]', "h", "an earlier start", "/nowhere/gone0.lock", 1_000_000)
    db.execute("INSERT INTO perdure_processes VALUES (?, ?, ?, ?, ?, ?)", gone)
    for statement in FOREIGN_SCHEMA:
        db.execute(statement.format(blob="blob"))
    for table, rows in foreign_rows():
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    db.execute("DETACH now")
    db.execute("VACUUM")
    db.execute("PRAGMA journal_mode = WAL")
    db.close()


def foreign_rows() -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    chance = Random(2)
    yield (
        "checkpoints",
        [
            (
                f"thread {n % 7}",
                f"c{n:04}",
                f"c{n - 1:04}" if n else None,
                f"state {n}: ".encode() + chance.randbytes(40),
            )
            for n in range(300)
        ],
    )
    yield (
        "checkpoint_writes",
        [(f"c{n:04}", "tâche", n % 5, None if n % 3 else bytes([n % 256])) for n in range(500)],
    )
    yield "alembic_version", [("5f3c9a1be772",)]


def dump_for_postgres(layout_1: Path) -> bytes:
    """What a PostgreSQL server says of the same rows in its own tables: `schema.sql`, and one COPY for each table."""
    schema = (SCHEMA / "postgres/0001.sql").read_text("utf-8")
    schema += "CREATE TABLE perdure_store (name text PRIMARY KEY, value text NOT NULL);\n"
    schema += "".join(f"{statement.format(blob='bytea')};\n" for statement in FOREIGN_SCHEMA)
    source = sqlite3.connect(layout_1)
    found = io.BytesIO()
    with psycopg.connect(fresh_database()) as db, tarfile.open(fileobj=found, mode="w") as tar:
        db.execute("SET timezone = 'UTC'")
        db.execute(schema)
        for table in (*OURS, *FOREIGN):
            for values in source.execute(f"SELECT * FROM {table}"):
                row = _for_postgres(table, values)
                db.execute(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(row))})", row)
        schema += f"SELECT setval('perdure_stretches', {SESSIONS});\n"
        _add(tar, "schema.sql", schema.encode())
        for table in (*OURS, *FOREIGN):
            with db.cursor().copy(f"COPY {table} TO STDOUT") as copy:
                _add(tar, f"{table}.copy", b"".join(bytes(chunk) for chunk in copy))
    return found.getvalue()


def _for_postgres(table: str, values: tuple[Any, ...]) -> tuple[object, ...]:
    match table, values:
        case "perdure_events", (id, *rest):
            return (id >> 32, id & 0xFFFFFFFF, *rest)
        case "perdure_sessions", (stretch, id, lineage, *rest):
            spans = json.loads(lineage)
            return (stretch, id, [a for a, _ in spans], [b for _, b in spans], *rest)
        case "perdure_blobs", (_, hash, size, packed, data):
            return (hash, size, bool(packed), data)
        case "perdure_processes", (*about, micros):
            return (*about, datetime.fromtimestamp(micros / 1e6, UTC))
    return values


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def expected(layout_1: Path, runnable_at: dict[str, int | None]) -> list[dict[str, object]]:
    """Every session, in the order of the list, newest first: what its rows say, without any code of ours."""
    db = sqlite3.connect(layout_1)
    rows = db.execute("SELECT * FROM perdure_sessions ORDER BY updated_at DESC, id DESC").fetchall()
    found: list[dict[str, object]] = []
    for stretch, id, lineage, head, _, state, project, title, updated_at, _ in rows:
        own = _events(db, stretch, head)
        shared = [event for old, upto in json.loads(lineage) for event in _events(db, old, upto)]
        seen: dict[int, Any] = {event[0]: event for event in [*shared, *own]}
        found.append(
            {
                "id": id, "stretch": stretch, "upto": head, "state": state, "project": project, "title": title,
                "updated_at": updated_at, "runnable_at": runnable_at[id], "events": len(seen),
                "digest": sha256(canonical([seen[seq] for seq in sorted(seen)])).hexdigest()[:16],
                "totals": _totals(own),
            }
        )  # fmt: skip
    return found


def _events(db: sqlite3.Connection, stretch: int, upto: int) -> list[Any]:
    sql = "SELECT data FROM perdure_events WHERE id > ? AND id <= ? ORDER BY id"
    rows = db.execute(sql, (stretch << 32, stretch << 32 | upto))
    return [json.loads(data if data[:1] == b"[" else zstd.decompress(data)) for (data,) in rows]


def _totals(events: list[Any]) -> dict[str, int]:
    """The sums of what was reported, and how often each thing was done; what is nothing is not named."""
    sums: Counter[str] = Counter()
    names = {"TurnStarted": "turns", "ModelCalled": "calls", "ToolStarted": "tools"}
    for *_, fact in events:
        if fact["kind"] == "ForkedFrom":
            sums.clear()  # what was before it was paid for elsewhere
        if fact["kind"] in names:
            sums[names[fact["kind"]]] += 1
        spent = fact.get("usage", {}) if fact["kind"] in ("ModelReplied", "ModelLost") else {}
        sums.update({name: tokens for name, tokens in spent.items() if name != "estimated"})
    return {name: sums[name] for name in sorted(sums) if sums[name]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        now, then = Path(folder) / "now.db", Path(folder) / "then.db"
        known = asyncio.run(live(now))
        lay_out_as_1(now, then)
        # When a session is due has no column in layout 1. The head of that day says it, and the recipes confirm it.
        due = dict(sqlite3.connect(now).execute("SELECT id, runnable_at FROM perdure_sessions").fetchall())
        sessions = expected(then, due)
        for one in sessions:
            for name, value in known.get(str(one["id"]), {}).items():
                assert one[name] == value, (one, name, value)
        HERE.mkdir(exist_ok=True)
        _write("sqlite.db.zst", then.read_bytes())
        _write("postgres.tar.zst", dump_for_postgres(then))
        _write("expected.json.zst", "\n".join(json.dumps(one) for one in sessions).encode())


def _write(name: str, data: bytes) -> None:
    packed = zstd.compress(data, 19)
    (HERE / name).write_bytes(packed)
    print(f"{name}: {len(data)} bytes, {len(packed)} packed")


if __name__ == "__main__":
    main()
