"""The real console script, as its own process, in a home of its own; and a small store to try it on."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure.events import MessageSent, SessionCreated, Text

Run = Callable[..., subprocess.CompletedProcess[str]]
PERDURE = Path(sys.executable).with_name("perdure")
TITLES = {
    "abcdef00000000000001": "안녕 🦆 세계",
    "abcdef00000000000002": "twin",
    "zyxwvt00000000000001": "twin",
    "tttttt00000000000001": "\x1b[31mred\x07",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "code 코드 🦆"
    project.mkdir()
    return project


@pytest.fixture
def run(tmp_path: Path, project: Path) -> Run:
    return runner(tmp_path, project)


@pytest.fixture
def bound(tmp_path: Path, project: Path) -> Run:
    """`run`, by somebody whom permissions bind, which by themselves do not bind root."""
    before: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("permissions do not bind root, and there is no setpriv to make them")
        powers = "-dac_override,-dac_read_search"
        before = ["setpriv", "--bounding-set", powers, "--inh-caps", powers]
    folder = tmp_path / "nobody may write here"
    folder.mkdir(mode=0o500)
    tried = subprocess.run([*before, "touch", folder / "file"], capture_output=True, check=False)
    if tried.returncode == 0:
        pytest.skip("permissions do not bind us, and setpriv does not make them")
    return runner(tmp_path, project, *before)


def runner(home: Path, folder: Path, *before: str) -> Run:
    def run(*arguments: str, **environ: str | None) -> subprocess.CompletedProcess[str]:
        given = {"HOME": str(home), "PATH": os.environ["PATH"]} | environ
        done = subprocess.run(
            [*before, PERDURE, *arguments],
            cwd=folder,
            env={name: value for name, value in given.items() if value is not None},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("template") / "perdure.db"

    async def fill() -> None:
        async with await perdure.open(f"sqlite:///{file}") as journal:
            for id, title in TITLES.items():
                await journal.create(SessionCreated(session=id))
                await journal.append(id, MessageSent((Text(title),)))

    asyncio.run(fill())
    return file


@pytest.fixture
def store(template: Path, project: Path) -> Path:
    """A store with a few sessions, in a folder with a difficult name."""
    store = project / "perdure 저널.db"
    shutil.copy(template, store)
    return store
