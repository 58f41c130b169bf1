"""A store's place on disk: private, local, and locked by one writer at a time."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from perdure.errors import NOT_NATIVE, StoreUnavailable

try:
    import fcntl
except ImportError:
    raise ImportError(NOT_NATIVE) from None

NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "afs",
    "ncpfs",
    "9p",
    "ceph",
    "glusterfs",
    "lustre",
    "beegfs",
}
"""File systems on which locks or shared memory do not reach every machine. `fuse.*` is refused where its name says
that it reaches over a network."""
_OCTAL = re.compile(r"\\([0-7]{3})")
_NETWORK_FUSE = ("sshfs", "s3fs", "gcsfuse", "rclone", "davfs", "glusterfs", "ceph", "smbnetfs", "goofys")


def prepare(path: Path) -> None:
    """Make the folder and the file, both private, if they are not there. Raises `StoreUnavailable`."""
    utf8_name(path)
    try:
        make_private(path.parent)
        if path.is_dir():
            raise StoreUnavailable(str(path), "is a folder; name the file the store should be in")
        if path.exists() and not path.is_file():
            raise StoreUnavailable(str(path), "is no ordinary file; name the file the store should be in")
        refuse_network(path)
        # SQLite gives its -wal and -shm files the permissions of the file they belong to.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as why:
        raise StoreUnavailable(str(path), _advice(why)) from why


def is_there(path: Path) -> bool:
    """False if there is certainly no file of this name; what keeps us from looking, opening it will say."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def make_private(folder: Path) -> None:
    """Make the folder, and those it lies in, for nobody else to look into. What is there stays as it is."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)


def utf8_name(path: Path) -> str:
    """The file's name as SQLite takes it: its bytes, read as UTF-8 whatever the locale of this process is."""
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError:
        raise StoreUnavailable(str(path), "has a name that is not UTF-8; SQLite needs one that is") from None


def refuse_network(path: Path, mounts: str | None = None) -> None:
    """Raise `StoreUnavailable` if the file would lie on a network file system, by `mounts` or as the system says."""
    kind = file_system(path.resolve(), _mounts() if mounts is None else mounts)
    if kind in NETWORK or (kind.startswith("fuse") and any(name in kind for name in _NETWORK_FUSE)):
        raise StoreUnavailable(
            str(path),
            f"lies on a network file system ({kind}), where several machines cannot lock one SQLite file safely; "
            "choose a local folder, or PostgreSQL for several machines",
        )


def file_system(path: Path, mounts: str) -> str:
    """The type of the file system `path` lies on, by a table in the form of /proc/self/mounts."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[1]).rstrip("/") or "/"
        inside = point == "/" or path == Path(point) or Path(point) in path.parents
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def _mounts() -> str:
    try:
        return Path("/proc/self/mounts").read_text("utf-8", "surrogateescape")
    except OSError:
        return ""  # not Linux: macOS mounts network shares under /Volumes, and its locks do reach the server


def discard(path: Path, *endings: str) -> None:
    """Remove the files whose names are that of `path` with these endings, if they are there."""
    for ending in endings:
        Path(f"{path}{ending}").unlink(missing_ok=True)


class LockFile:
    """Writers of one store queue here, in the kernel and without polling, before they touch the database.

    A lock belongs to an open file and dies with its process, so nothing is ever left locked behind.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as why:
            raise StoreUnavailable(str(path), _advice(why)) from why

    def __enter__(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._fd)


def shared_folder() -> Path:
    """Where processes of this user leave their locks when the store has no folder of its own."""
    folder = Path(tempfile.gettempdir()) / f"perdure-{os.getuid()}"
    if folder.is_symlink() or (folder.exists() and folder.stat().st_uid != os.getuid()):
        # Everybody may write where temporary files lie. Whoever made this folder could make us look dead.
        raise StoreUnavailable(
            str(folder), "belongs to somebody else; remove it, or set TMPDIR to a folder of yours"
        )
    return folder / "processes"


class Life:
    """A lock held for as long as this process lives: others see its death at once, by trying the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_private(path.parent)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as why:
            raise StoreUnavailable(str(path), _advice(why)) from why

    def end(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self._fd)


def is_dead(lock: Path) -> bool:
    """True if the process that held this lock is certainly gone; False if it lives or nobody can tell."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False  # not our file system, or not our file: only the lease can tell
    try:
        # Shared: two who look at once must not take each other for the living.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _advice(why: OSError) -> str:
    name = os.strerror(why.errno) if why.errno else str(why)
    return f"cannot be opened ({name}); check that its folder exists and may be written by you"
