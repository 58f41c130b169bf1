"""The shell: what a command prints comes as it comes, and nothing of a command goes on when its call is over."""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from perdure.tools import Done, Output, Place
from perdure.tools.leftover import VARIABLE, end, find
from perdure.tools.shell import MOST, Shell

pytestmark = pytest.mark.anyio

CALL = f"session-{os.getpid()}:7"


async def ran(folder: Path, command: str, **more: object) -> tuple[str, Done]:
    arguments: Mapping[str, object] = {"command": command, **more}
    found = [one async for one in Shell().run(arguments, Place(CALL, folder))]
    assert isinstance(found[-1], Done)
    return "".join(one.text for one in found if isinstance(one, Output)), found[-1]


@pytest.mark.parametrize(
    ("command", "printed", "code"),
    [
        ("echo hi", "hi\n", 0),
        ("echo out; echo err >&2; exit 3", "out\nerr\n", 3),
        ("true", "", 0),
        ("printf '한국어 👩‍👩‍👧 שלום'", "한국어 👩‍👩‍👧 שלום", 0),
        (r"printf 'a\377b\0c'", "a\ufffdb\0c", 0),
        ("cat", "", 0),
        ("kill -9 $$", "", -9),
    ],
)
async def test_a_command_says_what_it_prints_and_how_it_ended(
    tmp_path: Path, command: str, printed: str, code: int
) -> None:
    assert await ran(tmp_path, command) == (printed, Done(ok=code == 0, exit_code=code))


async def test_it_runs_in_the_workspace(tmp_path: Path) -> None:
    folder = tmp_path / "ein Ordner 폴더"
    folder.mkdir()
    printed, _ = await ran(folder, "pwd")
    assert printed == f"{folder}\n"


async def test_a_sign_that_arrives_in_two_halves_is_one_sign(tmp_path: Path) -> None:
    printed, _ = await ran(tmp_path, r"printf '\355\225'; sleep 0.1; printf '\234'")
    assert printed == "한"


async def test_output_comes_while_the_command_runs(tmp_path: Path) -> None:
    command = f"echo begun; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo done"
    async with aclosing(Shell().run({"command": command}, Place(CALL, tmp_path))) as output:  # type: ignore[type-var]
        assert await anext(output) == Output("begun\n")
        (tmp_path / "go").touch()
        assert await anext(output) == Output("done\n")


async def test_what_a_command_leaves_in_the_background_is_ended_with_it(tmp_path: Path) -> None:
    printed, done = await ran(tmp_path, "sleep 1000 & setsid sleep 1000 & echo left")
    assert (printed, done.ok) == ("left\n", True)
    assert find(CALL) == []


async def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    printed, done = await ran(tmp_path, "echo begun; trap '' TERM; sleep 1000", timeout=0.3)
    assert printed == "begun\n\n[ended after 0.3 seconds]"
    assert not done.ok
    assert find(CALL) == []


async def test_a_call_that_is_closed_in_the_middle_ends_its_command(tmp_path: Path) -> None:
    shell = Shell().run({"command": "echo begun; setsid sleep 1000"}, Place(CALL, tmp_path))
    async with aclosing(shell) as output:  # type: ignore[type-var]
        await anext(output)
        assert len(find(CALL)) >= 1
    assert find(CALL) == []


async def test_output_without_an_end_is_cut_and_that_is_said(tmp_path: Path) -> None:
    printed, _ = await ran(tmp_path, f"head -c {MOST + 12345} /dev/zero | tr '\\0' x")
    assert printed == "x" * MOST + "\n[12345 more bytes were printed and are not kept]"


async def test_secrets_of_this_process_are_not_in_its_environment(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, pathlib; sys.path[:0] = sys.argv[2:];"
        "from perdure.tools.shell import Shell; from perdure.tools import Place\n"
        "async def main():\n"
        "    async for one in Shell().run({'command': 'env'}, Place('s:1', pathlib.Path(sys.argv[1]))):\n"
        "        print(getattr(one, 'text', ''))\n"
        "asyncio.run(main())"
    )
    secrets = {
        "OPENAI_API_KEY": "s3cret-1",
        "my_token": "s3cret-2",
        "DB_PASSWORD": "s3cret-3",
        "PLAIN": "shown",
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path), *sys.path, env={**os.environ, **secrets}, stdout=asyncio.subprocess.PIPE
    )  # fmt: skip
    printed = (await child.communicate())[0].decode()
    assert "shown" in printed
    assert f"{VARIABLE}=s:1" in printed
    assert "s3cret" not in printed


@pytest.mark.parametrize("arguments", [{}, {"command": 5}, {"command": "true", "timeout": "soon"}])
async def test_arguments_that_make_no_sense_are_answered(
    tmp_path: Path, arguments: dict[str, object]
) -> None:
    *said, done = [one async for one in Shell().run(arguments, Place(CALL, tmp_path))]
    assert said == [Output("`command` is a string and `timeout` a number.")]
    assert done == Done(ok=False)


async def test_only_the_processes_of_this_very_call_are_ended(tmp_path: Path) -> None:
    other = await asyncio.create_subprocess_exec("sleep", "1000", env={VARIABLE: f"{CALL}7"})
    mine = await asyncio.create_subprocess_exec("sleep", "1000", env={VARIABLE: CALL})
    assert find(CALL) == [mine.pid]
    assert await asyncio.to_thread(end, CALL) == 1
    await mine.wait()
    assert other.returncode is None
    other.kill()
    await other.wait()
