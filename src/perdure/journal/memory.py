"""Sessions in the memory of one process: the whole contract, and gone when it ends."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Condition
from threading import Event as Flag

from perdure.errors import StoreUnavailable
from perdure.events import Event
from perdure.journal.admit import Earlier, admit
from perdure.journal.clock import Clock
from perdure.journal.rows import Row, event_in
from perdure.journal.store import (
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


class MemoryStore:
    """`Store` in dictionaries. Several journals of one process may share it."""

    url = "memory:"
    answers_may_be_lost = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = Condition()
        self._sessions: dict[str, Stored] = {}
        self._rows: dict[int, list[Row]] = {}
        self._keys: dict[tuple[int, str], int] = {}
        self._blobs: dict[bytes, BlobRow] = {}
        self._folds: dict[tuple[int, str, int], Kept] = {}
        self._processes: dict[str, tuple[ProcessRow, float]] = {}
        self._desk: dict[tuple[str, str], bytes] = {}

    def commit(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        with self._changed:
            stored = {a.session: replace(s) for a in appends if (s := self._sessions.get(a.session))}
            batch = admit(appends, stored, self._earlier, self._allot(), self._clock.wall(), self._own)
            for stretch, row in batch.rows:
                self._rows.setdefault(stretch, []).append(row)
            self._keys.update({(stretch, key): seq for stretch, key, seq in batch.keys})
            self._folds.update({(stretch, k.view, k.upto): k for stretch, k in batch.kept})
            for blob in batch.blobs:
                self._blobs.setdefault(blob.hash, blob)
            self._sessions.update(stored)
            self._changed.notify_all()
            return batch.outcomes

    def _allot(self) -> Callable[[], int]:
        last = max((s.stretch for s in self._sessions.values()), default=0)
        numbers = iter(range(last + 1, last + 1_000_000))
        return lambda: next(numbers)

    def _earlier(self, stored: Stored, key: str, count: int) -> Earlier | None:
        for stretch, upto in walk(stored):
            seq = self._keys.get((stretch, key))
            if seq is not None and seq <= upto:
                return Earlier(
                    seq, tuple(self.events(stretch, seq - 1, min(upto, seq - 1 + count), count, False).events)
                )
        return None

    def _own(self, stored: Stored, first: int, count: int) -> list[Event]:
        return self.events(stored.stretch, first - 1, first - 1 + count, count, False).events

    def session(self, id: str) -> Stored | None:
        found = self._sessions.get(id)
        return replace(found) if found else None

    def events(self, stretch: int, after: int, upto: int, limit: int, backwards: bool) -> PageOfEvents:
        rows = self._between(stretch, after, upto)
        shown = rows[-limit:] if backwards and limit else rows[:limit]
        return PageOfEvents([event_in(r.seq, r.data, r.checksum) for r in shown], len(shown) < len(rows))

    def _between(self, stretch: int, after: int, upto: int) -> list[Row]:
        rows = self._rows.get(stretch, [])
        return rows[bisect_right(rows, after, key=_seq) : bisect_right(rows, upto, key=_seq)]

    def seals(
        self, stretch: int, after: int, upto: int, limit: int
    ) -> list[tuple[int, bytes, int, bytes | None]]:
        return [(r.seq, r.data, r.checksum, r.seal) for r in self._between(stretch, after, upto)[:limit]]

    def sessions(self, wanted: Wanted) -> list[Listed]:
        found = sorted(self._wanted(wanted), key=_activity, reverse=True)
        if wanted.after is not None:
            found = [s for s in found if _activity(s) < wanted.after]
        return [Listed(s.id, s.head, s.folded, _activity(s)) for s in found[: wanted.limit]]

    def count(self, wanted: Wanted) -> int:
        return sum(1 for _ in self._wanted(wanted))

    def _wanted(self, wanted: Wanted) -> Iterable[Stored]:
        for s in list(self._sessions.values()):
            hidden = wanted.states is not None and s.folded.state not in wanted.states
            if not hidden and wanted.project in (None, s.folded.project_key):
                yield s

    def ids(self, after: str, limit: int) -> list[str]:
        return sorted(id for id in list(self._sessions) if id > after)[:limit]

    def beginning_with(self, prefix: str, limit: int) -> list[str]:
        return sorted(id for id in list(self._sessions) if id.startswith(prefix))[:limit]

    def titled(self, title: str, limit: int) -> list[str]:
        shown = (s for s in list(self._sessions.values()) if s.folded.state not in ("trashed", "moved"))
        found = sorted((s for s in shown if s.folded.title == title), key=_activity, reverse=True)
        return [s.id for s in found[:limit]]

    def runnable(self, now: int, limit: int) -> list[str]:
        due = [(at, s.id) for s in list(self._sessions.values()) if (at := s.folded.runnable_at) is not None]
        return [id for at, id in sorted(due) if at <= now][:limit]

    def heads(self, ids: Collection[str]) -> Mapping[str, int]:
        return {id: s.head for id in ids if (s := self._sessions.get(id))}

    def blob(self, hash: bytes) -> BlobRow | None:
        return self._blobs.get(hash)

    def kept(self, stretch: int, view: str, version: int, upto: int) -> Kept | None:
        fits = [
            k for k in self.all_kept(stretch) if k.view == view and k.version == version and k.upto <= upto
        ]
        return fits[-1] if fits else None

    def all_kept(self, stretch: int) -> list[Kept]:
        return [kept for (of, _, _), kept in sorted(self._folds.items()) if of == stretch]

    def keep(self, stretch: int, kept: Kept) -> None:
        for other in self.all_kept(stretch):
            if other.view == kept.view:
                self.forget(stretch, other)
        self._folds[stretch, kept.view, kept.upto] = kept

    def forget(self, stretch: int, kept: Kept) -> None:
        self._folds.pop((stretch, kept.view, kept.upto), None)

    def process(self, id: str) -> ProcessRow | None:
        found = self._processes.get(id)
        if found is None:
            return None
        row, until = found
        return replace(row, expired=until <= self._clock.steady())

    def renew(self, process: ProcessRow, ttl: float) -> None:
        self._processes[process.id] = (process, self._clock.steady() + ttl)

    def retire(self, process: str) -> None:
        self._processes.pop(process, None)

    def desk(self, kind: str, name: str) -> bytes | None:
        return self._desk.get((kind, name))

    def put_on_desk(self, kind: str, name: str, value: bytes | None) -> None:
        if value is None:
            self._desk.pop((kind, name), None)
        else:
            self._desk[kind, name] = value

    def drop(self, stretch: int, seqs: Sequence[int]) -> None:
        gone = set(seqs)
        with self._changed:
            rows = self._rows.get(stretch, [])
            self._rows[stretch] = [row for row in rows if row.seq not in gone or row.seal is not None]

    def keys(self, stretch: int) -> dict[str, int]:
        return {key: seq for (of, key), seq in self._keys.items() if of == stretch}

    def rederive(self, stored: Stored, keys: Mapping[str, int]) -> bool:
        with self._changed:
            if self._sessions[stored.id].head != stored.head:
                return False
            for key in self.keys(stored.stretch):
                del self._keys[stored.stretch, key]
            self._keys.update({(stored.stretch, key): seq for key, seq in keys.items()})
            self._sessions[stored.id] = stored
            return True

    def is_listed(self, stored: Stored) -> bool:
        return True  # there are no columns: lists are made by the heads themselves

    def check(self) -> list[Trouble]:
        return []

    def strays(self) -> list[tuple[int, int]]:
        named = {s.stretch for s in self._sessions.values()}
        return [(stretch, len(rows)) for stretch, rows in self._rows.items() if stretch not in named]

    def missing_indexes(self) -> list[str]:
        return []

    def make_index(self, name: str) -> None:
        raise KeyError(name)

    def copy_to(self, target: Path) -> None:
        raise StoreUnavailable(self.url, "has nothing to back up: it is gone when this process ends")

    def watch(
        self,
        stop: Flag,
        followed: Callable[[], Collection[str]],
        moved: Callable[[Mapping[str, int]], None],
    ) -> None:
        while not stop.is_set():
            with self._changed:
                self._changed.wait(0.05)
            moved(self.heads(followed()))

    def close(self) -> None:
        """Nothing: what is in memory belongs to whoever holds the store."""


def _seq(row: Row) -> int:
    return row.seq


def _activity(s: Stored) -> tuple[int, str]:
    return s.folded.updated_at, s.id
