"""SQLite's errors in our words: which file it is, and what to do about it.

Whoever uses a store meets two of them. `StoreUnavailable` passes once something outside is put right; `StoreDamaged`
is about the file itself, and after it nothing is to be moved about in there.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from perdure.errors import StoreDamaged, StoreUnavailable

FULL = "the disk is full; free some space and try again"
PATIENCE = 60.0
"""For how many seconds another program may keep the file locked."""


class Speaking:
    """A block in which an error of SQLite becomes one of ours."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damaged = False
        """Something was found damaged: nothing is to be moved about in the file."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, apsw.Error):
            spoken = said(self._path, error)
            self.damaged |= isinstance(spoken, StoreDamaged) or isinstance(error, apsw.IOError)
            raise spoken from error


def said(path: Path, why: apsw.Error) -> StoreUnavailable | StoreDamaged:
    """What an error of SQLite means for whoever uses the store, and what to do."""
    file = str(path)
    match why:
        case apsw.FullError():
            return StoreUnavailable(file, FULL)
        case apsw.IOError() if getattr(why, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
            return StoreUnavailable(file, FULL)  # there was no room to open it in
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            advice = "check the file, its folder and their permissions"
            return StoreUnavailable(file, f"cannot be written ({why}); {advice}")
        case apsw.NotADBError():
            advice = "if it was one, run `perdure doctor --salvage FILE`"
            return StoreDamaged(file, f"is not an SQLite database; nothing was changed; {advice}")
        case apsw.BusyError():
            advice = "close that program"
            return StoreUnavailable(
                file, f"another program has kept it locked for {PATIENCE:.0f} s; {advice}"
            )
        case apsw.SQLError() if "no such index" in str(why):
            return StoreUnavailable(file, f"lacks an index ({why}); `perdure doctor` makes it anew")
        case apsw.IOError():
            return StoreUnavailable(file, f"the disk failed ({why}); check it, then try again")
        case _:
            return StoreDamaged(
                file, f"is damaged ({why}); run `perdure doctor --salvage FILE` to save what is intact"
            )
