"""One connection to a PostgreSQL server, made when it is needed and made again when it was lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
from psycopg import conninfo, errors

from perdure.errors import StoreDamaged, StoreUnavailable
from perdure.journal.pipe import Pipe, Rows

T = TypeVar("T")

_DEFAULTS = {
    "connect_timeout": "10",
    "fallback_application_name": "perdure",
    # A server that vanished without a word is noticed within half a minute, not after two hours.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
_SETTINGS = (
    "default_transaction_isolation = 'read committed'",
    # A process that is stopped between two statements must not keep its sessions locked; when it wakes up it finds
    # its transaction gone and begins it again.
    "idle_in_transaction_session_timeout = '5s'",
    # Every statement here has its index. A plan made while a table was small is kept when it has grown, and must
    # not be one that reads all of it.
    "plan_cache_mode = force_generic_plan",
    "enable_seqscan = off",
    "enable_bitmapscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "jit = off",
)
NOT_OURS = "has tables by our names that are not as Perdure makes them"
CHOOSE_ANOTHER = (
    "if another program made them, choose another database; if not, restore this one from a backup"
)
_PASSING = {
    "23505",  # unique violation: another process was first; the next try sees what it did
    "25P03",  # idle in transaction for too long
    "40001",  # serialization failure
    "40P01",  # deadlock
    "57P01",  # the server is shut down,
    "57P02",  # has crashed,
    "57P03",  # or is not ready yet
}


class Link:
    """One connection. What is asked over it is asked again if the connection was lost in the middle, so it must be
    such that asking twice does no harm."""

    def __init__(self, url: str, durability: str, patience: float) -> None:
        try:
            self._address: dict[str, Any] = {**_DEFAULTS, **conninfo.conninfo_to_dict(url)}
        except psycopg.Error:
            # The driver's own words may quote the address, and with it the password.
            raise StoreUnavailable(
                "postgresql:", "the address cannot be read; it should be postgresql://user@host:port/database"
            ) from None
        self.url = masked(self._address)
        self._patience = patience
        on = "off" if durability == "process" else "on"
        self._settings = "; ".join(f"SET {s}" for s in (f"synchronous_commit = {on}", *_SETTINGS))
        self._db: Pipe | None = None

    @property
    def pid(self) -> int:
        """The server's process for this connection, or 0."""
        db = self._db
        return 0 if db is None else db.pid

    def run(self, work: Callable[[Pipe], T], tries: int = 5) -> T:
        """What `work` makes of the connection. It is done anew if the connection was lost, or if it collided."""
        with self._speaking():
            for left in reversed(range(tries)):
                try:
                    return work(self._connected(waiting=left < tries - 1))
                except psycopg.Error as why:
                    # After any error nobody knows what the connection believes: begin anew with another.
                    again = self._db is not None and left and _is_passing(why)
                    self.close()
                    if not again:
                        raise
                except BaseException:
                    self.close()
                    raise
        raise AssertionError("unreachable")

    def rows(self, sql: str, *values: object) -> Rows:
        return self.run(lambda db: db.rows(sql, *values))

    def _connected(self, waiting: bool) -> Pipe:
        if self._db is None:
            self._db = self._reconnect() if waiting else self._connect()
        return self._db

    def _connect(self) -> Pipe:
        db = psycopg.connect(**self._address, client_encoding="utf8", autocommit=True)
        db.execute(self._settings, prepare=False)
        return Pipe(db)

    def _reconnect(self) -> Pipe:
        """A server that is started anew is away for a moment only."""
        until = time.monotonic() + self._patience
        pause = 0.02
        while True:
            try:
                return self._connect()
            except psycopg.OperationalError as why:
                if time.monotonic() + pause > until:
                    raise StoreUnavailable(
                        self.url,
                        f"the connection was lost and did not come back within {self._patience:g} s ({_line(why)}); "
                        "if something was being written, look whether it is there before you write it again",
                    ) from why
            time.sleep(pause)
            pause = min(pause * 2, 0.5)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """Say the server's errors in our words, with its address and what to do about it."""
        try:
            yield
        except errors.DiskFull as why:
            raise StoreUnavailable(self.url, "its disk is full; free some space and try again") from why
        except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as why:
            raise StoreUnavailable(
                self.url, f"cannot be written ({_line(why)}); give this user the right to do so"
            ) from why
        except (errors.DataCorrupted, errors.IndexCorrupted, errors.UndefinedTable) as why:
            raise StoreDamaged(self.url, f"is damaged ({_line(why)}); restore it from a backup") from why
        except (psycopg.OperationalError, psycopg.InterfaceError) as why:
            if why.sqlstate is None:
                raise StoreUnavailable(
                    self.url,
                    f"cannot be reached ({_line(why)}); check that the server runs, and that address, database, user "
                    "and password are right",
                ) from why
            raise StoreUnavailable(self.url, f"gave up ({_line(why)}); try again") from why
        except errors.UniqueViolation as why:
            raise StoreUnavailable(self.url, f"gave up ({_line(why)}); try again") from why
        except errors.InvalidSchemaName as why:
            raise StoreUnavailable(
                self.url,
                f"has no schema to put its tables in ({_line(why)}); create the one that search_path names, or "
                "name another",
            ) from why
        except psycopg.Error as why:
            raise StoreDamaged(self.url, f"{NOT_OURS} ({_line(why)}); {CHOOSE_ANOTHER}") from why


def masked(address: dict[str, Any]) -> str:
    """The address in a form that may be shown: made of the parts that are no secret."""
    at = "".join(f"{quote(str(address[p]))}@" for p in ("user",) if address.get(p))
    host, port = str(address.get("host") or address.get("hostaddr") or ""), address.get("port")
    on = "" if host.startswith("/") else host
    query = f"?host={host}" if host.startswith("/") else ""
    database = quote(str(address.get("dbname") or ""))
    return f"postgresql://{at}{on}{f':{port}' if port else ''}/{database}{query}"


def _is_passing(why: psycopg.Error) -> bool:
    if why.sqlstate is None:
        return isinstance(why, psycopg.OperationalError | psycopg.InterfaceError)
    return why.sqlstate in _PASSING or why.sqlstate.startswith("08")


def _line(why: Exception) -> str:
    return " ".join(str(why).split())
