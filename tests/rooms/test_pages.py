"""Whatever happened to a file, the rows on the pages that were spared are found, and nothing that was deleted is."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perdure.journal.pages import Row, Scan, rows

SIZES = [1024, 2048, 4096, 8192, 16384, 32768, 65536]
Stored = dict[int, tuple[object, ...]]


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def database(path: Path, page_size: int = 1024, *, wal: bool = True, secure: bool = True) -> apsw.Connection:
    db = apsw.Connection(str(path))
    db.pragma("page_size", page_size)
    if wal:
        db.pragma("journal_mode", "wal")
        db.pragma("wal_autocheckpoint", 0)
    db.pragma("secure_delete", "on" if secure else "off")
    db.pragma("synchronous", "off")
    db.execute("create table event(seq integer primary key, one, two)")
    db.execute("create index by_one on event(one)")
    return db


def fill(db: apsw.Connection, count: int, seed: int = 1, longest: int = 300) -> None:
    chance = random.Random(seed)
    with db:
        for seq in range(1, count + 1):
            length = chance.choice(
                [0, 10, chance.randrange(longest), longest if chance.random() < 0.1 else 20]
            )
            db.execute("insert into event values(?, ?, ?)", (seq, f"name {seq} ✓", chance.randbytes(length)))


def stored(db: apsw.Connection) -> Stored:
    return {seq: (None, one, two) for seq, one, two in db.execute("select seq, one, two from event")}


def seen_by_sqlite(path: Path) -> Stored:
    with folder() as copy:
        for suffix in ("", "-wal"):
            if path.with_name(path.name + suffix).exists():
                shutil.copy(path.with_name(path.name + suffix), copy / f"x.db{suffix}")
        db = apsw.Connection(str(copy / "x.db"))
        try:
            return stored(db)
        finally:
            db.close()


def events(found: list[Row]) -> Stored:
    return {row.rowid: row.values for row in found if len(row.values) == 3 and row.values[0] is None}


def sure(path: Path) -> Stored:
    return events([row for row in rows(path) if not row.doubtful])


def missing(path: Path, expected: Stored) -> set[int]:
    found = {(row.rowid, row.values) for row in rows(path)}
    return {seq for seq, values in expected.items() if (seq, values) not in found}


def closed(path: Path, page_size: int = 1024, count: int = 200, longest: int = 300) -> Stored:
    """A database without a WAL that has all kinds of pages: interior, overflow, index, free."""
    db = database(path, page_size)
    fill(db, count, longest=longest)
    db.execute("create table gone(x)")
    db.execute("insert into gone values(randomblob(20000))")
    db.execute("drop table gone")
    expected = stored(db)
    db.close()
    return expected


values = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(
        [0, 1, -1, 127, 128, -129, 2**15, 2**23, -(2**23) - 1, 2**31, 2**47, -(2**47) - 1, 2**63 - 1]
    ),
    st.floats(allow_nan=False),
    st.text(max_size=40),
    st.binary(max_size=40),
    st.builds(
        lambda length, seed: random.Random(seed).randbytes(length), st.integers(0, 100_000), st.integers(0, 9)
    ),
    st.builds(
        lambda length, letter: letter * length, st.integers(0, 30_000), st.sampled_from("a\0é\u2028😀")
    ),
)
tables = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1), values, values), max_size=30, unique_by=lambda row: row[0]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(tables, st.sampled_from(SIZES), st.booleans())
def test_every_value_comes_back_as_it_was_stored(
    table: list[tuple[int, object, object]], page_size: int, wal: bool
) -> None:
    with folder() as home:
        db = database(home / "x.db", page_size, wal=wal)
        for row in table:
            db.execute("insert into event values(?, ?, ?)", row)
        root = db.execute("select rootpage from sqlite_schema where name = 'event'").get
        scan = Scan()
        found = list(rows(home / "x.db", scan))
        db.close()
        assert {r.rowid: r.values for r in found if r.root == root} == {i: (None, a, b) for i, a, b in table}
        assert not any(row.doubtful for row in found)
        assert (scan.unreadable_cells, scan.unknown_pages, scan.notes) == (0, 0, [])
        assert scan.page_size == page_size


def test_the_schema_itself_is_among_the_rows_and_names_the_roots(tmp_path: Path) -> None:
    db = database(tmp_path / "x.db")
    fill(db, 50)
    schema = {row.rowid: row.values for row in rows(tmp_path / "x.db") if row.root == 1}
    expected = list(db.execute("select rowid, type, name, tbl_name, rootpage, sql from sqlite_schema"))
    db.close()
    assert schema == {row[0]: row[1:] for row in expected}


def test_text_that_is_not_utf_8_keeps_its_bytes(tmp_path: Path) -> None:
    db = database(tmp_path / "x.db")
    db.execute("insert into event values(1, cast(x'ff41eda080' as text), 'ok')")
    db.close()
    _, text, _ = sure(tmp_path / "x.db")[1]
    assert isinstance(text, str)
    assert text.encode("utf-8", "surrogateescape") == b"\xffA\xed\xa0\x80"


def test_a_missing_file_is_the_only_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(rows(tmp_path / "none.db"))
    (tmp_path / "empty.db").touch()
    assert list(rows(tmp_path / "empty.db")) == []


@pytest.mark.parametrize("secure", [True, False])
def test_rows_that_were_deleted_or_overwritten_are_not_found(tmp_path: Path, secure: bool) -> None:
    db = database(tmp_path / "x.db", secure=secure)
    chance = random.Random(2)
    for turn in range(6):
        start = turn * 1000
        with db:
            for seq in range(start, start + 150):
                db.execute(
                    "insert into event values(?, ?, ?)",
                    (seq, "first", chance.randbytes(chance.randrange(900))),
                )
        db.execute("update event set two = 'second' where seq % 3 = 0")
        db.execute("delete from event where seq % 1000 between ? and ?", (turn * 10, turn * 10 + 60))
        if turn % 2:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        assert sure(tmp_path / "x.db") == stored(db)
        assert not any(row.doubtful for row in rows(tmp_path / "x.db"))
    db.execute("delete from event where seq > 2500")
    assert db.pragma("freelist_count") > 20
    expected = stored(db)
    db.close()
    scan = Scan()
    found = list(rows(tmp_path / "x.db", scan))
    assert events(found) == expected
    assert len(found) == len(expected) + 2
    assert scan.notes == []


def test_after_a_vacuum_that_is_not_checkpointed_the_pages_left_over_are_not_read(tmp_path: Path) -> None:
    db = database(tmp_path / "x.db", secure=False)
    fill(db, 300)
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    db.execute("delete from event where seq > 10")
    db.execute("vacuum")
    expected = stored(db)
    found = list(rows(tmp_path / "x.db"))
    db.close()
    assert events(found) == expected
    assert len(found) == len(expected) + 2


def test_with_any_page_destroyed_the_rows_on_all_others_are_found(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    expected = closed(path, longest=3000)
    whole = path.read_bytes()
    home = {row.rowid: row.page for row in rows(path)}
    long = {seq for seq, values in expected.items() if len(values[2]) > 900}
    assert len(long) > 10
    chance = random.Random(3)
    for page in range(1, len(whole) // 1024 + 1):
        for junk in (chance.randbytes(1024), bytes(1024), whole[1024 * (page % 7) :][:1024]):
            path.write_bytes(whole[: 1024 * (page - 1)] + junk + whole[1024 * page :])
            lost = missing(path, expected)
            elsewhere = {seq for seq in lost if home[seq] != page}
            assert elsewhere <= long, f"page {page}"
            # A page can be part of one long row.
            assert len(elsewhere) <= 1, f"page {page}"


def test_a_page_whose_first_sector_is_lost_gives_the_rows_of_its_other_sectors(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    expected = closed(path, page_size=8192, count=400, longest=200)
    whole = path.read_bytes()
    leaves = sorted({row.page for row in rows(path)} - {1})
    for page in leaves:
        here = {row.rowid for row in rows(path) if row.page == page}
        at = 8192 * (page - 1)
        path.write_bytes(whole[:at] + bytes(512) + whole[at + 512 :])
        lost = missing(path, expected)
        assert lost <= here
        assert len(lost) < 20 < len(here)
        path.write_bytes(whole)


def test_one_wrong_byte_costs_one_row_at_most(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    expected = closed(path, count=120)
    whole, total = path.read_bytes(), len(list(rows(path)))
    chance = random.Random(4)
    headers = [page + n for page in range(0, len(whole), 1024) for n in (0, 1, 3, 4, 5, 6, 7, 9)]
    places = [*range(120), *headers, *(chance.randrange(len(whole)) for _ in range(250))]
    for place in places:
        for other in {whole[place] ^ 1 << chance.randrange(8), chance.randrange(256)}:
            path.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
            assert len(missing(path, expected)) <= 1, f"byte {place} is {other}"
            # It is there with another value, or it is counted.
            scan = Scan()
            assert len(list(rows(path, scan))) + scan.unreadable_cells >= total, f"byte {place} is {other}"
            assert not scan.unreadable_cells or scan.notes


def test_a_truncated_file_gives_what_lies_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    expected = closed(path)
    whole = path.read_bytes()
    home = {row.rowid: row.page for row in rows(path)}
    cuts = [
        n
        for page in range(0, len(whole), 1024)
        for n in (page, page + 1, page + 100, page + 512, page + 1023)
    ]
    for cut in cuts:
        path.write_bytes(whole[:cut])
        scan = Scan()
        found = {(row.rowid, row.values) for row in rows(path, scan) if not row.doubtful}
        kept = {s for s, values in expected.items() if home[s] * 1024 <= cut}
        assert kept <= {seq for seq, _ in found}, f"cut at {cut}"
        assert found - {(s, v) for s, v in expected.items()} <= set(schema(found)), f"cut at {cut}"
        assert scan.notes or cut == 0


def schema(found: set[tuple[int, tuple[object, ...]]]) -> list[tuple[int, tuple[object, ...]]]:
    return [row for row in found if row[1][0] in ("table", "index")]


def test_junk_at_the_end_hides_nothing_and_is_never_taken_for_granted(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    expected = closed(path)
    whole = path.read_bytes()
    for junk in (b"junk" * 999, random.Random(5).randbytes(50_000), whole[1024 * 3 :]):
        path.write_bytes(whole + junk)
        scan = Scan()
        certain = [row for row in rows(path, scan) if not row.doubtful]
        assert events(certain) == expected
        assert len(certain) == len(expected) + 2
        assert "past the end" in " ".join(scan.notes)


@pytest.mark.parametrize("page_size", SIZES)
@pytest.mark.parametrize("damage", ["header", "page", "size"])
def test_without_its_header_a_file_still_tells_its_page_size(
    tmp_path: Path, page_size: int, damage: str
) -> None:
    path = tmp_path / "x.db"
    expected = closed(path, page_size, count=600, longest=page_size)
    whole = bytearray(path.read_bytes())
    match damage:
        case "header":
            whole[:100] = bytes(100)
        case "page":
            whole[:page_size] = random.Random(6).randbytes(page_size)
        case "size":
            whole[16:18] = b"\x20\0" if page_size != 8192 else b"\x10\0"
    path.write_bytes(whole)
    scan = Scan()
    assert events(list(rows(path, scan))) == expected
    assert scan.page_size == page_size


def test_rows_say_which_tree_they_hang_in_as_long_as_its_pages_stand(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    expected = closed(path)
    tops = {row.root for row in rows(path) if len(row.values) == 3}
    (root,) = tops
    whole = bytearray(path.read_bytes())
    assert whole[1024 * (root - 1)] == 5
    whole[1024 * (root - 1) : 1024 * root] = bytes(1024)
    path.write_bytes(whole)
    found = [row for row in rows(path) if len(row.values) == 3]
    assert events(found) == expected
    assert root not in {row.root for row in found}


# The write-ahead log.


def logged(path: Path, page_size: int = 1024) -> Stored:
    """A database with a WAL of many commits over checkpointed pages, closed as if by kill -9."""
    db = database(path.with_name("live.db"), page_size)
    fill(db, 100)
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    chance = random.Random(7)
    for seq in range(1000, 1080):
        with db:
            db.execute(
                "insert into event values(?, ?, ?)", (seq, "late", chance.randbytes(chance.randrange(600)))
            )
            db.execute("update event set one = ? where seq = ?", (f"changed {seq}", chance.randrange(1, 100)))
    expected = stored(db)
    for suffix in ("", "-wal"):
        shutil.copy(path.with_name(f"live.db{suffix}"), path.with_name(path.name + suffix))
    db.close()
    return expected


@pytest.mark.parametrize("page_size", [1024, 8192])
def test_of_a_wal_the_last_committed_version_of_each_page_is_read(tmp_path: Path, page_size: int) -> None:
    path = tmp_path / "x.db"
    expected = logged(path, page_size)
    found = list(rows(path))
    assert events(found) == expected
    assert len(found) == len(expected) + 2
    assert not any(row.doubtful for row in found)


def test_frames_left_from_an_earlier_round_of_the_wal_are_not_read(tmp_path: Path) -> None:
    db = database(tmp_path / "x.db")
    fill(db, 300)
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    db.execute("delete from event where seq > 100")
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    db.execute("update event set two = null where seq = 7")
    scan = Scan()
    found = list(rows(tmp_path / "x.db", scan))
    assert events(found) == stored(db)
    assert len(found) == 102
    assert scan.notes == []
    db.close()


def test_rows_of_a_transaction_that_never_ended_are_doubtful(tmp_path: Path) -> None:
    db = database(tmp_path / "x.db")
    fill(db, 50)
    before = stored(db)
    db.pragma("cache_size", 1)
    db.execute("begin")
    for seq in range(1000, 1100):
        db.execute("insert into event values(?, 'open', randomblob(500))", (seq,))
    found = list(rows(tmp_path / "x.db"))
    db.execute("rollback")
    db.close()
    assert events([row for row in found if not row.doubtful]) == before
    assert any(row.doubtful and row.values[1] == "open" for row in found)


def test_what_is_sure_of_a_damaged_wal_is_what_sqlite_would_see_of_it(tmp_path: Path) -> None:
    path, wal = tmp_path / "x.db", tmp_path / "x.db-wal"
    expected = logged(path)
    whole = wal.read_bytes()
    chance = random.Random(8)
    edges = [
        32 + 1048 * n + part for n in range(0, len(whole) // 1048, 37) for part in (0, 4, 8, 16, 23, 24, 500)
    ]
    for place in [*range(1, 32, 6), *edges, *(chance.randrange(len(whole)) for _ in range(20))]:
        flipped = whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :]
        for damaged in (flipped, whole[:place]):
            wal.write_bytes(damaged)
            assert sure(path) == seen_by_sqlite(path), f"byte {place}"
        wal.write_bytes(flipped)
        # Behind the damage everything is found but the row that was hit.
        assert len(missing(path, expected)) <= 1, f"byte {place}"


@pytest.mark.parametrize("length", [32, 512])
def test_rows_of_a_wal_without_a_header_are_found_and_doubtful(tmp_path: Path, length: int) -> None:
    path, wal = tmp_path / "x.db", tmp_path / "x.db-wal"
    expected = logged(path)
    wal.write_bytes(bytes(length) + wal.read_bytes()[length:])
    scan = Scan()
    found = list(rows(path, scan))
    assert {(row.rowid, row.values) for row in found} >= set(expected.items())
    assert events([row for row in found if not row.doubtful]) == seen_by_sqlite(path)
    assert "header of the WAL" in " ".join(scan.notes)


def test_a_wal_over_a_destroyed_database_file_still_gives_its_rows(tmp_path: Path) -> None:
    db = database(tmp_path / "x.db", 8192)
    fill(db, 200)
    expected = stored(db)
    (tmp_path / "y.db").write_bytes(b"?" * 3000)
    shutil.copy(tmp_path / "x.db-wal", tmp_path / "y.db-wal")
    db.close()
    assert events(list(rows(tmp_path / "y.db"))) == expected


# Anything at all.


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=5000), st.none() | st.binary(max_size=3000))
@example(b"\x0d" * 5000, b"\x37\x7f\x06\x82" * 100)
@example(b"SQLite format 3\0" + b"\xff" * 5000, None)
@example(b"\xff" * 5000, b"\xff" * 5000)
def test_no_bytes_make_it_fail(data: bytes, wal: bytes | None) -> None:
    with folder() as home:
        (home / "x.db").write_bytes(data)
        if wal is not None:
            (home / "x.db-wal").write_bytes(wal)
        for row in rows(home / "x.db"):
            assert isinstance(row.rowid, int)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bytes, bytes]]:
    made = []
    for page_size in (1024, 4096):
        home = tmp_path_factory.mktemp("samples")
        logged(home / "x.db", page_size)
        made.append(((home / "x.db").read_bytes(), (home / "x.db-wal").read_bytes()))
    return made


edits = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["flip", "splice", "copy", "cut", "insert"]),
        st.floats(0, 1),
        st.floats(0, 1),
        st.binary(min_size=1, max_size=64),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(which=st.integers(0, 1), edits=edits)
def test_no_damage_makes_it_fail(
    samples: list[tuple[bytes, bytes]], which: int, edits: list[tuple[bool, str, float, float, bytes]]
) -> None:
    files = [bytearray(data) for data in samples[which]]
    for in_wal, kind, one, two, piece in edits:
        data = files[in_wal]
        at, other = int(one * len(data)), int(two * len(data))
        match kind:
            case "flip" if data:
                data[min(at, len(data) - 1)] ^= piece[0]
            case "splice":
                data[at : at + len(piece)] = piece
            case "copy":
                data[at : at + 1024] = data[other : other + 1024]
            case "cut":
                del data[at : at + (1 if two < 0.5 else len(data))]
            case "insert":
                data[at:at] = piece * 20
    with folder() as home:
        (home / "x.db").write_bytes(files[0])
        (home / "x.db-wal").write_bytes(files[1])
        scan = Scan()
        found = list(rows(home / "x.db", scan))
        assert scan.rows == len(found)
        assert scan.doubtful == sum(row.doubtful for row in found)
