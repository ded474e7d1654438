"""The time limit of a look: small steps read the clock now and then, large ones each time."""

from __future__ import annotations

from stilltrue.runtime.look.budget import SECONDS_MAX, SECONDS_MAX_FOR_ALL, Budget, seconds_for


def test_a_large_step_notices_at_once_that_the_time_is_used_up() -> None:
    budget = Budget(0.0)
    assert budget.step()
    assert not budget.large_step()
    assert budget.spent
    assert not budget.step()


def test_small_steps_notice_it_after_a_while() -> None:
    budget = Budget(0.0)
    assert not all(budget.step() for _ in range(1_000))


def test_a_look_at_many_parties_has_more_time_but_not_without_end() -> None:
    assert SECONDS_MAX < seconds_for(1) < seconds_for(40) < SECONDS_MAX_FOR_ALL
    assert seconds_for(10_000) == SECONDS_MAX_FOR_ALL
