"""The time limit of a look: small steps read the clock now and then, large ones each time."""

from __future__ import annotations

from stilltrue.runtime.look.budget import Budget


def test_a_large_step_notices_at_once_that_the_time_is_used_up() -> None:
    budget = Budget(0.0)
    assert budget.step()
    assert not budget.large_step()
    assert budget.spent
    assert not budget.step()


def test_small_steps_notice_it_after_a_while() -> None:
    budget = Budget(0.0)
    assert not all(budget.step() for _ in range(1_000))
