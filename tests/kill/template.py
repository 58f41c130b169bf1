"""Processes to kill, forked from one that has imported everything already, so that importing is no part of a round.

    with Template() as template:
        child = template.start("append", url=url, seed=1)   # jobs.append(Child's end, url=..., seed=...)
        for said in child.heard():                          # what it says, one JSON value a line
            ...
        child.kill()                                        # returns when it is gone and its locks with it

The template has one thread, ever: what is forked from it inherits no lock that somebody else holds.
"""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import psutil

HERE = Path(__file__).parents[2]
LONGEST = 100.0
"""Seconds until a child that says nothing is given up on. No test waits that long unless something is wrong."""


class Mouth:
    """The child's end: it says JSON values, and waits for words."""

    def __init__(self, out: int, words: int) -> None:
        self._out, self._words = out, words

    def say(self, value: object) -> None:
        # One write a line: what was said in full before a kill is heard in full after it.
        line = json.dumps(value).encode() + b"\n"
        while line:
            line = line[os.write(self._out, line) :]

    def wait(self) -> str:
        """The next word from the test; empty if the test is gone."""
        return os.read(self._words, 64).decode()

    def was_told(self) -> bool:
        return bool(select.select([self._words], [], [], 0)[0])


class Child:
    def __init__(self, template: "Template", pid: int, out: int, words: int) -> None:
        self.pid = pid
        self._template, self._out, self._words = template, out, words
        self._rest = b""
        self._gone = False

    def heard(self, until: float | None = None) -> Iterator[Any]:
        """What it says, until it is silent for ever, or until this moment of `time.monotonic`."""
        while (said := self._next(until)) is not None:
            yield said

    def hear(self) -> Any:
        """The next thing it says; a child that ends instead is an error."""
        said = self._next(None)
        assert said is not None, f"process {self.pid} ended and said nothing more"
        return said

    def _next(self, until: float | None) -> Any:
        while b"\n" not in self._rest:
            left = LONGEST if until is None else until - time.monotonic()
            if left <= 0:
                return None
            if not select.select([self._out], [], [], left)[0]:
                assert until is not None, f"process {self.pid} said nothing for {LONGEST} s"
                return None
            more = os.read(self._out, 1 << 16)
            if not more:
                return None  # a line that was not finished was not said
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    def tell(self, word: str = "go") -> None:
        os.write(self._words, word.encode())

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.stopped()

    def stopped(self) -> None:
        """Return when it stands still."""
        until = time.monotonic() + LONGEST
        while psutil.Process(self.pid).status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < until, f"process {self.pid} does not stop"
            time.sleep(0.001)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> list[Any]:
        """Kill it as the kernel does, and give what it had said by then."""
        os.kill(self.pid, signal.SIGKILL)
        return self.end()

    def end(self) -> list[Any]:
        """What else it says until it has ended."""
        said = list(self.heard())
        self.status = self._template.wait(self.pid)
        self._gone = True
        return said

    def close(self) -> None:
        if not self._gone:
            self.kill()
        os.close(self._out)
        os.close(self._words)


class Template:
    def __init__(self, jobs: str = "tests.kill.jobs") -> None:
        """`jobs` is the module whose functions its children can do."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(LONGEST)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kill.template", str(theirs.fileno()), jobs],
            cwd=HERE,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._children: list[Child] = []
        assert self._socket.recv(64) == b"ready"

    def start(self, job: str, **arguments: object) -> Child:
        ours, out = os.pipe()
        words, theirs = os.pipe()
        socket.send_fds(self._socket, [json.dumps([job, arguments]).encode()], [out, words])
        os.close(out)
        os.close(words)
        child = Child(self, int(self._socket.recv(64)), ours, theirs)
        self._children.append(child)
        return child

    def wait(self, pid: int) -> int:
        """Return when this process is gone altogether, with every file it held; its exit code, or minus its signal."""
        self._socket.send(json.dumps([pid]).encode())
        return int(self._socket.recv(64))

    def forget(self, child: Child) -> None:
        child.close()
        self._children.remove(child)

    def __enter__(self) -> "Template":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for child in self._children:
            child.close()
        self._socket.close()
        self._process.wait(LONGEST)


def serve(ours: socket.socket, jobs: ModuleType) -> None:
    ours.send(b"ready")
    while True:
        message, fds, _, _ = socket.recv_fds(ours, 1 << 16, 2)
        match json.loads(message) if message else None:
            case None:
                return
            case [int(pid)]:
                ours.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            case [job, arguments]:
                pid = os.fork()
                if not pid:
                    ours.close()
                    work(getattr(jobs, job), Mouth(*fds), arguments)
                for fd in fds:
                    os.close(fd)
                ours.send(str(pid).encode())


def work(job: Callable[..., Any], mouth: Mouth, arguments: dict[str, Any]) -> None:
    code = 1
    try:
        asyncio.run(job(mouth, **arguments))
        code = 0
    except BaseException:
        # It is the test's to say that this must not happen; without it nobody would know what did.
        traceback.print_exc()
        mouth.say({"error": traceback.format_exc()})
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), import_module(sys.argv[2]))
