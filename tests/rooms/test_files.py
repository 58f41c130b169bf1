"""A store's place on disk: private, local, and locked by processes that live."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.errors import StoreUnavailable
from perdure.journal.files import (
    Life,
    LockFile,
    discard,
    file_system,
    is_dead,
    make_private,
    prepare,
    refuse_network,
    shared_folder,
    utf8_name,
)

MOUNTS = r"""
/dev/sda1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /home nfs4 rw,vers=4.2 0 0
/dev/sdb1 /home/ada/local xfs rw 0 0
//server/share /mnt/two\040words\134and\011more cifs rw 0 0
ada@server: /mnt/ssh fuse.sshfs rw 0 0
/dev/fuse /mnt/own fuse.gocryptfs rw 0 0
tmpfs /run/a tmpfs rw 0 0
overlay /run/a overlay rw 0 0
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/perdure.db", "ext4"),
        ("/home/perdure.db", "nfs4"),
        ("/home", "nfs4"),
        ("/homes/perdure.db", "ext4"),
        ("/home/ada/perdure.db", "nfs4"),
        ("/home/ada/local/perdure.db", "xfs"),
        ("/mnt/two words\\and\tmore/perdure.db", "cifs"),
        ("/mnt/ssh/perdure.db", "fuse.sshfs"),
        ("/mnt/own/perdure.db", "fuse.gocryptfs"),
        ("/run/a/perdure.db", "overlay"),  # what was mounted last lies on top
    ],
)
def test_a_file_lies_on_the_file_system_mounted_nearest_above_it(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind


@pytest.mark.parametrize(
    "kind",
    [
        *(
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
        ),
        *(
            "fuse.sshfs",
            "fuse.s3fs",
            "fuse.gcsfuse",
            "fuse.rclone",
            "fuse.davfs",
            "fuse.glusterfs",
            "fuse.ceph",
        ),
    ],
)
def test_a_network_file_system_is_refused_with_a_sentence(kind: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=rf"perdure\.db: lies on a network file system \({kind}\)"):
        refuse_network(tmp_path / "perdure.db", f"server:/x {tmp_path} {kind} rw 0 0\n")


@pytest.mark.parametrize("kind", ["ext4", "btrfs", "overlay", "tmpfs", "fuse.gocryptfs", "fuseblk", ""])
def test_a_local_file_system_is_not(kind: str, tmp_path: Path) -> None:
    refuse_network(tmp_path / "perdure.db", f"/dev/x {tmp_path} {kind} rw 0 0\n")


def test_a_link_into_a_network_file_system_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    with pytest.raises(StoreUnavailable, match="network"):
        refuse_network(tmp_path / "near" / "perdure.db", f"server:/x {tmp_path}/far nfs rw 0 0\n")


def test_what_is_made_is_private_and_what_was_there_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    prepare(tmp_path / "a" / "b" / "perdure.db")
    made = [tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "perdure.db"]
    assert [file.stat().st_mode & 0o777 for file in made] == [0o755, 0o700, 0o700, 0o600]
    made[3].chmod(0o640)
    made[3].write_bytes(b"kept")
    prepare(made[3])
    assert (made[3].read_bytes(), made[3].stat().st_mode & 0o777) == (b"kept", 0o640)


def test_a_folder_that_cannot_be_made_names_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        StoreUnavailable, match=r"file/perdure\.db: cannot be opened \(.*check that its folder"
    ):
        prepare(tmp_path / "file" / "perdure.db")


def test_a_name_that_is_not_text_is_refused_because_sqlite_needs_text(tmp_path: Path) -> None:
    assert utf8_name(tmp_path / "저널 🦆.db") == f"{tmp_path}/저널 🦆.db"
    with pytest.raises(StoreUnavailable, match="has a name that is not UTF-8"):
        prepare(tmp_path / os.fsdecode(b"\xff.db"))
    assert not list(tmp_path.iterdir())


def test_only_what_is_named_is_removed(tmp_path: Path) -> None:
    for name in ("x.db", "x.db-wal", "x.db.lock", "y.db-wal"):
        (tmp_path / name).touch()
    discard(tmp_path / "x.db", "-wal", "-shm", ".lock")
    assert {file.name for file in tmp_path.iterdir()} == {"x.db", "y.db-wal"}


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    trying = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def others_get_it() -> bool:
        return (
            subprocess.run([sys.executable, "-c", trying, lock], capture_output=True, check=False).returncode
            == 0
        )

    ours = LockFile(lock)
    with ours:
        assert not others_get_it()
    assert others_get_it()
    ours.close()


def test_a_process_is_dead_when_its_lock_is_free_and_not_before(tmp_path: Path) -> None:
    lock = tmp_path / "processes" / "p.lock"
    assert not is_dead(lock)  # never seen: nobody can tell
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys, pathlib\nfrom perdure.journal.files import Life\n"
         "life = Life(pathlib.Path(sys.argv[1])); print('here', flush=True); sys.stdin.read()", lock],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"here\n"
        assert not is_dead(lock)
        child.kill()
        child.wait()
        assert is_dead(lock)
        assert is_dead(lock)  # to look is not to hold
    life = Life(lock)
    with pytest.raises(StoreUnavailable):
        Life(lock)
    life.end()
    assert not lock.exists()


def test_a_folder_for_locks_that_somebody_else_made_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / f"perdure-{os.getuid()}"
    assert shared_folder() == own / "processes"
    make_private(own)
    assert shared_folder() == own / "processes"
    own.rmdir()
    own.symlink_to(tmp_path)
    with pytest.raises(StoreUnavailable, match="belongs to somebody else"):
        shared_folder()
