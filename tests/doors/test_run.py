"""`perdure run`: words as they become durable, an exit code for every end, and nothing lost when it is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import perdure
from perdure import events as e
from tests.doors.conftest import PERDURE, Run
from tests.fakes.provider import KEY, Speech, listening
from tests.test_docs import ROOT, fenced

STORE = "share/perdure/perdure.db"


@contextmanager
def begun(home: Path, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    child = subprocess.Popen(
        [PERDURE, *arguments], cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def heard(child: subprocess.Popen[bytes], words: int = 8) -> bytes:
    """The first words it prints, into a pipe, while it goes on."""
    assert child.stdout is not None
    shown = b""
    while shown.count(b" ") < words:
        more = os.read(child.stdout.fileno(), 4096)
        assert more, "it ended"
        shown += more
    return shown


def stored(home: Path) -> list[e.Event]:
    async def read() -> list[e.Event]:
        [file] = home.rglob("perdure.db")
        async with await perdure.open(f"sqlite:///{file}") as journal:
            [listed] = await journal.sessions()
            return [event async for event in journal.events(listed.id)]

    return asyncio.run(read())


def ends(events: list[e.Event]) -> list[str]:
    return [event.fact.outcome for event in events if isinstance(event.fact, e.TurnEnded)]


def test_it_answers_on_standard_output_and_says_how_to_go_on(run: Run) -> None:
    done = run("run", "help me")
    assert done.returncode == 0
    assert done.stdout.startswith("[demo, not a model] I am a stand-in")
    assert "no model is set, so this is the stand-in `demo`" in done.stderr
    session = done.stderr.split("--session ")[1].split()[0]
    again = run("run", "--session", session[:8], "a long story")
    assert again.returncode == 0
    assert "Once upon a time" in again.stdout
    latest = run("run", "--continue", "help")
    assert latest.returncode == 0
    listed = json.loads(run("sessions", "list", "--json").stdout)
    assert [one["id"] for one in listed] == [session]
    assert listed[0]["totals"]["turns"] == 3


def test_json_is_every_event_as_a_line(run: Run) -> None:
    done = run("run", "--json", "help me")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event[4]["kind"] for event in events]
    assert kinds[0] == "MessageSent"
    assert kinds[-1] == "TurnEnded"
    assert [event[0] for event in events] == sorted(event[0] for event in events)


def test_the_shell_is_offered_where_everything_is_allowed_and_nowhere_else(run: Run, project: Path) -> None:
    assert "I was not offered it" in run("run", "write a.txt: hello").stdout
    assert not (project / "a.txt").exists()
    assert run("run", "--mode", "allow", "write a.txt: 안녕").returncode == 0
    assert (project / "a.txt").read_text(encoding="utf-8") == "안녕\n"
    assert "안녕" in run("run", "--mode", "allow", "read a.txt").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("run", " "), 2, "there is nothing to answer"),
        (("run",), 2, "there is nothing to answer"),
        (("run", "--continue", "--session", "x", "hi"), 2, "leave one out"),
        (("run", "--mode", "sideways", "hi"), 2, "sideways"),
        (("run", "--model", "gpt", "hi"), 2, "is no name of a model"),
        (("run", "--model", "openai:x", "hi"), 2, "set OPENAI_API_KEY"),
        (("run", "--session", "nobody", "hi"), 3, "not found"),
    ],
)
def test_what_cannot_be_done_is_a_sentence_and_a_code(
    run: Run, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert done.stdout == ""


def test_a_session_that_has_ended_is_refused_with_4(run: Run, tmp_path: Path) -> None:
    assert run("run", "help").returncode == 0

    async def end() -> str:
        [file] = tmp_path.rglob("perdure.db")
        async with await perdure.open(f"sqlite:///{file}") as journal:
            [listed] = await journal.sessions()
            await journal.append(listed.id, e.SessionEnded())
            return listed.id

    session = asyncio.run(end())
    done = run("run", "--session", session, "hello?")
    assert done.returncode == 4
    assert "ended" in done.stderr


def test_a_turn_that_failed_is_1_with_its_cause(tmp_path: Path, project: Path) -> None:
    async def failed() -> tuple[int, str]:
        refusing = Speech(status=401, error="invalid_api_key", text="this key is no good")
        async with listening(lambda _: refusing) as fake:
            environ = {
                "HOME": str(tmp_path), "PATH": os.environ["PATH"], "OPENAI_API_KEY": KEY,
                "OPENAI_BASE_URL": f"{fake.address}/v1",
            }  # fmt: skip
            child = await asyncio.create_subprocess_exec(
                PERDURE, "run", "hi", cwd=project, env=environ, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, told = await child.communicate()
            assert child.returncode is not None
            return child.returncode, told.decode()

    code, told = asyncio.run(failed())
    assert code == 1
    assert "this key is no good" in told
    assert KEY not in told


def test_a_turn_that_needs_a_person_is_5(tmp_path: Path, project: Path) -> None:
    async def asked() -> int:
        store = tmp_path / "asks.db"
        async with await perdure.open(f"sqlite:///{store}") as journal:
            owned = await journal.take(await journal.create())
            environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
            child = await asyncio.create_subprocess_exec(
                PERDURE, "--db", f"sqlite:///{store}", "run", "--session", owned.session, "hi", cwd=project, env=environ,
                stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            async for event in journal.follow(owned.session):
                if isinstance(event.fact, e.MessageSent):
                    break
            turn = (await owned.append(e.TurnStarted((event.seq,))))[-1].seq
            await owned.append(e.QuestionAsked((e.Question("Which one?"),), turn))
            return await asyncio.wait_for(child.wait(), 30)

    assert asyncio.run(asked()) == 5


@pytest.mark.parametrize(
    ("which", "code", "outcome"), [(signal.SIGINT, 130, "cancelled"), (signal.SIGTERM, 143, "interrupted")]
)
def test_a_signal_ends_the_turn_on_record_and_what_was_shown_is_kept(
    tmp_path: Path, project: Path, which: signal.Signals, code: int, outcome: str
) -> None:
    with begun(tmp_path, project, "run", "a long story") as child:
        shown = heard(child)
        child.send_signal(which)
        if which is signal.SIGTERM:
            # It may take its time to end in peace: asked again it does not.
            shown += os.read(child.stdout.fileno(), 4096)  # type: ignore[union-attr]
            child.send_signal(which)
        out, _ = child.communicate(timeout=30)
        assert child.returncode == code
    if which is signal.SIGINT:
        events = stored(tmp_path)
        assert ends(events) == [outcome]
        said = "".join(event.fact.text for event in events if isinstance(event.fact, e.ModelSpoke))
        assert said.startswith((shown + out).decode().rstrip("\n"))


def test_killed_in_mid_sentence_it_goes_on_and_what_was_shown_is_kept(
    run: Run, tmp_path: Path, project: Path
) -> None:
    with begun(tmp_path, project, "run", "a long story") as child:
        shown = heard(child)
        child.kill()
        shown += child.communicate()[0]
    done = run("run", "--continue", "help")
    assert done.returncode == 0
    assert "an earlier turn ended as interrupted" in done.stderr
    events = stored(tmp_path)
    assert ends(events) == ["interrupted", "completed"]
    [lost] = [event.fact for event in events if isinstance(event.fact, e.ModelLost)]
    kept = "".join(part.text for part in lost.parts if isinstance(part, e.Text))
    assert kept.startswith(shown.decode())


def test_the_script_of_the_readme_is_killed_and_goes_on(tmp_path: Path) -> None:
    [script] = [block for _, block in fenced(ROOT / "README.md", "python") if "perdure.start" in block]
    file = tmp_path / "story.py"
    file.write_text(script, encoding="utf-8")
    child = subprocess.Popen([sys.executable, file], cwd=tmp_path, stdout=subprocess.PIPE)
    shown = heard(child)
    child.kill()
    shown += child.communicate()[0]
    session, _, told = shown.decode().partition("\n")
    again = subprocess.run(
        [sys.executable, file, session],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert again.stdout.startswith(f"{session}\n{told}")
    assert again.stdout.count("Once upon a time") == 2, "cut off, and told again"
    assert again.stdout.endswith("it is still there today.")
