"""What the children of the upgrade's tests do: each opens a store of layout 1, and dies on the way if it is told to."""

from pathlib import Path
from typing import Any

import apsw

from perdure import journal
from perdure.errors import PerdureError
from perdure.journal.clock import SystemClock
from perdure.journal.postgres import PostgresStore
from perdure.journal.sqlite import SqliteStore
from tests.golden.layout_1 import LATER, unlike
from tests.kill.jobs import FILE_POINTS, Fate, MortalFiles
from tests.kill.template import Mouth

STATEMENT = "statement"
AFTER = "after a statement"


def mortal_store(url: str, fate: Fate, vfs: str | None, announce: Any) -> SqliteStore | PostgresStore:
    """The store at `url`, opened by a process that dies at a statement of the opening, or of the answer to one."""
    if url.startswith("postgres"):

        class MortalPostgres(PostgresStore):
            def _migrate(self, db: Any, *more: Any) -> None:
                super()._migrate(_MortalPipe(db, fate), *more)  # type: ignore[arg-type]

        return MortalPostgres(url, SystemClock(), announce=announce)

    class MortalSqlite(SqliteStore):
        def _connect(self) -> apsw.Connection:
            db = super()._connect()
            db.exec_trace = lambda *_: fate.at(STATEMENT) is None
            return db

    return MortalSqlite(Path(url.removeprefix("sqlite:///")), SystemClock(), vfs=vfs, announce=announce)


class _MortalPipe:
    def __init__(self, pipe: Any, fate: Fate) -> None:
        self._pipe, self._fate = pipe, fate

    def rows(self, sql: str, *values: object) -> Any:
        self._fate.at(STATEMENT)
        found = self._pipe.rows(sql, *values)
        self._fate.at(AFTER)
        return found


async def upgrade(mouth: Mouth, url: str, point: str = "", times: int = 0) -> None:
    """Open a store and close it again. Says where the backup is, and when the store is open."""
    mouth.say("begun")
    fate = Fate(point, times)
    files = MortalFiles(fate) if point in FILE_POINTS else None
    store = mortal_store(url, fate, files and files.name, lambda sentence: mouth.say({"announced": sentence}))
    mouth.say("open")
    store.close()


async def upgrade_with_others(mouth: Mouth, url: str, short: bool) -> None:
    """Open the store at the same moment as others do, and say what it tells otherwise than it should."""
    mouth.say("ready")
    mouth.wait()
    async with await journal.open(url, clock=LATER, announce=lambda s: mouth.say({"announced": s})) as opened:
        mouth.say({"unlike": await unlike(opened, short=short)})


async def open_once(mouth: Mouth, url: str) -> None:
    """Open a store, and say why it was refused."""
    mouth.say("begun")
    try:
        async with await journal.open(url, announce=mouth.say):
            mouth.say("open")
    except PerdureError as why:
        mouth.say({"refused": type(why).__name__, "why": str(why)})
