"""What was acknowledged is on the disk after the power went, and these tests would notice if it were not.

`PERDURE_ROUNDS=full` looks at thousands of images. A failure names the seed and the image, and leaves the image behind.
"""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.kill.power import Created, Image, Marked, Recorder, Synced, Truncated, Wrote, everything, images

ROUNDS = 2400 if os.environ.get("PERDURE_ROUNDS") == "full" else 240
SEED = int(os.environ.get("PERDURE_SEED", "1"))


def body(seq: int) -> bytes:
    return Random(seq).randbytes(seq * 331 % 3000)


def run(recorder: Recorder, home: Path, journal_mode: str, synchronous: str, commits: int = 60) -> None:
    """Rows beside a head row, one to three a commit, with every kind of checkpoint in between."""
    home.mkdir()
    db = apsw.Connection(str(home / "x.db"), vfs=recorder.name)
    db.pragma("page_size", 1024)
    db.pragma("synchronous", synchronous)
    assert db.pragma("journal_mode", journal_mode) == journal_mode
    with db:
        db.execute("create table event(seq integer primary key, body)")
        db.execute("create table head(last)")
        db.execute("insert into head values(0)")
    seq = 0
    for commit in range(1, commits + 1):
        with db:
            for _ in range(1 + commit % 3):
                seq += 1
                db.execute("insert into event values(?, ?)", (seq, body(seq)))
            db.execute("update head set last = ?", (seq,))
        recorder.mark(seq)
        if journal_mode == "wal":
            checkpoint(db, commit)
    db.close()


def checkpoint(db: apsw.Connection, commit: int) -> None:
    if commit % 7 == 0:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    if commit % 16 == 0:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    if commit % 25 == 0:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def offences(image: Image, home: Path) -> Iterator[str]:
    """What is wrong with the image; the files stay for whoever wants to look."""
    shutil.rmtree(home, ignore_errors=True)
    image.write_to(home)
    try:
        db = apsw.Connection(str(home / "x.db"))
        try:
            yield from offences_of(db, image.acknowledged)
        finally:
            db.close()
    except apsw.Error as error:
        yield f"{type(error).__name__}: {error}"


def offences_of(db: apsw.Connection, acknowledged: int) -> Iterator[str]:
    if db.pragma("integrity_check") != "ok":
        yield "it is damaged"
    if not db.table_exists(None, "head"):
        if acknowledged or any(db.execute("select * from sqlite_schema")):
            yield f"{acknowledged} was acknowledged, the tables are missing"
        return
    last = db.execute("select last from head").get
    seqs = [
        seq for seq, stored in db.execute("select seq, body from event order by seq") if stored == body(seq)
    ]
    if seqs != list(range(1, last + 1)):
        yield f"the head says {last}, the rows are {seqs}"
    if last < acknowledged:
        yield f"{acknowledged} was acknowledged, {last} is there"


SOUND = [("wal", "full"), ("wal", "extra"), ("delete", "extra"), ("truncate", "full"), ("persist", "full")]
UNSOUND = [("wal", "normal"), ("wal", "off"), ("delete", "full"), ("delete", "off"), ("memory", "full")]


@pytest.mark.parametrize(("journal_mode", "synchronous"), SOUND)
def test_every_image_opens_and_holds_what_was_acknowledged(
    tmp_path: Path, journal_mode: str, synchronous: str
) -> None:
    with Recorder() as recorder:
        run(recorder, tmp_path / "run", journal_mode, synchronous)
    count = 0
    for image in images(recorder.log, ROUNDS, SEED):
        assert list(offences(image, tmp_path / "image")) == [], image.about
        count += 1
    assert count == ROUNDS


@pytest.mark.parametrize(("journal_mode", "synchronous"), UNSOUND)
def test_a_store_that_syncs_too_little_is_found_out(
    tmp_path: Path, journal_mode: str, synchronous: str
) -> None:
    with Recorder() as recorder:
        run(recorder, tmp_path / "run", journal_mode, synchronous)
    found = [o for image in images(recorder.log, 240, SEED) for o in offences(image, tmp_path / "image")]
    if journal_mode == "wal" and synchronous == "normal":
        # This one is only forgetful, and it is the one we would use by mistake.
        assert all("was acknowledged" in offence for offence in found)
    assert len(found) > 5


