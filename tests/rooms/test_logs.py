from __future__ import annotations

import json
import logging
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import logs
from perdure.config import Secret


@pytest.fixture(autouse=True)
def _the_log_of_the_test_run_stays_as_it_was() -> Iterator[None]:
    logger = logging.getLogger("perdure")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers, logger.level, logger.propagate = before


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_line_says_what_happened_where_and_when(tmp_path: Path) -> None:
    file = logs.keep(tmp_path / "home")
    logging.getLogger("perdure.journal").info("session created", extra={"session": "abc", "seq": 1})
    (line,) = lines(file)
    assert str(line.pop("time")).endswith("+00:00")
    assert isinstance(line.pop("pid"), int)
    assert line == {
        "level": "info",
        "room": "journal",
        "event": "session created",
        "session": "abc",
        "seq": 1,
    }


def test_a_log_and_its_folders_are_private(tmp_path: Path) -> None:
    file = logs.keep(tmp_path / "home")
    logging.getLogger("perdure.journal").info("migrated")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.parent.parent.stat().st_mode) == 0o700


def test_keeping_a_log_makes_no_file_before_there_is_a_line(tmp_path: Path) -> None:
    logs.keep(tmp_path / "home")
    assert not list(tmp_path.iterdir())


def test_neither_secrets_nor_the_words_of_an_exception_are_logged(tmp_path: Path) -> None:
    file = logs.keep(tmp_path)
    try:
        raise ValueError("hush, said the user")
    except ValueError:
        logging.getLogger("perdure.journal").exception("load error", extra={"token": Secret("hush")})
    assert "hush" not in file.read_text(encoding="utf-8")
    assert lines(file)[0]["error"] == "ValueError"


def test_any_text_is_one_line_of_json(tmp_path: Path) -> None:
    file = logs.keep(tmp_path)
    odd = "\n\u2028\x00\ud800 한글"
    logging.getLogger("perdure.journal").warning("load error", extra={"session": odd})
    assert lines(file)[0]["session"] == odd


def test_a_log_is_bounded_and_several_processes_may_share_it(tmp_path: Path) -> None:
    # Each writes 2.4 MB, all at once: the limit is passed, and no line is torn or doubled.
    script = """if True:
        import logging, sys
        from pathlib import Path
        from perdure import logs
        logs.keep(Path(sys.argv[1]))
        for number in range(600):
            logging.getLogger("perdure.test").info("x", extra={"who": sys.argv[2], "n": number, "pad": "." * 4000})
    """
    writers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), who]) for who in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    folder = tmp_path / "logs"
    assert {file.name for file in folder.iterdir()} == {"perdure.log", "perdure.log.1"}
    found = [(line["who"], line["n"]) for file in folder.iterdir() for line in lines(file)]
    assert sorted(found) == [(who, number) for who in "abc" for number in range(600)]
    assert all(file.stat().st_size < logs.LIMIT + 5000 for file in folder.iterdir())


def test_a_log_that_cannot_be_written_is_said_and_hurts_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").write_text("in the way", encoding="utf-8")
    logs.keep(tmp_path)
    logging.getLogger("perdure.journal").info("session created")
    assert f"perdure: cannot write {tmp_path}/logs/perdure.log: " in capsys.readouterr().err
