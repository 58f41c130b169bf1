"""A connection to a PostgreSQL server over which several statements leave in one packet.

The driver has a pipeline, too, and in it every statement still costs a packet, a cursor and three waits: an append
would spend more time there than in the server.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import abc, errors, pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq.abc import PGresult
from psycopg.types.numeric import Int8BinaryDumper

Rows = list[tuple[Any, ...]]
Question = tuple[str, Sequence[object]]


class Wake(NamedTuple):
    payload: str
    pid: int


class Pipe:
    """One connection. In a statement `$1`, `$2`... stand for values, with a cast where it does not tell their type.

    After an error it is of no more use, and nobody knows what became of a statement that was under way.
    """

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        # The driver would send an integer as int2, int4 or int8, by its value.
        db.adapters.register_dumper(int, Int8BinaryDumper)
        self._db = db
        self._pg = db.pgconn
        self._adapt: abc.Transformer = Transformer(db)
        self._prepared: dict[str, bytes] = {}
        self.pid = db.info.backend_pid
        """The server's process at the other end."""

    def rows(self, sql: str, *values: object) -> Rows:
        return self.together([(sql, values)])[0]

    def together(self, questions: Sequence[Question]) -> list[Rows]:
        """Ask all of these in one round trip; the rows of each."""
        self._pg.enter_pipeline_mode()
        new = [self._send(sql, values) for sql, values in questions]
        self._pg.pipeline_sync()
        self._flush()
        answers = []
        for is_new in new:
            if is_new:
                self._answer()
            answers.append(self._answer())
        self._result()  # of the sync
        self._pg.exit_pipeline_mode()
        return answers

    def heard(self, timeout: float) -> list[Wake]:
        """The notifications that have come: those that came beside an answer, or the first within the time."""
        heard = self._notifications()
        if not heard and self._wait(select.POLLIN, timeout):
            heard = self._notifications()
        return heard

    def _notifications(self) -> list[Wake]:
        return [Wake(n.extra.decode(), n.be_pid) for n in iter(self._pg.notifies, None)]

    def close(self) -> None:
        self._db.close()

    def _send(self, sql: str, values: Sequence[object]) -> bool:
        name = self._prepared.get(sql)
        if is_new := name is None:
            name = self._prepared[sql] = f"perdure_{len(self._prepared)}".encode()
            self._pg.send_prepare(name, sql.encode())
        packed = self._adapt.dump_sequence(values, [PyFormat.AUTO] * len(values))
        self._pg.send_query_prepared(name, packed, self._adapt.formats, result_format=pq.Format.BINARY)
        return is_new

    def _flush(self) -> None:
        while self._pg.flush():
            # Read, too: a server whose answers nobody takes stops listening.
            self._wait(select.POLLIN | select.POLLOUT)

    def _answer(self) -> Rows:
        result = self._result()
        if result is None or result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise _error(result)
        self._result()  # None, which ends the answer
        if not result.ntuples:
            return []
        self._adapt.set_pgresult(result)
        return self._adapt.load_rows(0, result.ntuples, tuple)

    def _result(self) -> PGresult | None:
        while self._pg.is_busy():
            self._wait(select.POLLIN)
        return self._pg.get_result()

    def _wait(self, ready: int, timeout: float | None = None) -> bool:
        poll = select.poll()
        poll.register(self._pg.socket, ready)
        found = poll.poll(None if timeout is None else timeout * 1000)
        if found and found[0][1] & ~select.POLLOUT:
            self._pg.consume_input()
        return bool(found)


def _error(result: PGresult | None) -> psycopg.Error:
    if result is None:
        return psycopg.OperationalError("the connection is lost")
    error = errors.error_from_result(result)
    return error if error.sqlstate else psycopg.OperationalError(str(error))
