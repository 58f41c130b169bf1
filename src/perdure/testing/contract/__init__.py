"""The contract of a store: what `Journal` promises, whatever it keeps its rows in.

A store of your own passes it like ours do. Subclass, open a journal over your store, and let pytest find it:

    class TestMyStore(JournalContract):
        async def open_another(self, home, clock):
            return Journal(MyStore(home / "my.store", clock), clock, home / "processes")

        async def inject(self, journal, session, row):
            ...

It needs pytest with anyio's plugin, and an `anyio_backend` fixture that says "asyncio".
"""

# ruff: noqa: E402
import pytest

for room in ("appending", "following", "listing", "owning", "reading", "telling"):
    pytest.register_assert_rewrite(f"{__name__}.{room}")  # so that a failure says what was there instead

from perdure.testing.contract.appending import Appending
from perdure.testing.contract.following import Following
from perdure.testing.contract.listing import Listing
from perdure.testing.contract.owning import Owning
from perdure.testing.contract.reading import Reading

__all__ = ["Appending", "Following", "JournalContract", "Listing", "Owning", "Reading"]


class JournalContract(Appending, Owning, Reading, Following, Listing):
    """What a store must do. Each method is a sentence that is true of every store."""
