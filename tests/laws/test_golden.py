"""Golden sessions are read and derived as when they were recorded, over every store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perdure.codec import KINDS, encode
from perdure.grammar import offences
from perdure.journal import Journal
from perdure.journal.memory import MemoryStore
from perdure.testing import golden
from perdure.testing.clock import ManualClock
from perdure.testing.journals import replay
from tests.laws.stores import MATERIALS, connections

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[1] / "golden" / "sessions"
RECORDINGS = golden.recordings(FOLDER)
BYTES = {file: file.read_bytes() for file in RECORDINGS}

each_recording = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda file: file.stem)


@each_recording
def test_a_recording_is_read_and_written_again_byte_for_byte(recording: Path) -> None:
    assert b"".join(encode(event) + b"\n" for event in golden.read(recording)) == BYTES[recording]


@each_recording
def test_a_recording_keeps_the_laws(recording: Path) -> None:
    assert list(offences(golden.read(recording))) == []


@each_recording
def test_what_is_derived_from_a_recording_has_not_changed(recording: Path) -> None:
    derived = golden.derived_file(recording).read_text(encoding="utf-8")
    assert golden.derived(recording) == derived, "if this is meant: make golden, and read the diff"


@pytest.mark.parametrize("material", MATERIALS)
@each_recording
async def test_a_recording_is_replayed_into_a_store_unlike_nothing(
    recording: Path, material: str, tmp_path: Path
) -> None:
    clock = ManualClock()
    store = connections(material, tmp_path, clock)()
    async with Journal(store, clock, tmp_path / "processes") as journal:
        assert await golden.unlike(recording, journal, clock) == []


def test_the_recordings_hold_every_kind_of_fact() -> None:
    held = {type(event.fact).__name__ for file in RECORDINGS for event in golden.read(file)}
    assert KINDS.keys() - held == set()


def test_beside_each_recording_lies_what_is_derived_from_it_and_nothing_else() -> None:
    expected = {*RECORDINGS, *map(golden.derived_file, RECORDINGS)}
    assert set(FOLDER.iterdir()) == expected


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """One of the recordings, where it can be edited without harm."""
    for file in (FOLDER / "korean.jsonl", FOLDER / "korean.derived.json"):
        shutil.copy(file, tmp_path)
    return tmp_path / "korean.jsonl"


def test_an_edited_recording_is_refused_and_nothing_is_written(copied: Path) -> None:
    known = golden.derived_file(copied).read_bytes()
    copied.write_bytes(BYTES[FOLDER / "korean.jsonl"].replace(b'"number":2', b'"number":3', 1))
    with pytest.raises(SystemExit, match=r"korean\.jsonl was edited; put it back"):
        golden.main([str(copied.parent)])
    assert golden.derived_file(copied).read_bytes() == known


def test_what_is_derived_otherwise_is_told_and_then_written_anew(copied: Path) -> None:
    derived = golden.derived_file(copied)
    known = derived.read_text(encoding="utf-8")
    golden.main(["--check", str(copied.parent)])
    derived.write_text(known.replace('"title": "', '"title": "not ', 1), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"something else is derived now from .*korean\.jsonl"):
        golden.main(["--check", str(copied.parent)])
    golden.main([str(copied.parent)])
    assert derived.read_text(encoding="utf-8") == known


@pytest.mark.parametrize("check", [["--check"], []])
def test_a_folder_that_is_not_there_is_no_success(check: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nowhere is no folder"):
        golden.main([*check, str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match="name the folders"):
        golden.main(check)


def test_a_recording_is_never_overwritten(copied: Path) -> None:
    with pytest.raises(FileExistsError):
        golden.write(copied, golden.read(copied))
    assert copied.read_bytes() == BYTES[FOLDER / "korean.jsonl"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[1,2", "korean.jsonl:25: "),
        (
            b'[25,1,0,null,{"kind":"NotYetInvented"}]',
            "korean.jsonl:25: holds Unknown, which nobody can append",
        ),
    ],
)
def test_a_line_that_nobody_can_read_is_named(line: bytes, why: str, copied: Path) -> None:
    with copied.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(ValueError, match=why):
        golden.read(copied)


async def test_a_store_that_says_something_else_is_noticed(copied: Path, tmp_path: Path) -> None:
    events = golden.read(copied)
    copied.write_bytes(b"".join(encode(event) + b"\n" for event in events[:-1]))
    clock = ManualClock()
    async with Journal(MemoryStore(clock), clock, tmp_path / "processes") as journal:
        unlike = await golden.unlike(copied, journal, clock)
    assert unlike == [f"{golden.derived_file(copied)} holds something else than what is derived now"]


async def test_a_session_is_recorded_as_it_is_stored(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Journal(MemoryStore(clock), clock, tmp_path / "processes") as journal:
        session = await replay(journal, golden.read(FOLDER / "korean.jsonl"), clock=clock)
        await golden.record(journal, session, tmp_path / "new.jsonl")
    assert (tmp_path / "new.jsonl").read_bytes() == BYTES[FOLDER / "korean.jsonl"]
