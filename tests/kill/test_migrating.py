"""An upgrade that is killed, raced or cut off: whoever opens the store next finds it as it was, or upgraded.

`PERDURE_ROUNDS=full` takes all thousand sessions, and every place there is to die at.
"""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from perdure import journal
from perdure.events import TurnStarted
from perdure.journal.care import doctor
from perdure.journal.clock import SystemClock
from perdure.journal.files import LockFile
from perdure.journal.postgres import _MIGRATING
from perdure.journal.sqlite import SqliteStore
from tests.golden.layout_1 import LATER, execute, expected, foreign, placed, rows, unlike
from tests.kill.jobs import FILE_POINTS
from tests.kill.lives import FULL, SEED, message
from tests.kill.migrating import AFTER, STATEMENT
from tests.kill.power import Recorder, images
from tests.kill.template import LONGEST, Child, Template
from tests.postgres import fresh_database

pytestmark = pytest.mark.anyio

SHORT = not FULL


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with Template("tests.kill.migrating") as template:
        yield template


class Old:
    """A store of layout 1, and all that was in its database before anything happened to it."""

    def __init__(self, url: str, *, short: bool = SHORT) -> None:
        self.url, self.short = placed(url, short=short), short
        self._rows, self._foreign = rows(self.url), foreign(self.url)

    @property
    def is_file(self) -> bool:
        return self.url.startswith("sqlite")

    def backups(self) -> list[Path]:
        path = Path(self.url.removeprefix("sqlite:///"))
        return sorted(path.parent.glob(f"{path.name}.layout-1-*.backup"))

    def is_in(self, backup: Path) -> bool:
        return rows(f"sqlite:///{backup}") == self._rows

    def look(self, url: str = "") -> str:
        """The layout at this address. Whichever it is, every row of ours and of others is what it was."""
        url = url or self.url
        now, was = rows(url), dict(self._rows)
        layout = str(dict(now["perdure_store"])["layout"])
        if layout != "1":
            was["perdure_store"] = [("layout", layout), ("writes", "1")]
        assert now == was
        assert foreign(url) == self._foreign
        return layout

    async def is_all_right(self, url: str = "") -> None:
        """It opens, tells what it told, and is gone on with where it was left."""
        async with await journal.open(url or self.url, clock=LATER, announce=lambda _: None) as opened:
            assert await unlike(opened, short=self.short) == []
            assert [str(f) async for f in doctor(opened, mend=False) if f.kind != "note"] == []
            waiting = [one["id"] for one in expected(self.short) if one["runnable_at"] and one["events"] == 2]
            owned = await opened.take(waiting[0])
            await owned.append(TurnStarted(takes=(2,)))
            await opened.append(waiting[1], message("on we go"))


def told(template: Template, child: Child) -> tuple[list[str], object]:
    """What it announced, and the last that it said."""
    said = child.end()
    assert child.status in (0, -9), said
    template.forget(child)
    return [each["announced"] for each in said if isinstance(each, dict)], said[-1] if said else None


def backup_in(sentence: str) -> Path:
    return Path(sentence.rpartition(" a backup is at ")[2])


@pytest.mark.parametrize("point", [STATEMENT, AFTER])
async def test_an_upgrade_that_is_killed_at_each_statement_is_done_by_the_next_to_open(
    template: Template, store_url: str, point: str
) -> None:
    old = Old(store_url)
    if old.is_file and point == AFTER:
        return  # what no other process knows of until the next statement is as if it had not been
    layouts, announced, last = [], [], None
    for times in itertools.count(1):
        more, last = told(template, template.start("upgrade", url=old.url, point=point, times=times))
        announced += more
        layouts.append(old.look())
        if last == "open":
            break
        if FULL and not old.is_file:
            await old.is_all_right(fresh_database(more=f"TEMPLATE {conninfo_to_dict(old.url)['dbname']}"))
    assert layouts == sorted(layouts)  # never back again
    assert layouts.count("1") >= 15, "it was not killed at each statement"
    if old.is_file:
        assert sorted(map(backup_in, announced)) == old.backups()
        assert all(old.is_in(backup) for backup in old.backups())
    await old.is_all_right()


async def test_an_upgrade_that_is_killed_in_the_middle_of_writing_is_done_by_the_next_to_open(
    template: Template, tmp_path: Path
) -> None:
    print(f"PERDURE_SEED={SEED}")
    for point in FILE_POINTS:
        step = 1 if FULL else 18 if "write" in point else 5
        for times in range(1 + SEED % step, 10_000, step):
            old = Old(f"sqlite:///{tmp_path}/{point}-{times}.db")
            announced, last = told(template, template.start("upgrade", url=old.url, point=point, times=times))
            about = f"killed at {point} {times}"
            assert announced or old.look() == "1", f"{about}: it was upgraded before there was a backup"
            assert all(old.is_in(backup_in(sentence)) for sentence in announced), about
            if last == "open":
                break
            await old.is_all_right()


