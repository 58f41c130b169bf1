"""Golden sessions: recorded once, and read by every later version as they were meant.

A recording is a file of JSON lines, one event a line, byte for byte as it is stored. It is never edited once it is
merged: old shapes are lifted when they are read. Beside `NAME.jsonl` lies `NAME.derived.json`, what the views make of
it after each of its events. That is derived again, and its diff is the review of whatever changed it, by

    python -m perdure.testing.golden FOLDER...

which writes it, or with `--check` only says what differs and exits with 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import structs

from perdure.codec import decode, encode, in_full
from perdure.events import Erased, Event, Unknown, Unreadable
from perdure.grammar import offences
from perdure.journal import Journal
from perdure.testing.clock import ManualClock
from perdure.testing.journals import faults, replay, whole
from perdure.views.head import Head


def read(file: Path) -> list[Event]:
    """The events of a recording. Raises `ValueError`, with file and line, for one that cannot be read or written."""
    events = []
    for number, line in enumerate(file.read_bytes().splitlines(), start=1):
        try:
            event = decode(line)
        except ValueError as why:
            raise ValueError(f"{file}:{number}: {why}") from None
        if isinstance(event.fact, Unknown | Unreadable | Erased):
            raise ValueError(f"{file}:{number}: holds {type(event.fact).__name__}, which nobody can append")
        events.append(event)
    return events


def write(file: Path, events: Iterable[Event]) -> None:
    """A new recording of these events; one that is there already is not touched, and `FileExistsError` is raised."""
    lines = [encode(event) + b"\n" for event in events]
    with file.open("xb") as new:
        new.writelines(lines)


async def record(journal: Journal, session: str, file: Path) -> None:
    """A new recording of a session as it stands in a journal."""
    write(file, await whole(journal, session))


def derived_file(recording: Path) -> Path:
    return recording.with_suffix(".derived.json")


def derived(recording: Path) -> str:
    """What the views make of a recording: the head once all has happened, and what each event changed in it."""
    return _text(recording, read(recording))


async def unlike(recording: Path, journal: Journal, clock: ManualClock) -> list[str]:
    """Replay a recording into a journal over any store, opened with this clock, and say in sentences what is otherwise
    than it was recorded or derived."""
    recorded = read(recording)
    session = await replay(journal, recorded, clock=clock)
    told = [_as_asked(event) for event in await whole(journal, session)]
    found = [
        f"{a.seq} was recorded as {a} and is {b}" for a, b in zip(recorded, told, strict=False) if a != b
    ]
    if len(told) != len(recorded):
        found.append(f"{len(recorded)} events were recorded, and there are {len(told)}")
    found += await faults(journal, session)
    if _text(recording, told) != _on_disk(derived_file(recording)):
        found.append(f"{derived_file(recording)} holds something else than what is derived now")
    return found


def _as_asked(event: Event) -> Event:
    """Without the key that a journal adds by itself where the answer of a store may be lost on its way."""
    is_own = event.key is not None and event.key.startswith("once-")
    return structs.replace(event, key=None) if is_own else event


def differing(folder: Path) -> list[Path]:
    """The recordings in a folder beside which something else lies than what is derived from them now."""
    return [file for file in recordings(folder) if _on_disk(derived_file(file)) != derived(file)]


def recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def _text(recording: Path, events: Sequence[Event]) -> str:
    head = Head()
    for event in events:
        head = head.after(event)
    known = in_full(head)
    return _json(
        {
            "recording": sha256(recording.read_bytes()).hexdigest(),
            "upto": events[-1].seq if events else 0,
            "title": head.title,
            "state": head.state,
            "runnable_at": head.runnable_at,
            "offences": list(offences(events)),
            "totals": known.pop("totals"),
            "standing": known.pop("standing"),
            "head": known,
            "changes": list(_changes(events)),
        }
    )


def _changes(events: Iterable[Event]) -> Iterator[object]:
    """Of each event its seq, its kind, and what it changed; not what every fact changes."""
    head = Head()
    before = _flat(head)
    for event in events:
        head = head.after(event)
        now = _flat(head)
        changed = {name: value for name, value in now.items() if value != before[name]}
        yield [event.seq, type(event.fact).__name__, changed]
        before = now


def _flat(head: Head) -> dict[str, object]:
    known: dict[str, Any] = in_full(head)
    del known["facts"], known["standing"]["seq"]
    for part in ("standing", "totals"):
        known |= {f"{part}.{name}": value for name, value in known.pop(part).items()}
    return known | {"state": head.state, "runnable_at": head.runnable_at}


def _json(derived: Mapping[str, object]) -> str:
    """One line for each thing that may change by itself, so that a diff can be read."""
    return "{\n" + ",\n".join(f"{_line(name)}: {_inside(value)}" for name, value in derived.items()) + "\n}\n"


def _inside(value: object) -> str:
    match value:
        case dict() if value:
            return (
                "{\n" + ",\n".join(f"  {_line(name)}: {_line(each)}" for name, each in value.items()) + "\n}"
            )
        case list() if value:
            return "[\n" + ",\n".join(f"  {_line(each)}" for each in value) + "\n]"
        case _:
            return _line(value)


def _line(value: object) -> str:
    """In every script as it is written; what no screen shows is escaped."""
    return "".join(
        c if c.isprintable() else json.dumps(c)[1:-1] for c in json.dumps(value, ensure_ascii=False)
    )


def _on_disk(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _refuse_an_edited(recording: Path) -> None:
    known = _on_disk(derived_file(recording))
    if known and json.loads(known)["recording"] != sha256(recording.read_bytes()).hexdigest():
        raise SystemExit(f"{recording} was edited; put it back, and record a new session for what is new")


def main(arguments: Sequence[str]) -> None:
    folders = [Path(each) for each in arguments if each != "--check"]
    if not folders:
        raise SystemExit("name the folders that hold recordings")
    for folder in folders:
        if not folder.is_dir():
            raise SystemExit(f"{folder} is no folder")
    stale = [recording for folder in folders for recording in differing(folder)]
    for recording in stale:
        _refuse_an_edited(recording)
    if "--check" in arguments:
        if stale:
            raise SystemExit(f"something else is derived now from {', '.join(map(str, stale))}")
        return
    for recording in stale:
        derived_file(recording).write_text(derived(recording), encoding="utf-8")
        print(f"wrote {derived_file(recording)}")


if __name__ == "__main__":
    main(sys.argv[1:])
