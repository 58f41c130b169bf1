"""A place for sessions, in each of the stores that outlive a process."""

from pathlib import Path

import pytest

from tests.postgres import fresh_database


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'perdure.db'}" if request.param == "sqlite" else fresh_database()
