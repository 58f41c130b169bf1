"""The log: one line of JSON for each thing worth knowing later, in `<home>/logs/perdure.log`.

A room says `logging.getLogger("perdure.journal").info("session created", extra={"session": id})` and knows nothing
of this file; only a door decides that a log is kept. What goes into a log is read by others: names and numbers, never
what somebody wrote and never a secret.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

LIMIT = 5_000_000
"""Bytes after which a log becomes `perdure.log.1`, in place of the one that had that name."""


def keep(home: Path) -> Path:
    """From now on keep the log of this process in `home`, which is made if need be; several may share it."""
    file = home / "logs" / "perdure.log"
    handler = _LogFile(file)
    handler.setFormatter(_Line())
    logger = logging.getLogger("perdure")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    # What is in the file need not be on the screen as well.
    logger.propagate = False
    return file


class _Line(logging.Formatter):
    _usual = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "room": record.name.removeprefix("perdure."),
            "event": record.getMessage(),
            "pid": record.process,
        }
        line |= {key: value for key, value in vars(record).items() if key not in self._usual}
        if record.exc_info and record.exc_info[0]:
            # Only its name: what an exception says may quote what somebody wrote.
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line, default=str)


class _LogFile(logging.Handler):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        line = (self.format(record) + "\n").encode()
        try:
            with _locked(self._file) as descriptor:
                os.write(descriptor, line)
                if os.fstat(descriptor).st_size > LIMIT:
                    self._file.replace(self._file.with_name("perdure.log.1"))
        except OSError as error:
            # Losing a line of the log must not cost anybody a turn, but somebody should hear of it.
            print(f"perdure: cannot write {self._file}: {error.strerror}", file=sys.stderr)


@contextmanager
def _locked(file: Path) -> Iterator[int]:
    """The log, open for appending and nobody else's for the moment."""
    if not file.parent.is_dir():
        for folder in reversed(file.parents):
            folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # While we waited for the lock, another process may have given the file its other name.
            if _is_at(descriptor, file):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False
