"""Which sessions an SQLite file holds: by id, by what they are called, by when something last happened.

A list walks along an index, and a damaged page would end it early or hide what lies behind. So an answer that cannot be
is not believed, and from then on every question is put to what is spared of the list (see `spared`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import apsw

from perdure.events import Event
from perdure.journal import walking
from perdure.journal.clock import Clock
from perdure.journal.heads import HeadCache
from perdure.journal.opening import all_of
from perdure.journal.receiving import Receiving, insert_session
from perdure.journal.spared import spared
from perdure.journal.store import Lineage, Listed, PageOfEvents, Stored, Wanted, walk
from perdure.journal.upgrading import SESSION
from perdure.journal.walking import DAMAGE, refuse_disorder

log = logging.getLogger("perdure.journal")

T = TypeVar("T")

_IS_LISTED = "SELECT 1 FROM perdure_sessions INDEXED BY perdure_sessions_by_activity WHERE id = ?"


class Listing(Receiving):
    """The part of a store that knows its sessions."""

    def __init__(
        self, path: Path, clock: Clock, durability: str, vfs: str | None, checkpoint_pages: int
    ) -> None:
        super().__init__(path, clock, durability, vfs, checkpoint_pages)
        self._heads = HeadCache()
        self._spared: tuple[int, apsw.Connection, list[str]] | None = None

    def _load(self, db: apsw.Connection, where: str, *values: object) -> Stored | None:
        try:
            row = db.execute(SESSION + where, values).fetchone()
            return None if row is None else self._stored(db, row)
        except (ValueError, TypeError) as why:
            raise apsw.CorruptError(f"the row of a session holds what cannot be: {why}") from why

    def _stored(self, db: apsw.Connection, row: tuple[Any, ...]) -> Stored:
        stretch, id, lineage, head, chain, batch, batch_seq, folded = row
        if (
            not type(stretch) is type(head) is type(batch) is type(batch_seq) is int
            or type(chain) is not bytes
        ):
            raise TypeError(f"{id}: {head!r}")
        stored = Stored(stretch, id, _lineage(lineage), head, chain, batch, batch_seq, self._heads.EMPTY)
        stored.folded = self._heads.read(folded, lambda: self._all_events(db, stored))
        return stored

    def _all_events(self, db: apsw.Connection, stored: Stored) -> Iterator[Event]:
        after = 0
        for stretch, upto in walk(stored):
            while after < upto:
                page = walking.events(db, self._speaking, stretch, after, upto, 1000)
                yield from page.events
                after = page.events[-1].seq if page.more else upto

    def session(self, id: str) -> Stored | None:
        def found(db: apsw.Connection) -> Stored | None:
            stored = self._load(db, "id = ?", id)
            if stored is None and db.execute(_IS_LISTED, (id,)).fetchone():
                raise ValueError(f"{id} is in the list, and cannot be found")
            return stored

        return self._ask(found)

    def _ask(self, question: Callable[[apsw.Connection], T]) -> T:
        """What the list of sessions says, and if it is damaged what can still be said of them."""
        with self._speaking:
            try:
                if self._spared is None:
                    return question(self._reading)
            except DAMAGE as why:
                log.error("the list of sessions is damaged", extra={"store": self.url, "why": str(why)})
            return question(self._what_is_spared()[0])

    def _what_is_spared(self) -> tuple[apsw.Connection, list[str]]:
        self._speaking.damaged = True
        version = int(all_of(self._reading.execute("PRAGMA data_version"))[0][0])
        if self._spared is None or self._spared[0] != version:

            def events(stretch: int, after: int, upto: int, limit: int) -> PageOfEvents:
                return walking.events(self._reading, self._speaking, stretch, after, upto, limit)

            self._spared = (version, *spared(self._reading, events, insert_session))
        return self._spared[1:]

    def sessions(self, wanted: Wanted) -> list[Listed]:
        where, values = _where(wanted, after=True)

        def listed(db: apsw.Connection) -> list[Listed]:
            rows = db.execute(
                "SELECT updated_at, stretch, id, lineage, head, folded FROM perdure_sessions "
                f"INDEXED BY perdure_sessions_by_activity {where} ORDER BY updated_at DESC, id DESC LIMIT ?",
                (*values, wanted.limit),
            )
            return [self._listed(*row) for row in all_of(rows)]

        return self._ask(listed)

    def _listed(self, at: int, stretch: int, id: str, lineage: str, head: int, folded: bytes) -> Listed:
        if type(id) is not str or not type(at) is type(stretch) is type(head) is int:
            raise TypeError(f"{id!r} is no row of a session")
        stored = Stored(stretch, id, _lineage(lineage), head, b"", 0, 0, self._heads.EMPTY)
        known = self._heads.read(folded, lambda: self._all_events(self._reading, stored))
        return Listed(id, head, known, (at, id))

    def count(self, wanted: Wanted) -> int:
        where, values = _where(wanted, after=False)
        sql = f"SELECT count(*) FROM perdure_sessions {where}"
        return self._ask(lambda db: int(all_of(db.execute(sql, values))[0][0]))

    def ids(self, after: str, limit: int) -> list[str]:
        def found(db: apsw.Connection) -> list[str]:
            rows = db.execute(
                "SELECT id FROM perdure_sessions WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
            )
            ids = [id for (id,) in all_of(rows)]
            refuse_disorder([after, *ids])
            return ids

        return self._ask(found)

    def beginning_with(self, prefix: str, limit: int) -> list[str]:
        return self._read_ids(
            "SELECT id FROM perdure_sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            prefix, prefix + "\U0010ffff", limit,
        )  # fmt: skip

    def titled(self, title: str, limit: int) -> list[str]:
        return self._read_ids(
            "SELECT id FROM perdure_sessions WHERE title = ? AND state NOT IN ('trashed', 'moved') "
            "ORDER BY updated_at DESC, id DESC LIMIT ?",
            title, limit,
        )  # fmt: skip

    def runnable(self, now: int, limit: int) -> list[str]:
        return self._read_ids(
            "SELECT id FROM perdure_sessions WHERE runnable_at <= ? ORDER BY runnable_at, id LIMIT ?",
            now,
            limit,
        )

    def heads(self, ids: Collection[str]) -> Mapping[str, int]:
        return self._ask(lambda db: heads_of(db, ids))

    def _read_ids(self, sql: str, *values: Any) -> list[str]:
        def found(db: apsw.Connection) -> list[str]:
            ids = [id for (id,) in all_of(db.execute(sql, values))]
            if not all(type(id) is str for id in ids):
                raise TypeError("ids that are no text")
            return ids

        return self._ask(found)


def heads_of(db: apsw.Connection, ids: Collection[str]) -> dict[str, int]:
    rows = db.execute(
        "SELECT id, head FROM perdure_sessions WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
    return dict(all_of(rows))


def _lineage(text: str) -> Lineage:
    return () if text == "[]" else tuple((a, b) for a, b in json.loads(text))


def _where(wanted: Wanted, *, after: bool) -> tuple[str, list[Any]]:
    clauses: list[str] = []
    values: list[Any] = []
    if after and wanted.after is not None:
        clauses.append("(updated_at, id) < (?, ?)")
        values += wanted.after
    if wanted.states is not None:
        clauses.append(f"state IN ({', '.join('?' * len(wanted.states))})")
        values += wanted.states
    if wanted.project is not None:
        clauses.append("project_key = ?")
        values.append(wanted.project)
    return ("WHERE " + " AND ".join(clauses) if clauses else ""), values
