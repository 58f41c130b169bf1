"""What all tests share: the backend of asynchronous ones, and how much chance is given a chance."""

import os

import pytest
from hypothesis import settings

settings.register_profile("small", max_examples=60, deadline=None)
settings.register_profile("full", max_examples=2000, deadline=None)
settings.load_profile("full" if os.environ.get("PERDURE_ROUNDS") == "full" else "small")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
