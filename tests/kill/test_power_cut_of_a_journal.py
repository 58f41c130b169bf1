"""The power goes while sessions are being written: every image opens, and holds every acknowledged event.

`PERDURE_ROUNDS=full` looks at thousands of images. A failure names the seed and the image, and leaves the image behind.
"""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from perdure import journal
from perdure.errors import SessionNotFound, StoreDamaged
from perdure.events import (
    AnyFact,
    Event,
    MessageSent,
    ModelCalled,
    ModelReplied,
    ModelSpoke,
    Text,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from perdure.journal import Journal, Owned, blob_of
from perdure.journal.care import doctor
from perdure.journal.clock import SystemClock
from perdure.journal.sqlite import SqliteStore
from tests.kill.power import Image, Recorder, images

pytestmark = pytest.mark.anyio

ROUNDS = 2400 if os.environ.get("PERDURE_ROUNDS") == "full" else 160
SEED = int(os.environ.get("PERDURE_SEED", "1"))

Shown = list[tuple[str, Event]]
"""Every acknowledged event and its session, in the order of the acknowledgements."""


async def run(recorder: Recorder, home: Path, durability: str) -> Shown:
    """Two sessions with turns, pieces, content of their own and a fork, and a checkpoint every few commits."""
    clock = SystemClock()
    store = SqliteStore(
        home / "perdure.db", clock, vfs=recorder.name, durability=durability, checkpoint_pages=25
    )
    shown: Shown = []
    async with Journal(store, clock, home / "processes") as running:
        for number in range(2):
            session = await running.create()
            await note(running, session, 0, shown, recorder)
            owned = await running.take(session)
            for turn in range(4):
                await one_turn(running, owned, turn, shown, recorder)
            await owned.release()
            if number:
                fork = await running.fork(session)
                await running.append(fork, message(f"on in {fork}"))
                await note(running, fork, 0, shown, recorder)
    return shown


async def one_turn(running: Journal, owned: Owned, turn: int, shown: Shown, recorder: Recorder) -> None:
    chance = Random(turn)

    async def append(*facts: AnyFact, blobs: tuple[bytes, ...] = ()) -> int:
        events = await owned.append(*facts, blobs=blobs)
        shown.extend((owned.session, event) for event in events)
        recorder.mark(len(shown))
        return events[-1].seq

    sent = (await running.append(owned.session, message("please " * turn), key=f"k{turn}")).first
    begun = await append(TurnStarted(takes=(sent,)))
    call = await append(ModelCalled(turn=begun))
    for number in range(1, 5):
        await append(ModelSpoke(call=call, number=number, text="word " * number))
    await append(
        ModelReplied(call=call, parts=(Text("word " * 10), ToolCall("c", "read", "{}")), pieces=4),
        ToolStarted(turn=begun, call_id="c", name="read", arguments="{}"),
    )
    output = chance.randbytes(chance.randrange(30_000))
    parts = (Text("x" * chance.randrange(9000)), blob_of(output))
    started = owned.upto
    await append(
        ToolFinished(turn=begun, call_id="c", outcome="ok", tool=started, parts=parts), blobs=(output,)
    )
    await append(TurnEnded(turn=begun, outcome="completed"))


def message(text: str) -> MessageSent:
    return MessageSent(parts=(Text(text or "hello"),))


async def note(running: Journal, session: str, after: int, shown: Shown, recorder: Recorder) -> None:
    """What is acknowledged of a session by now; the owner is told of the rest by its own appends."""
    shown.extend([(session, event) async for event in running.between(session, after, 1 << 31)])
    recorder.mark(len(shown))


async def offences(image: Image, shown: Shown, home: Path) -> list[str]:
    shutil.rmtree(home, ignore_errors=True)
    image.write_to(home)
    said: list[str] = []
    async with await journal.open(f"sqlite:///{home / 'perdure.db'}", announce=said.append) as opened:
        said += [str(f) async for f in doctor(opened, mend=False) if f.kind != "note"]
        said += [line async for line in missing(opened, shown[: image.acknowledged])]
        session = await opened.create()
        await opened.append(session, message("on we go"))
    return said


async def missing(opened: Journal, acknowledged: Shown) -> AsyncIterator[str]:
    for session in dict.fromkeys(session for session, _ in acknowledged):
        try:
            there = {event.seq: event async for event in opened.events(session)}
        except SessionNotFound:
            there = {}
        for _, event in ((s, e) for s, e in acknowledged if s == session):
            if there.get(event.seq) != event:
                yield f"{session}: {event} was acknowledged, {there.get(event.seq)} is there"


async def test_every_image_opens_and_holds_every_acknowledged_event(tmp_path: Path) -> None:
    with Recorder() as recorder:
        shown = await run(recorder, tmp_path / "run", "power")
    looked_at = 0
    for image in images(recorder.log, ROUNDS, SEED):
        said = await offences(image, shown, tmp_path / "image")
        assert not said, f"seed {SEED}: {image.about}: {said[:3]}"
        looked_at += 1
    assert looked_at >= ROUNDS


async def test_an_image_of_a_store_that_may_forget_is_found_out(tmp_path: Path) -> None:
    with Recorder() as recorder:
        shown = await run(recorder, tmp_path / "run", "process")
    for image in images(recorder.log, ROUNDS, SEED):
        try:
            if await offences(image, shown, tmp_path / "image"):
                return
        except StoreDamaged:
            return
    raise AssertionError(f"seed {SEED}: no image lost anything, so this test could not have noticed a loss")
