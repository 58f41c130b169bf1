"""When a failed call is tried again: later each time, never earlier than the provider said, and not for ever."""

import pytest

from perdure.policy.retrying import SECOND, Retrying

NOW = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("tries", "longest"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (9, 30.0), (99, 30.0)]
)
def test_the_wait_is_drawn_between_nothing_and_a_bound_that_doubles(tries: int, longest: float) -> None:
    policy = Retrying(attempts=100)
    assert policy.again_at(NOW, tries, 0.0) == NOW
    assert policy.again_at(NOW, tries, 1.0) == NOW + longest * SECOND
    assert policy.again_at(NOW, tries, 0.5) == NOW + longest * SECOND / 2


def test_after_so_many_attempts_there_is_no_other() -> None:
    policy = Retrying(attempts=3)
    assert [policy.again_at(NOW, tries, 0.5) is None for tries in (1, 2, 3, 4)] == [False, False, True, True]
    assert Retrying(attempts=1).again_at(NOW, 1, 0.5) is None


def test_what_the_provider_advised_is_never_undercut() -> None:
    policy = Retrying()
    assert policy.again_at(NOW, 1, 1.0, advised=7.5) == NOW + 7.5 * SECOND
    assert policy.again_at(NOW, 1, 1.0, advised=0.01) == NOW + 0.5 * SECOND
    assert policy.again_at(NOW, 1, 1.0, advised=86400.0) is None