def test_the_log_of_a_run_gives_the_files_of_that_run(tmp_path: Path) -> None:
    with Recorder() as recorder:
        run(recorder, tmp_path / "run", "wal", "full")
        assert everything(recorder.log) == contents(tmp_path / "run")
        # A second recorder begins with what is there.
        with Recorder() as second:
            db = apsw.Connection(str(tmp_path / "run" / "x.db"), vfs=second.name)
            db.execute("update head set last = 7")
            db.close()
        assert everything(second.log) == contents(tmp_path / "run")
        assert all(len(image.files["x.db"]) > 10_000 for image in images(second.log, 50, SEED) if image.files)


def contents(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.iterdir() if not path.name.endswith("-shm")}


def test_several_connections_and_threads_share_one_log(tmp_path: Path) -> None:
    with Recorder() as recorder:
        db = apsw.Connection(str(tmp_path / "x.db"), vfs=recorder.name)
        db.pragma("journal_mode", "wal")
        db.execute("create table t(who, what)")

        def write(who: int) -> None:
            own = apsw.Connection(str(tmp_path / "x.db"), vfs=recorder.name)
            own.set_busy_timeout(20_000)
            for what in range(30):
                own.execute("insert into t values(?, ?)", (who, what))
                recorder.mark(what)
            own.close()

        threads = [threading.Thread(target=write, args=(who,)) for who in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert db.execute("select count(*) from t").get == 90
        assert everything(recorder.log) == contents(tmp_path)
        db.close()
    assert sum(isinstance(entry, Marked) for entry in recorder.log) == 90
    assert [entry.file for entry in recorder.log if isinstance(entry, Created)].count("x.db") == 1


def test_the_same_seed_gives_the_same_images_and_another_gives_others(tmp_path: Path) -> None:
    with Recorder() as recorder:
        run(recorder, tmp_path / "run", "wal", "full", commits=10)
    one, again, other = (list(images(recorder.log, 100, seed)) for seed in (1, 1, 2))
    assert one == again
    assert [image.files for image in one] != [image.files for image in other]


def test_the_power_goes_just_before_and_just_after_every_sync() -> None:
    log = [Created("x.db", False), Wrote("x.db", 0, b"a"), Synced("x.db"), Marked(1)]
    log += [Wrote("x.db", 0, b"b"), Synced("x.db"), Marked(2)]
    held = {(image.acknowledged, image.files.get("x.db")) for image in images(log, 100, SEED)}
    assert held >= {(0, None), (0, b""), (0, b"a"), (1, b"a"), (1, b"b"), (2, b"b")}
    assert {data for acknowledged, data in held if acknowledged} == {b"a", b"b"}


def test_a_write_that_was_not_synced_is_there_whole_in_part_or_not_at_all() -> None:
    old, new = b"o" * 2048, b"n" * 2048
    log = [Created("x.db", False, old), Wrote("x.db", 0, new), Wrote("x.db", 2048, new)]
    held = {image.files["x.db"] for image in images(log, 2000, SEED)}
    sectors = {tuple(data[at : at + 1] for at in range(0, len(data), 512)) for data in held}
    assert all(
        data[at : at + 512] == data[at : at + 1] * 512 for data in held for at in range(0, len(data), 512)
    )
    first = {s[:4] for s in sectors}
    assert {(b"o",) * 4, (b"n",) * 4, (b"n", b"o", b"o", b"o"), (b"o", b"n", b"o", b"n")} <= first
    # The second is there although the first is not, and the file is longer although nothing is in it yet.
    assert (b"o",) * 4 + (b"n",) * 4 in sectors
    assert (b"o",) * 4 + (b"\0",) * 4 in sectors
    assert (b"n",) * 4 in sectors


def test_a_truncation_that_was_not_synced_may_not_have_happened() -> None:
    log = [Created("x.db", False, b"o" * 4), Truncated("x.db", 0), Wrote("x.db", 0, b"n")]
    held = {image.files["x.db"] for image in images(log, 3000, SEED)}
    assert held == {b"oooo", b"nooo", b"", b"n", b"\0"}
