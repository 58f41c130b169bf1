"""Sessions on a PostgreSQL server: any number of processes on any number of machines, one lock a session."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from threading import Event as Flag
from typing import Any

from perdure.errors import NoStore, StoreDamaged, StoreUnavailable
from perdure.events import Event
from perdure.journal import migrate
from perdure.journal.admit import Batch, Earlier, admit
from perdure.journal.clock import Clock
from perdure.journal.copying import copy_rows
from perdure.journal.heads import HeadCache
from perdure.journal.link import CHOOSE_ANOTHER, NOT_OURS, Link
from perdure.journal.pipe import Pipe, Question
from perdure.journal.rows import event_in
from perdure.journal.store import (
    NOT_THERE,
    Append,
    Appended,
    BlobRow,
    Kept,
    Listed,
    PageOfEvents,
    ProcessRow,
    Stored,
    Trouble,
    Wanted,
    walk,
)
from perdure.views.title import storable

log = logging.getLogger("perdure.journal")

PAGE_BYTES = 4 << 20
LOOK_EVERY = 0.2
"""Seconds between two looks at the heads of the followed sessions, for the case that a wake was lost."""
_TICK = 0.05
_MIGRATING = 0x7065726475726521  # "perdure!", the advisory lock of whoever migrates in this database

_SESSION = """
SELECT stretch, id, lineage, lineage_upto, head, chain, batch, batch_seq, folded FROM perdure_sessions """
_LOCK = _SESSION + "WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE"  # in one order for all: no deadlock
_KEYS = """
SELECT k.stretch, k.key, k.seq
FROM unnest($1::text[], $2::text[]) AS a (id, key)
JOIN perdure_sessions s ON s.id = a.id
JOIN perdure_keys k ON k.stretch = ANY (s.stretch || s.lineage) AND k.key = a.key"""
_NUMBERS = "SELECT nextval('perdure_stretches') FROM generate_series(1, $1::bigint)"
_NOTIFY = "SELECT pg_notify('perdure', id) FROM unnest($1::text[]) AS t (id)"
_ADD_EVENTS = (
    "INSERT INTO perdure_events (stretch, seq, data, checksum, seal) VALUES {}",
    ("bigint", "bigint", "bytea", "bigint", "bytea"),
)
_ADD_KEYS = ("INSERT INTO perdure_keys (stretch, key, seq) VALUES {}", ("bigint", "text", "bigint"))
_ADD_BLOB = """
INSERT INTO perdure_blobs (hash, size, packed, data) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"""
_ADD_FOLD = """
INSERT INTO perdure_folds (stretch, view, version, upto, state) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (stretch, view, upto) DO UPDATE SET version = $3, state = $5"""
_ADD_SESSION = """
INSERT INTO perdure_sessions (stretch, head, chain, batch, batch_seq, state, project_key, title, updated_at,
                              runnable_at, folded, id, lineage, lineage_upto)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"""
_UPDATE_SESSIONS = (
    """
UPDATE perdure_sessions s
SET head = v.head, chain = v.chain, batch = v.batch, batch_seq = v.batch_seq, state = v.state,
    project_key = v.project_key, title = v.title, updated_at = v.updated_at, runnable_at = v.runnable_at,
    folded = v.folded
FROM (VALUES {}) AS v (stretch, head, chain, batch, batch_seq, state, project_key, title, updated_at, runnable_at,
                       folded)
WHERE s.stretch = v.stretch""",
    ("bigint", "bigint", "bytea", "bigint", "bigint", "text", "text", "text", "bigint", "bigint", "bytea"),
)
_SET_DUE = """
UPDATE perdure_sessions s SET runnable_at = due.at
FROM unnest($1::bigint[], $2::bigint[]) AS due (stretch, at) WHERE s.stretch = due.stretch"""
_EVENTS = """
SELECT seq, data, checksum, next FROM (
    SELECT seq, data, checksum, lead(seq) OVER way AS next,
           sum(octet_length(data)) OVER (way ROWS UNBOUNDED PRECEDING) - octet_length(data) AS before
    FROM (SELECT seq, data, checksum FROM perdure_events WHERE stretch = $1 AND seq > $2 AND seq <= $3
          ORDER BY seq {order} LIMIT $4) AS found
    WINDOW way AS (ORDER BY seq {order})
) AS page WHERE before <= $5 ORDER BY seq"""
_STRAYS = """
WITH RECURSIVE found AS (
    SELECT min(stretch) AS stretch FROM perdure_events
    UNION ALL
    SELECT (SELECT min(e.stretch) FROM perdure_events e WHERE e.stretch > f.stretch)
    FROM found f WHERE f.stretch IS NOT NULL
), bounds AS (
    SELECT f.stretch, s.head IS NULL AS alone, coalesce(s.head, 0) AS high,
           coalesce(s.lineage_upto[cardinality(s.lineage_upto)], 0) AS low
    FROM found f LEFT JOIN perdure_sessions s ON s.stretch = f.stretch WHERE f.stretch IS NOT NULL
)
SELECT b.stretch, (SELECT count(*) FROM perdure_events e
                   WHERE e.stretch = b.stretch AND NOT (e.seq > b.low AND e.seq <= b.high))