async def test_an_upgrade_that_is_killed_at_any_moment_is_done_by_the_next_to_open(
    template: Template, store_url: str
) -> None:
    print(f"PERDURE_SEED={SEED}")
    chance, old = Random(SEED), Old(store_url)
    for number in range(100 if FULL else 5):
        if old.look() == "2":
            old = Old(store_url.replace("perdure.db", f"{number}.db"))
        child = template.start("upgrade", url=old.url)
        assert child.hear() == "begun"
        said = list(child.heard(until=time.monotonic() + chance.random() * (0.15 if FULL else 0.05)))
        for each in said + child.kill():
            if isinstance(each, dict) and old.is_file:
                assert old.is_in(backup_in(each["announced"]))
        template.forget(child)
    old.look()
    await old.is_all_right()


@pytest.mark.parametrize("killed", [0, 3])
async def test_of_four_processes_that_open_an_old_store_at_once_one_upgrades_it(
    template: Template, store_url: str, killed: int
) -> None:
    print(f"PERDURE_SEED={SEED}")
    chance = Random(SEED)
    for number in range(25 if FULL else 2):
        old = Old(store_url.replace("perdure.db", f"{number}.db"))
        children = [template.start("upgrade_with_others", url=old.url, short=old.short) for _ in range(4)]
        assert [child.hear() for child in children] == ["ready"] * 4
        for child in children:
            child.tell()
        for child in children[:killed]:
            list(child.heard(until=time.monotonic() + chance.random() * 0.03))
            child.kill()
        said = [child.end() for child in children[killed:]]
        for each in said:
            assert each[-1:] == [{"unlike": []}], each
        if not killed:
            announced = [one["announced"] for each in said for one in each if "announced" in one]
            assert len(announced) == 1
            assert old.backups() == ([backup_in(announced[0])] if old.is_file else [])
        assert old.look() == "2"
        await old.is_all_right()
        for child in children:
            template.forget(child)


async def test_an_upgrade_during_which_the_power_goes_is_done_by_the_next_to_open(tmp_path: Path) -> None:
    print(f"PERDURE_SEED={SEED}")
    old = Old(f"sqlite:///{tmp_path}/perdure.db", short=True)
    with Recorder() as recorder:
        clock, said = SystemClock(), lambda _: recorder.mark(1)
        SqliteStore(tmp_path / "perdure.db", clock, vfs=recorder.name, announce=said).close()
    [name] = [backup.name for backup in old.backups()]
    layouts = []
    for number, image in enumerate(images(recorder.log, 600 if FULL else 24, SEED)):
        home = tmp_path / str(number)
        image.write_to(home)
        layouts.append(old.look(f"sqlite:///{home}/perdure.db"))
        if image.acknowledged or layouts[-1] == "2":
            assert old.is_in(home / name), image.about
        await old.is_all_right(f"sqlite:///{home}/perdure.db")
    assert set(layouts) == {"1", "2"}


async def test_a_file_that_another_process_upgrades_further_is_refused_and_stays_as_it_is(
    template: Template, tmp_path: Path
) -> None:
    old = Old(f"sqlite:///{tmp_path}/perdure.db", short=True)
    with LockFile(tmp_path / "perdure.db.lock"):
        child = template.start("open_once", url=old.url)
        assert child.hear() == "begun"
        wait_for(lambda: f" {child.pid} " in "".join(ln for ln in locks() if "->" in ln))
        execute(old.url, "UPDATE perdure_store SET value = '3' WHERE name = 'layout'")
    [refused] = child.end()
    assert refused["refused"] == "StoreTooNew", refused
    assert old.look() == "3"


async def test_a_database_that_another_process_upgrades_further_is_refused_and_stays_as_it_is(
    template: Template,
) -> None:
    old = Old("postgresql:", short=True)
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
    with psycopg.connect(old.url, autocommit=True) as db:
        db.execute("SELECT pg_advisory_lock(%s)", (_MIGRATING,))
        child = template.start("open_once", url=old.url)
        assert child.hear() == "begun"
        wait_for(lambda: db.execute(waiting).fetchall())
        execute(old.url, "UPDATE perdure_store SET value = '3' WHERE name = 'layout'")
    [refused] = child.end()
    assert refused["refused"] == "StoreTooNew", refused
    assert old.look() == "3"


def locks() -> list[str]:
    return Path("/proc/locks").read_text().splitlines()


def wait_for(true: Any) -> None:
    until = time.monotonic() + LONGEST
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)
