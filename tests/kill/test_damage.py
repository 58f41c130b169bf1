"""Whatever happens to the files of a store while nobody looks: it is named, and what is intact is kept.

`PERDURE_ROUNDS=full` damages thousands of stores. A failure names the seed, which repeats it as far as ids and salts,
which are chance of another kind, allow, and what was done; and it leaves the files behind.
"""

from collections import Counter
from pathlib import Path
from random import Random
from shutil import rmtree

import pytest

from tests.kill import looks
from tests.kill.damages import Files, damaged
from tests.kill.lives import FULL, SEED
from tests.kill.stores import Before, lived

pytestmark = pytest.mark.anyio

CASES = 2000 if FULL else 36
TOGETHER = 12
"""Cases that begin with the same sound store."""


async def test_what_is_damaged_is_named_and_what_is_intact_is_kept(tmp_path: Path) -> None:
    print(f"PERDURE_SEED={SEED}")
    came: Counter[str] = Counter()
    for number in range(CASES):
        if number % TOGETHER == 0:
            before = await lived(tmp_path, SEED + number, closed=number // TOGETHER % 3 == 2)
        said, files = damaged(Random(f"{SEED} {number}"), before)
        case = tmp_path / f"case {number}"
        try:
            complaints = await _complaints(before, files, case, came)
            assert not complaints, "\n".join(complaints[:10])
        except Exception as why:
            files.write_to(case / "damaged.db")
            why.add_note(f"PERDURE_SEED={SEED}, case {number}: {said}\nin {case}")
            raise
        rmtree(case)
    print(f"{CASES} cases: {', '.join(f'{count} {what}' for what, count in sorted(came.items()))}")
    # A corpus that never came to one of these would say nothing about it.
    assert all(came[what] for what in ("refused", "opened whole", "opened with damage", "events lost")), came


async def _complaints(before: Before, files: Files, case: Path, came: Counter[str]) -> list[str]:
    case.mkdir()
    (case / "aside").mkdir()
    path = case / "damaged.db"
    files.write_to(path)
    saved = await looks.rescued(before, files, path, case / "saved.db")
    opened = await looks.opened(before, files, path, case / "aside")
    worse = await looks.looked_at_again(opened, path)
    named = any(f.kind == "damage" for f in opened.findings)
    came["refused" if opened.refused else "opened with damage" if named else "opened whole"] += 1
    came["events saved"] += saved.saved.events
    came["events lost"] += len(before.rows) - saved.saved.events
    return saved.complaints + opened.complaints + worse
