"""What must be true of a damaged store, whatever the damage: of what is opened, of what doctor says, of what is saved.

Each look returns complaints. What should be there is taken from the bytes themselves (`places`) and from SQLite.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from perdure import journal
from perdure.errors import StoreDamaged, StoreUnavailable
from perdure.events import Erased, Event, Unreadable
from perdure.journal import Journal
from perdure.journal.care import Finding, doctor
from perdure.journal.reading import stored_session
from perdure.journal.salvage import Saved, salvage
from perdure.testing.journals import faults
from tests.kill.damages import FRAME, PAGE, Files
from tests.kill.places import Span
from tests.kill.stores import SECRET, STRETCH, Before

Found = dict[str, dict[int, Event]]
"""By session and seq."""


def intact(before: Before, files: Files) -> set[int]:
    """The rows of the events' table of which a whole copy is left somewhere."""
    return {
        rowid
        for rowid, copies in before.copies.items()
        if any(all(files.have(before, span) for span in copy) for copy in copies)
        or _moved(before, files, rowid)
    }


def _moved(before: Before, files: Files, rowid: int) -> bool:
    """Whether its page lies elsewhere in the same file: not where only free pages should be, nor pages of which the log
    holds a newer version, nor among what is left of an earlier round of the log. There nobody looks for it."""
    span, *more = before.copies[rowid][0]
    data = files.main if span.file == "main" else files.wal
    at = data.find(before.bytes_at(span)) if data and not more else -1
    size, start = (PAGE, 0) if span.file == "main" else (FRAME, 32)
    if not data or at < 0 or (at - start) % size != (span.at - start) % size:
        return False
    if span.file == "wal":
        frame = 32 + (at - 32) // FRAME * FRAME
        number = int.from_bytes(data[frame : frame + 4], "big")
        return data[frame + 8 : frame + 16] == before.wal[16:24] and before.places.kinds.get(number) != "free"
    place = before.places.pages.get(at // PAGE + 1)
    return place is None or (place.file == "main" and before.places.kinds[at // PAGE + 1] != "free")


# What is saved


@dataclass
class Rescued:
    saved: Saved
    found: Found = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


async def rescued(before: Before, files: Files, damaged: Path, target: Path) -> Rescued:
    """Salvage `damaged`, and look at what came of it."""
    done = Rescued(await salvage(damaged, target))
    done.complaints += _touched(files, damaged, "salvage")
    said = _said(done.saved.missing)
    told: set[str] = set()
    async with await journal.open(f"sqlite:///{target}", durability="process") as opened:
        for listed in await opened.sessions(journal.Wanted(limit=10_000)):
            done.found[listed.id] = {e.seq: e async for e in opened.events(listed.id)}
            if await _shares(opened, listed.id) & said.keys():
                told.add(listed.id)
            else:
                done.complaints += [
                    f"{listed.id}: {fault}"
                    for fault in await faults(opened, listed.id)
                    if "erased" not in fault
                ]
        for finding in [f async for f in doctor(opened, mend=False)]:
            if finding.kind != "note" and finding.session not in told:
                done.complaints.append(f"in the salvage: {finding}")
    done.complaints += _strange(before, done.found)
    done.complaints += _lost(before, intact(before, files), done.found)
    done.complaints += _unsaid(before, files, done.found, said, done.saved)
    if SECRET in str(done.found):
        done.complaints.append("what was erased is back")
    return done


async def _shares(opened: Journal, session: str) -> set[str]:
    """The session and those whose past it shares: what is missing there is said of them."""
    stored = await opened.read_store(stored_session, opened.store, session)
    ids = (
        {
            (await opened.read_store(stored_session, opened.store, id)).stretch: id
            for id in await opened.read_store(opened.store.ids, "", 10_000)
        }
        if stored.lineage
        else {}
    )
    return {session, *(ids.get(stretch, "") for stretch, _ in stored.lineage)}


def _touched(files: Files, damaged: Path, who: str) -> list[str]:
    wal = damaged.with_name(damaged.name + "-wal")
    now = [path.read_bytes() if path.exists() else b"" for path in (damaged, wal)]
    were = (files.main or b"", files.wal or b"")  # an empty log is as good as none
    names = ("the file", "the log")
    return [f"{who} changed {name}" for name, a, b in zip(names, now, were, strict=True) if a != b]


def _strange(before: Before, found: Found) -> list[str]:
    """What was never stored there."""
    known = {id: {e.seq: e for e in events} for id, events in before.events.items()}
    said = []
    for id, events in found.items():
        there = known.get(id) or _own_of(before, events)
        said += [f"{id} {seq}: {event} is new" for seq, event in events.items() if there.get(seq) != event]
    return said


def _own_of(before: Before, events: dict[int, Event]) -> dict[int, Event]:
    """A session whose name was lost is known by any of its events."""
    for stretch in before.session_of:
        own = before.own(stretch)
        if events and all(own.get(seq) == event for seq, event in events.items()):
            return own
    return {}


def _lost(before: Before, expected: Iterable[int], found: Found) -> list[str]:
    """What is not to be found although its bytes are whole."""
    said = []
    for rowid in sorted(expected):
        stretch, seq = rowid >> STRETCH, rowid & 0xFFFFFFFF
        event = before.own(stretch)[seq]
        there = [found.get(before.session_of[stretch]), found.get(f"lost{stretch:016}")]
        if not any(events and events.get(seq) == event for events in there):
            said.append(
                f"{before.session_of[stretch]} ({stretch}) {seq}: {type(event.fact).__name__} is intact and not there"
            )
    return said


def _said(missing: list[str]) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for sentence in missing:
        match = re.fullmatch(r"session ([^,]+), (.*)", sentence)
        assert match, sentence
        said.setdefault(match[1], []).append(match[2])
    return said


def numbers(sentence: str) -> set[int]:
    """`seq 3, 5 to 7: missing` names 3, 5, 6 and 7."""
    match = re.match(r"seq ([\d, to]+)", sentence)
    spans = [part.split(" to ") for part in match[1].split(", ")] if match else []
    return {n for span in spans for n in range(int(span[0]), int(span[-1]) + 1)}


def _unsaid(
    before: Before, files: Files, found: Found, said: dict[str, list[str]], saved: Saved
) -> list[str]:
    """What is missing and was not said to be, and the other way round."""
    complaints = []
    for stretch, id in before.session_of.items():
        id = id if id in found else f"lost{stretch:016}"
        if id not in found:
            continue
        there = found[id]
        own = {seq: e for seq, e in there.items() if stretch << STRETCH | seq in before.rows}
        last = max(own, default=0)
        rows = before.places.rows["perdure_sessions"][stretch]
        sure = all(files.have(before, span) for span in rows)
        named = {n for sentence in said.get(id, ()) for n in numbers(sentence)}
        gone = {n for sentence in said.get(id, ()) if "missing" in sentence for n in numbers(sentence)}
        whole = "all of it" in said.get(id, ())
        for seq, event in before.own(stretch).items():
            if seq in there or _is_piece(event) or seq in named or whole or _before_erased(there, seq):
                continue
            if sure or seq < last:
                complaints.append(f"{id} {seq}: {type(event.fact).__name__} is missing, and nobody says so")
        complaints += [f"{id} {n}: is there, and said to be missing" for n in sorted(gone & there.keys())]
    return complaints


def _before_erased(there: dict[int, Event], seq: int) -> bool:
    """Whether what comes next was erased. Its link is kept and its bytes are not, so nobody can tell what came directly
    before it from pieces that were dropped (durability.md says so)."""
    after = [n for n in there if n > seq]
    return bool(after) and isinstance(there[min(after)].fact, Erased)


def _is_piece(event: Event) -> bool:
    return not isinstance(event.fact, Erased) and bool(event.fact.piece)  # type: ignore[union-attr]


# What is opened


@dataclass
class Opened:
    refused: str = ""
    found: Found = field(default_factory=dict)
    unreadable: dict[str, set[int]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


async def opened(before: Before, files: Files, damaged: Path, aside: Path) -> Opened:
    """Open `damaged`, read everything, let the doctor do what it may, and close it."""
    seen = seen_by_sqlite(before, files, aside)
    done = Opened()
    try:
        done.found, done.unreadable, done.findings = await _all_of(damaged, done.complaints)
    except (StoreDamaged, StoreUnavailable) as why:
        done.refused = str(why)
        if str(damaged) not in done.refused:
            done.complaints.append(f"it does not name the file: {done.refused}")
        done.complaints += _touched(files, damaged, "an opening that was refused")
        return done
    lasting = [f for f in done.findings if f.kind == "damage" and not f.session]
    if lasting:
        done.complaints += _touched(files, damaged, "a doctor that found damage of the file")
    done.complaints += _strange(before, done.found)
    done.complaints += _lost(before, seen, done.found)
    done.complaints += _unnamed(before, files, done)
    return done


async def looked_at_again(first: Opened, damaged: Path) -> list[str]:
    """What a doctor and a closing have made worse."""
    if first.refused:
        return []
    found, _, findings = await _all_of(damaged, [])
    worse = [
        f"{id} {seq}: could be read before the doctor came"
        for id, events in first.found.items()
        for seq, event in events.items()
        if found.get(id, {}).get(seq) != event
    ]
    before, now = ({str(f) for f in each if f.kind == "damage"} for each in (first.findings, findings))
    worse += [f"a second doctor does not say: {what}" for what in sorted(before - now)]
    worse += [f"only a second doctor says: {what}" for what in sorted(now - before)]
    mended = {f.session for f in first.findings if f.mended}
    return worse + [
        f"{f}, and it was mended" for f in findings if f.kind == "derived" and f.session in mended
    ]


async def _all_of(damaged: Path, said: list[str]) -> tuple[Found, dict[str, set[int]], list[Finding]]:
    """Every event that can be read, the seqs of those that cannot, and what the doctor says."""
    found: Found = {}
    unreadable: dict[str, set[int]] = {}
    async with await journal.open(f"sqlite:///{damaged}", announce=said.append) as store:
        for listed in await store.sessions(journal.Wanted(limit=10_000)):
            events = [e async for e in store.events(listed.id)]
            found[listed.id] = {e.seq: e for e in events if not isinstance(e.fact, Unreadable)}
            unreadable[listed.id] = {e.seq for e in events if isinstance(e.fact, Unreadable)}
        return found, unreadable, [f async for f in doctor(store)]


def seen_by_sqlite(before: Before, files: Files, aside: Path) -> set[int]:
    """The rows that SQLite can still fetch, asked for one by one."""
    seen: set[int] = set()
    path = aside / "aside.db"
    files.write_to(path)
    try:
        db = apsw.Connection(str(path))
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        for rowid, row in before.rows.items():
            try:
                if (
                    db.execute(
                        "SELECT data, checksum, seal FROM perdure_events WHERE id = ?", (rowid,)
                    ).fetchone()
                    == row
                ):
                    seen.add(rowid)
            except (apsw.Error, ValueError):
                continue
        db.close()
    except apsw.Error:
        pass
    return seen


def _is_committed(before: Before, files: Files, span: Span) -> bool:
    """Whether these bytes are there, and if they are in the log, the frames up to the end of their transaction too:
    otherwise it looks as if nobody had been told of it."""
    if span.file == "main":
        return files.have(before, span)
    frame = 32 + (span.at - 32) // FRAME * FRAME
    while not any(before.wal[frame + 4 : frame + 8]):
        frame += FRAME
    is_there = files.have(before, span) and files.have(before, Span("wal", frame, FRAME))
    return is_there and frame < _end_if_torn(before, files)


def _end_if_torn(before: Before, files: Files) -> int:
    """Where the log seems to end if all that lies behind its first damage is one transaction: a power cut leaves the
    last one like that, before anybody was told of it, and nobody can tell the two apart."""
    now = bytes(files.wal or b"")
    same = next(
        (
            at
            for at in range(32, len(before.wal), FRAME)
            if before.wal[at : at + FRAME] != now[at : at + FRAME]
        ),
        0,
    )
    ends = [
        at
        for at in range(same, len(now) - 24, FRAME)
        if any(now[at + 4 : at + 8]) and now[at + 8 : at + 16] == before.wal[16:24]
    ]
    return same if same and len(ends) <= 1 else len(before.wal)


def _unnamed(before: Before, files: Files, done: Opened) -> list[str]:
    """Facts that are not shown, and that doctor says nothing of. With a log that is lost goes every trace of what was
    only in it, so the file is then held to what it said without."""
    complaints: list[str] = []
    if len(files.main or b"") <= 1:
        return complaints  # what is empty is as good as new
    for stretch, id in before.session_of.items():
        there = done.found.get(id, {})
        lost = [s for s, e in before.own(stretch).items() if s not in there and not _is_piece(e)]
        lost = [seq for seq in lost if not _before_erased(there, seq)]
        if not all(_is_committed(before, files, s) for s in before.places.rows["perdure_sessions"][stretch]):
            lost = [seq for seq in lost if seq <= before.older.get(stretch, 0)]
        said = [f for f in done.findings if f.kind == "damage" and (f.session == id or id in f.what)]
        if lost and not said and any(f.kind == "damage" for f in done.findings) and id not in done.found:
            continue
        if lost and not said:
            complaints.append(f"{id}: {lost} are missing, and doctor does not say so")
    return complaints
