"""What the walk along references costs."""

from __future__ import annotations

import threading

from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.enders.reach import Reach


class CountedBudget(Budget):
    """A budget whose steps are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self) -> bool:
        self.steps += 1
        return super().step()


def test_what_many_actors_name_is_walked_once() -> None:
    """Before, each of hundreds of finalizers that run the same code cost a walk: a look took seconds in a large process."""
    event, others = threading.Event(), [[f"{number}"] for number in range(100)]
    budget = CountedBudget()
    reach = Reach((event,), budget)
    named = ({"others": others, "it": event},)
    assert reach.held_by_name(named, ends=False) == {id(event)}
    steps = budget.steps
    assert steps > len(others)
    assert reach.held_by_name(tuple(named), ends=False) == {id(event)}
    assert budget.steps == steps


def test_what_is_named_is_walked_again_by_who_speaks_of_ending_things() -> None:
    class Owner:
        def __init__(self, event: threading.Event) -> None:
            self.event = event

    event = threading.Event()
    reach = Reach((event,), Budget())
    named = (Owner(event),)
    assert reach.held_by_name(named, ends=False) == set()
    assert reach.held_by_name(named, ends=True) == {id(event)}
