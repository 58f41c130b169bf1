"""An owner stands still for longer than its lease, and another one takes its place."""

from collections.abc import Iterator

import pytest

from perdure import journal
from perdure.testing.journals import faults, whole
from tests.kill.template import Template

pytestmark = pytest.mark.anyio

LEASE = 3.0
"""Long enough for a busy machine to ask while it runs."""


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with Template() as template:
        yield template


async def test_an_owner_that_was_stopped_past_its_lease_writes_nothing_more(
    template: Template, store_url: str
) -> None:
    async with await journal.open(store_url) as before:
        session = await before.create()
    sleepy = template.start("own_and_pause", url=store_url, session=session, lease=LEASE)
    begun = sleepy.hear()
    assert begun["may_act"]
    sleepy.stopped()

    other = template.start("take", url=store_url, session=session)
    assert other.hear() == "open"
    assert (
        other.hear() == "refused"
    )  # while the lease runs it is not for others to say that its owner is gone
    taken = other.hear()
    assert taken["epoch"] == begun["epoch"] + 1

    other.tell("append")
    appended = other.hear()

    sleepy.resume()
    awake = sleepy.hear()
    assert awake == {"outcomes": ["NotOwner", "NotOwner"], "may_act": False, "leased": True}

    async with await journal.open(store_url) as after:
        events = await whole(after, session)
        assert [event.seq for event in events if event.seq > begun["turn"]] == [taken["seq"], *appended]
        assert await faults(after, session) == []