FROM bounds b WHERE b.alone
    OR EXISTS (SELECT 1 FROM perdure_events e WHERE e.stretch = b.stretch AND e.seq <= b.low)
    OR EXISTS (SELECT 1 FROM perdure_events e WHERE e.stretch = b.stretch AND e.seq > b.high + 1000)"""
_IS_LISTED = """
SELECT head <> $2 OR (state = $3 AND project_key = $4 AND title = $5 AND updated_at = $6
                      AND runnable_at IS NOT DISTINCT FROM $7::bigint)
FROM perdure_sessions WHERE stretch = $1"""
_FORWARDS, _BACKWARDS = _EVENTS.format(order="ASC"), _EVENTS.format(order="DESC")


class PostgresStore:
    """`Store` over a database of a PostgreSQL server."""

    answers_may_be_lost = True

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        durability: str = "power",
        announce: Callable[[str], None] = print,
        patience: float = 5.0,
        create: bool = True,
    ) -> None:
        """`patience`: for how many seconds a connection that was lost is waited for before a call fails."""
        self._clock = clock
        self._heads = HeadCache()
        self._link = partial(Link, url, durability)
        self._writing, self._reading = self._link(patience), self._link(patience)
        # Whoever stops watching should not have to wait for a server that is away.
        self._watching = self._link(0.0)
        self.url = self._reading.url
        self._reading.run(lambda db: self._migrate(db, announce, create))

    def _migrate(self, db: Pipe, announce: Callable[[str], None], create: bool) -> None:
        layout = self._layout(db)
        migrate.check(self.url, layout)
        if layout == migrate.LAYOUT:
            return
        if not layout and not create:
            raise NoStore(self.url, NOT_THERE)
        db.rows("BEGIN")
        db.rows("SELECT pg_advisory_xact_lock($1)", _MIGRATING)
        layout = self._layout(db)  # several processes may have come this far; the first one does it
        migrate.check(self.url, layout)
        if layout != migrate.LAYOUT:
            self._lay_out(db, layout, announce)
        db.rows("COMMIT")

    def _layout(self, db: Pipe) -> int:
        if db.rows("SELECT to_regclass('perdure_store') IS NULL")[0][0]:
            return 0
        found = db.rows("SELECT value FROM perdure_store WHERE name = 'layout'")
        try:
            return int(found[0][0]) if found else 0
        except (TypeError, ValueError):
            raise StoreDamaged(self.url, f"{NOT_OURS} (layout {found[0][0]!r}); {CHOOSE_ANOTHER}") from None

    def _lay_out(self, db: Pipe, layout: int, announce: Callable[[str], None]) -> None:
        if (encoding := db.rows("SHOW server_encoding")[0][0]) != "UTF8":
            raise StoreUnavailable(
                self.url, f"this database keeps text as {encoding}; create one WITH ENCODING 'UTF8'"
            )
        if layout:
            announce(
                f"perdure: upgrading {self.url} from layout {layout} to {migrate.LAYOUT} in one transaction, so that "
                "nothing can be left half done; `perdure backup FILE` or pg_dump makes a copy"
            )
        migrate.apply("postgres", layout, db.rows)
        _set_layout(db)
        if layout:
            self._say_what_is_due(db)
            log.info("migrated", extra={"store": self.url, "from": layout, "to": migrate.LAYOUT})

    def _say_what_is_due(self, db: Pipe) -> None:
        """Fill in when each session is due. Layout 1 does not say it, and what nobody finds nobody runs."""
        after = 0
        while rows := db.rows(_SESSION + "WHERE stretch > $1 ORDER BY stretch LIMIT 500", after):
            found = [self._stored(db, row) for row in rows]
            due = {s.stretch: at for s in found if (at := s.folded.runnable_at) is not None}
            db.rows(_SET_DUE, list(due), list(due.values()))
            after = found[-1].stretch

    # Writing: called by one thread

    def commit(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        """Two round trips, however many appends there are. Should the connection be lost before the second one is
        answered, the batch is submitted once more: what was stored after all is found by its keys and numbers."""
        return self._writing.run(lambda db: self._commit(db, appends))

    def _commit(self, db: Pipe, appends: Sequence[Append]) -> list[Appended | Exception]:
        keyed = [(a.session, a.key) for a in appends if a.key is not None]
        _, locked, found, new = db.together(
            [
                ("BEGIN", ()),
                (_LOCK, (sorted({a.session for a in appends}),)),
                (_KEYS, ([id for id, _ in keyed], [key for _, key in keyed])),
                (_NUMBERS, (sum(a.create for a in appends),)),
            ]
        )
        stored = {s.id: s for s in (self._stored(db, row) for row in locked)}
        keys = {(stretch, key): seq for stretch, key, seq in found}
        numbers = iter([number for (number,) in new])
        now = self._clock.wall()
        batch = admit(appends, stored, _earlier(db, keys), lambda: next(numbers), now, _own(db))
        db.together([*self._writes(batch), ("COMMIT", ())])
        return batch.outcomes

    def _writes(self, batch: Batch) -> Iterator[Question]:
        # In an order that is the same for all: another process may be about to add the same session or blob.
        for s in sorted(batch.new, key=lambda s: s.id):
            old, upto = [a for a, _ in s.lineage], [b for _, b in s.lineage]
            yield _ADD_SESSION, (*self._row(s), s.id, old, upto)
        for b in sorted(batch.blobs, key=lambda b: b.hash):
            yield _ADD_BLOB, (b.hash, b.size, b.packed, b.data)
        yield from _spread(_ADD_EVENTS, [(of, r.seq, r.data, r.checksum, r.seal) for of, r in batch.rows])
        yield from _spread(_ADD_KEYS, batch.keys)
        for stretch, k in batch.kept:
            yield _ADD_FOLD, (stretch, k.view, k.version, k.upto, k.state)
        yield from _spread(_UPDATE_SESSIONS, [self._row(after) for _, after in batch.changed.values()])
        if touched := [*batch.changed, *(s.id for s in batch.new)]:
            yield _NOTIFY, (touched,)

    def _row(self, s: Stored) -> tuple[object, ...]:
        h = s.folded
        return (
            s.stretch, s.head, s.chain, s.batch, s.batch_seq, h.state, h.project_key, h.title, h.updated_at,
            h.runnable_at, self._heads.packed(h),
        )  # fmt: skip

    # Reading

    def _stored(self, db: Pipe, row: tuple[Any, ...]) -> Stored:
        stretch, id, old, upto, head, chain, batch, batch_seq, folded = row
        lineage = tuple(zip(old, upto, strict=True))
        stored = Stored(stretch, id, lineage, head, chain, batch, batch_seq, HeadCache.EMPTY)
        stored.folded = self._heads.read(folded, lambda: _all_events(db, stored))
        return stored

    def session(self, id: str) -> Stored | None:
        def one(db: Pipe) -> Stored | None:
            found = db.rows(_SESSION + "WHERE id = $1", id)
            return self._stored(db, found[0]) if found else None

        return self._reading.run(one)

    def events(self, stretch: int, after: int, upto: int, limit: int, backwards: bool) -> PageOfEvents:
        return self._reading.run(lambda db: _events(db, stretch, after, upto, limit, backwards))

    def seals(
        self, stretch: int, after: int, upto: int, limit: int
    ) -> list[tuple[int, bytes, int, bytes | None]]:
        found = self._reading.rows(
            "SELECT seq, data, checksum, seal FROM perdure_events "
            "WHERE stretch = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4",
            stretch, after, upto, limit,
        )  # fmt: skip
        return [(seq, data, checksum, seal) for seq, data, checksum, seal in found]

    def sessions(self, wanted: Wanted) -> list[Listed]:
        where, values = _where(wanted, after=True)
        sql = f"{_SESSION}{where} ORDER BY updated_at DESC, id DESC LIMIT {wanted.limit:d}"

        def listed(db: Pipe) -> list[Listed]:
            found = [self._stored(db, row) for row in db.rows(sql, *values)]
            return [Listed(s.id, s.head, s.folded, (s.folded.updated_at, s.id)) for s in found]

        return self._reading.run(listed)

    def count(self, wanted: Wanted) -> int:
        where, values = _where(wanted, after=False)
        return int(self._reading.rows(f"SELECT count(*) FROM perdure_sessions {where}", *values)[0][0])

    def ids(self, after: str, limit: int) -> list[str]:
        return self._names("SELECT id FROM perdure_sessions WHERE id > $1 ORDER BY id LIMIT $2", after, limit)

    def beginning_with(self, prefix: str, limit: int) -> list[str]:
        return self._names(
            "SELECT id FROM perdure_sessions WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3",
            prefix, prefix + "\U0010ffff", limit,
        )  # fmt: skip

    def titled(self, title: str, limit: int) -> list[str]:
        return self._names(
            "SELECT id FROM perdure_sessions WHERE title = $1 AND state NOT IN ('trashed', 'moved') "
            "ORDER BY updated_at DESC, id DESC LIMIT $2",
            title, limit,
        )  # fmt: skip

    def runnable(self, now: int, limit: int) -> list[str]:
        return self._names(
            "SELECT id FROM perdure_sessions WHERE runnable_at <= $1 ORDER BY runnable_at, id LIMIT $2",
            now,
            limit,
        )

    def _names(self, sql: str, *values: object) -> list[str]:
        return [id for (id,) in self._reading.rows(sql, *values)]

    def heads(self, ids: Collection[str]) -> Mapping[str, int]:
        return self._reading.run(lambda db: _heads(db, ids))

    # Blobs, kept folds, leases, desk

    def blob(self, hash: bytes) -> BlobRow | None:
        found = self._reading.rows("SELECT hash, size, packed, data FROM perdure_blobs WHERE hash = $1", hash)
        return BlobRow(*found[0]) if found else None

    def kept(self, stretch: int, view: str, version: int, upto: int) -> Kept | None:
        found = self._reading.rows(
            "SELECT view, version, upto, state FROM perdure_folds WHERE stretch = $1 AND view = $2 AND version = $3 "
            "AND upto <= $4 ORDER BY upto DESC LIMIT 1",
            stretch, view, version, upto,
        )  # fmt: skip
        return Kept(*found[0]) if found else None

    def all_kept(self, stretch: int) -> list[Kept]:
        found = self._reading.rows(
            "SELECT view, version, upto, state FROM perdure_folds WHERE stretch = $1 ORDER BY view, upto",
            stretch,
        )
        return [Kept(*row) for row in found]

    def keep(self, stretch: int, kept: Kept) -> None:
        self._writing.run(
            lambda db: db.together(
                [
                    ("BEGIN", ()),
                    ("DELETE FROM perdure_folds WHERE stretch = $1 AND view = $2", (stretch, kept.view)),
                    (_ADD_FOLD, (stretch, kept.view, kept.version, kept.upto, kept.state)),
                    ("COMMIT", ()),
                ]
            )
        )

    def forget(self, stretch: int, kept: Kept) -> None:
        self._writing.rows(
            "DELETE FROM perdure_folds WHERE stretch = $1 AND view = $2 AND upto = $3",
            stretch,
            kept.view,
            kept.upto,
        )

    def process(self, id: str) -> ProcessRow | None:
        # By the server's clock alone: those of two machines differ, and another boot may be another machine's.
        found = self._reading.rows(
            "SELECT id, about, host, boot, lock, expires <= clock_timestamp() FROM perdure_processes "
            "WHERE id = $1",
            id,
        )
        return ProcessRow(*found[0]) if found else None

    def renew(self, process: ProcessRow, ttl: float) -> None:
        self._writing.rows(
            "INSERT INTO perdure_processes (id, about, host, boot, lock, expires) "
            "VALUES ($1, $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $6)) ON CONFLICT (id) "
            "DO UPDATE SET about = $2, host = $3, boot = $4, lock = $5, expires = excluded.expires",
            process.id, process.about, storable(process.host), process.boot, storable(process.lock), float(ttl),
        )  # fmt: skip

    def retire(self, process: str) -> None:
        self._writing.rows("DELETE FROM perdure_processes WHERE id = $1", process)

    def desk(self, kind: str, name: str) -> bytes | None:
        found = self._reading.rows("SELECT value FROM perdure_desk WHERE kind = $1 AND name = $2", kind, name)
        return found[0][0] if found else None

    def put_on_desk(self, kind: str, name: str, value: bytes | None) -> None:
        if value is None:
            self._writing.rows("DELETE FROM perdure_desk WHERE kind = $1 AND name = $2", kind, name)
        else:
            self._writing.rows(
                "INSERT INTO perdure_desk (kind, name, value) VALUES ($1, $2, $3) "
                "ON CONFLICT (kind, name) DO UPDATE SET value = $3",
                kind, name, value,
            )  # fmt: skip

    def drop(self, stretch: int, seqs: Sequence[int]) -> None:
        self._writing.rows(
            "DELETE FROM perdure_events WHERE stretch = $1 AND seq = ANY ($2::bigint[]) AND seal IS NULL",
            stretch, list(seqs),
        )  # fmt: skip

    def keys(self, stretch: int) -> dict[str, int]:
        return dict(self._reading.rows("SELECT key, seq FROM perdure_keys WHERE stretch = $1", stretch))

    def rederive(self, stored: Stored, keys: Mapping[str, int]) -> bool:
        added = [(stored.stretch, key, seq) for key, seq in keys.items()]

        def rederive(db: Pipe) -> bool:
            lock = "SELECT head FROM perdure_sessions WHERE stretch = $1 FOR UPDATE"
            _, head = db.together([("BEGIN", ()), (lock, (stored.stretch,))])
            same = head == [(stored.head,)]
            if same:
                db.rows("DELETE FROM perdure_keys WHERE stretch = $1", stored.stretch)
                db.together([*_spread(_ADD_KEYS, added), *_spread(_UPDATE_SESSIONS, [self._row(stored)])])
            db.rows("COMMIT")
            return same

        return self._writing.run(rederive)

    def check(self) -> list[Trouble]:
        found = []
        for setting in ("fsync", "full_page_writes"):
            if self._reading.rows("SELECT current_setting($1)", setting) == [("off",)]:
                why = f"{self.url}: {setting} is off on this server, so a power cut may lose or damage everything"
                found.append(Trouble(why, lasting=False))
        return found

    def is_listed(self, stored: Stored) -> bool:
        h = stored.folded
        columns = (h.state, h.project_key, h.title, h.updated_at, h.runnable_at)
        found = self._reading.rows(_IS_LISTED, stored.stretch, stored.head, *columns)
        return not found or bool(found[0][0])

    def strays(self) -> list[tuple[int, int]]:
        return [(stretch, count) for stretch, count in self._reading.rows(_STRAYS)]

    def missing_indexes(self) -> list[str]:
        names = list(migrate.indexes("postgres"))
        return self._names(
            "SELECT name FROM unnest($1::text[]) AS t (name) WHERE to_regclass(name) IS NULL", names
        )

    def make_index(self, name: str) -> None:
        made = migrate.indexes("postgres")[name]
        self._writing.rows(made.replace("INDEX", "INDEX IF NOT EXISTS", 1))

    def copy_to(self, target: Path) -> None:
        from perdure.journal import new_sqlite_store

        copy, link = new_sqlite_store(target), self._link(0.0)
        try:
            link.run(lambda db: copy_rows(db, _SESSION, self._stored, copy), tries=1)
        finally:
            link.close()
            copy.close()

    # Watching

    def watch(
        self,
        stop: Flag,
        followed: Callable[[], Collection[str]],
        moved: Callable[[Mapping[str, int]], None],
    ) -> None:
        watch = _Watch(followed, moved, lambda: self._writing.pid)
        try:
            while not stop.is_set():
                self._watching.run(watch.look)
        finally:
            self._watching.close()

    def close(self) -> None:
        self._writing.close()
        self._reading.close()


class _Watch:
    """Woken by NOTIFY, which is a hint: what has moved is what the table says, and now and then it is asked anyway."""

    def __init__(
        self,
        followed: Callable[[], Collection[str]],
        moved: Callable[[Mapping[str, int]], None],
        writing: Callable[[], int],
    ) -> None:
        self._followed = followed
        self._moved = moved
        self._writing = writing
        self._listening: Pipe | None = None
        self._known: set[str] = set()
        self._due = 0.0

    def look(self, db: Pipe) -> None:
        if db is not self._listening:
            db.rows("LISTEN perdure")
            self._listening, self._due = db, 0.0
        # What this process appends its followers have heard of already.
        woken = {wake.payload for wake in db.heard(_TICK) if wake.pid != self._writing()}
        names = set(self._followed())
        now = time.monotonic()
        if now >= self._due or not names <= self._known:
            self._due, self._known, woken = now + LOOK_EVERY, names, names
        if wanted := names & woken:
            self._moved(_heads(db, wanted))


def _set_layout(db: Pipe) -> None:
    db.rows("CREATE TABLE IF NOT EXISTS perdure_store (name text PRIMARY KEY, value text NOT NULL)")
    add = "INSERT INTO perdure_store VALUES ($1, $2) ON CONFLICT (name) DO "
    db.rows(add + "UPDATE SET value = $2", "layout", str(migrate.LAYOUT))
    db.rows(add + "NOTHING", "writes", "1")


def _spread(statement: tuple[str, tuple[str, ...]], values: Sequence[Sequence[object]]) -> Iterator[Question]:
    """A statement over many rows. In a long list of VALUES a row costs a quarter of what a statement of its own would;
    the lists come in few lengths, so that each is prepared once."""
    at = 0
    for length in (64, 8, 1):
        while len(values) - at >= length:
            some = values[at : at + length]
            yield _sized(*statement, length), [value for row in some for value in row]
            at += length


@cache
def _sized(sql: str, types: tuple[str, ...], length: int) -> str:
    width = len(types)
    lines = ([f"${n * width + i}::{kind}" for i, kind in enumerate(types, 1)] for n in range(length))
    return sql.format(", ".join(f"({', '.join(line)})" for line in lines))


def _events(db: Pipe, stretch: int, after: int, upto: int, limit: int, backwards: bool) -> PageOfEvents:
    sql = _BACKWARDS if backwards else _FORWARDS
    found = db.rows(sql, stretch, after, upto, limit + 1, PAGE_BYTES)
    page = found[-limit:] if backwards else found[:limit]
    more = bool(page) and page[0 if backwards else -1][3] is not None
    return PageOfEvents([event_in(seq, data, checksum) for seq, data, checksum, _ in page], more)


def _all_events(db: Pipe, stored: Stored) -> Iterator[Event]:
    after = 0
    for stretch, upto in walk(stored):
        while after < upto:
            page = _events(db, stretch, after, upto, 1000, False)
            yield from page.events
            after = page.events[-1].seq if page.more else upto


def _earlier(db: Pipe, keys: Mapping[tuple[int, str], int]) -> Callable[[Stored, str, int], Earlier | None]:
    def find(stored: Stored, key: str, count: int) -> Earlier | None:
        for stretch, upto in walk(stored):
            seq = keys.get((stretch, key))
            if seq is not None and seq <= upto:
                page = _events(db, stretch, seq - 1, min(upto, seq - 1 + count), count, False)
                return Earlier(seq, tuple(page.events))
        return None

    return find


def _own(db: Pipe) -> Callable[[Stored, int, int], Sequence[Event]]:
    def read(stored: Stored, first: int, count: int) -> Sequence[Event]:
        return _events(db, stored.stretch, first - 1, first - 1 + count, count, False).events

    return read


def _heads(db: Pipe, ids: Iterable[str]) -> dict[str, int]:
    return dict(db.rows("SELECT id, head FROM perdure_sessions WHERE id = ANY ($1::text[])", list(ids)))


def _where(wanted: Wanted, *, after: bool) -> tuple[str, list[object]]:
    clauses: list[str] = []
    values: list[object] = []
    if after and wanted.after is not None:
        clauses.append("(updated_at, id) < ($1, $2)")
        values += wanted.after
    if wanted.states is not None:
        values.append(list(wanted.states))
        clauses.append(f"state = ANY (${len(values)}::text[])")
    if wanted.project is not None:
        values.append(wanted.project)
        clauses.append(f"project_key = ${len(values)}")
    return ("WHERE " + " AND ".join(clauses) if clauses else ""), values
