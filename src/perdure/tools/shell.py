"""The shell: one command, its output as it comes."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import ClassVar

from perdure.tools import Done, Output, Place
from perdure.tools.leftover import VARIABLE, end

CHUNK = 1 << 16
MOST = 1 << 20
"""Bytes of output that are kept; what a command prints beyond is read and thrown away, and that is said."""
SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")


class Shell:
    name = "shell"
    description = "Run a command with the shell, in the workspace, and see what it prints."
    parameters: ClassVar[dict[str, object]] = {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "What to run."},
            "timeout": {"type": "number", "description": "End it after so many seconds. Default: 120."},
        },
        "required": ["command"],
    }
    repeatable = False

    async def run(self, arguments: Mapping[str, object], place: Place) -> AsyncIterator[Output | Done]:
        command, timeout = arguments.get("command"), arguments.get("timeout", 120)
        if not isinstance(command, str) or not isinstance(timeout, int | float):
            yield Output("`command` is a string and `timeout` a number.")
            yield Done(ok=False)
            return
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command, cwd=place.workspace, env=_environment(place), start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        reaping = asyncio.create_task(_reap(process, place), name="perdure-reap")
        deadline = asyncio.get_running_loop().time() + timeout
        decoder, printed = codecs.getincrementaldecoder("utf-8")("replace"), 0
        try:
            while chunk := await _chunk(process, deadline):
                if text := decoder.decode(chunk[: max(MOST - printed, 0)]):
                    yield Output(text)
                printed += len(chunk)
            if rest := decoder.decode(b"", final=True):
                yield Output(rest)
            if printed > MOST:
                yield Output(f"\n[{printed - MOST} more bytes were printed and are not kept]")
            if chunk is None or not await _ends(reaping, deadline):
                yield Output(f"\n[ended after {timeout:g} seconds]")
                yield Done(ok=False)
                return
            yield Done(ok=process.returncode == 0, exit_code=process.returncode)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                await asyncio.shield(asyncio.to_thread(end, place.call))
            await reaping
            process._transport.close()  # type: ignore[attr-defined]  # a pipe that a stranger holds open would leak


async def _reap(process: asyncio.subprocess.Process, place: Place) -> None:
    """Once the shell has gone, end what it left running: it would keep the pipe open, and nobody would look after it."""
    # Not `wait`: that waits for the pipe as well, in some versions of Python.
    while process.returncode is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await asyncio.to_thread(end, place.call)


async def _chunk(process: asyncio.subprocess.Process, deadline: float) -> bytes | None:
    """What it printed next: nothing if it will print no more, None if it has no time left."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout_at(deadline):
            return await process.stdout.read(CHUNK)
    except TimeoutError:
        return None


async def _ends(reaping: asyncio.Task[None], deadline: float) -> bool:
    left = deadline - asyncio.get_running_loop().time()
    done, _ = await asyncio.wait({reaping}, timeout=max(left, 0.0))
    return bool(done)


def _environment(place: Place) -> dict[str, str]:
    """Ours without what looks like a secret: what a model runs must not be able to read it."""
    mine = {
        name: value
        for name, value in os.environ.items()
        if not any(word in name.upper() for word in SECRET_NAMES)
    }
    return mine | {VARIABLE: place.call}
