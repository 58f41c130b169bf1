"""What it takes up."""

from __future__ import annotations

from pathlib import Path

import apsw

from bench.bare import BareSqlite
from bench.figure import Figure, Run, shown
from bench.payload import output, text
from bench.sides import Rows, fill
from perdure import events as e
from perdure import journal


async def size(run: Run) -> None:
    """The whole file, closed, against the facts' own bytes: what the raw driver would have been given."""
    path, length = run.folder / "disk.db", run.size(50_000, 10_000)
    async with await journal.open(f"sqlite:///{path}", durability="process") as ours:
        for _ in range(10):
            owned = await ours.take(await ours.create())
            await ours.write(lambda o=owned: fill(ours, o.session, length // 10, epoch=o.epoch, head=o.upto))  # type: ignore[misc]
    db = apsw.Connection(str(path))
    payload, rows = db.execute("SELECT sum(length(data)), count(*) FROM perdure_events").fetchone()  # type: ignore[misc]
    db.close()
    bare = BareSqlite(run.folder / "disk-bare.db", "OFF")
    given = Rows()
    stored = 0
    while stored < rows:
        batch: list[bytes] = []
        for _ in range(600):
            given.prepare(1)
            batch += given.next()
        bare.append(batch)
        stored += len(batch)
    bare.close()
    ours_size = path.stat().st_size
    theirs = (run.folder / "disk-bare.db").stat().st_size * rows / stored
    plain = await _plain(run)
    run.add(
        Figure(
            "disk, whole file", ours_size, theirs, "B", ours_size / payload, 1.2, "1.2 × the payload",
            "the raw driver's file with the same rows",
            f"{rows:,} facts of {shown(payload, 'B')} in all, {payload / rows:.0f} bytes each. Of what is above it, "
            f"{(theirs - payload) / rows:.0f} bytes a fact are SQLite's own for rows of this size, and 57 are checksum, salt and link, "
            "which cost the more the smaller a fact is: four of the seven facts of a turn are under 300 bytes. The rest is what "
            "is left of a page when the next fact does not fit, and depends on how sizes follow one another: for facts of 200 "
            f"bytes, 400 bytes and 2 KB alone, {plain[2]:.0f} bytes each, ours takes {plain[0]:.2f} times the payload and the raw "
            f"driver {plain[1]:.2f} times.",
        )
    )  # fmt: skip


async def _plain(run: Run) -> tuple[float, float, float]:
    """The same for facts of 200 bytes, 400 bytes and 2 KB alone: our ratio, the raw driver's, the bytes of a fact."""
    path, beside = run.folder / "disk-plain.db", run.folder / "disk-plain-bare.db"
    async with await journal.open(f"sqlite:///{path}", durability="process") as ours:
        session = await ours.create()
        for start in range(0, run.size(10_000, 3_000), 100):
            contents = (text(start + n, size) for n in range(100) for size in (200, 400, 2048))
            await ours.append(
                session, *(e.RecordImported(source="bench", data=content) for content in contents)
            )
    db = apsw.Connection(str(path))
    rows = [bytes(row[0]) for row in db.execute("SELECT data FROM perdure_events ORDER BY id")]
    db.close()
    bare = BareSqlite(beside, "OFF")
    for start in range(0, len(rows), 300):
        bare.append(rows[start : start + 300])
    bare.close()
    payload = sum(map(len, rows))
    return path.stat().st_size / payload, beside.stat().st_size / payload, payload / len(rows)


async def large_output(run: Run) -> None:
    """One tool output of 1 MB, both ways in which it may be kept: in its fact, and beside it by its hash."""
    content = output(1 << 20)
    sizes: dict[str, int] = {}
    for name in ("fact", "blob"):
        path = run.folder / f"output-{name}.db"
        async with await journal.open(f"sqlite:///{path}", durability="process") as ours:
            session = await ours.create()
            before = _pages(path)
            if name == "fact":
                await ours.append(session, e.RecordImported(source="tool", data=content.decode()))
            else:
                part = journal.blob_of(content)
                await ours.append(session, e.MessageSent(parts=(part,), role="note"), blobs=(content,))
            sizes[name] = _pages(path) - before
    worst = max(sizes.values())
    run.add(
        Figure(
            "a tool output of 1 MB", worst, len(content), "B", worst / len(content), 0.4, "0.4 of its size", "its size",
            f"Source files of Python's library, as a coding agent's tools print them. In its fact: {shown(sizes['fact'], 'B')}; "
            f"as a blob beside it: {shown(sizes['blob'], 'B')}. Whole pages of the file, so slack is in it.",
        )
    )  # fmt: skip


def _pages(path: Path) -> int:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    pages, size = (int(db.execute(f"PRAGMA {what}").fetchone()[0]) for what in ("page_count", "page_size"))  # type: ignore[index]
    db.close()
    return pages * size
