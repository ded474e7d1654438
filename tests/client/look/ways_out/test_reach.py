"""What the walk along references finds, and its cost."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

from stilltrue import Agent
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.ways_out.reach import Leads, Reach
from tests.client.look.worlds import Stuck, look_at_caller


class CountedBudget(Budget):
    """A budget that counts its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def step(self) -> bool:
        self.steps += 1
        return super().step()


def test_an_object_that_many_actors_name_is_walked_once() -> None:
    """Once, each of hundreds of finalizers with the same code cost a walk: a look took seconds in a large process."""
    event, others = threading.Event(), [[f"{number}"] for number in range(100)]
    budget = CountedBudget()
    reach = Reach((event,), budget)
    named = ({"others": others, "it": event},)
    assert reach.held_by_name(named, ends=False) == {id(event)}
    steps = budget.steps
    assert steps > len(others)
    assert reach.held_by_name(tuple(named), ends=False) == {id(event)}
    assert budget.steps == steps


def test_an_object_is_walked_again_for_an_actor_whose_code_ends_waits() -> None:
    class Owner:
        def __init__(self, event: threading.Event) -> None:
            self.event = event

    event = threading.Event()
    reach = Reach((event,), Budget())
    named = (Owner(event),)
    assert reach.held_by_name(named, ends=False) == set()
    assert reach.held_by_name(named, ends=True) == {id(event)}


def test_what_threads_keep_for_themselves_is_behind_their_local() -> None:
    class Sub(threading.local):
        pass

    kept, other, plain = Sub(), Sub(), threading.local()
    event = threading.Event()
    kept.jobs = [event]
    other.jobs = plain.jobs = [threading.Event()]
    reach = Reach((event,), Budget(), named_targets_count=False)
    assert reach.held_by_name((kept,), ends=True) == {id(event)}
    assert reach.held_by_name((other, plain), ends=True) == set()


def test_called_code_is_read_once_and_remembers_whether_it_reaches_a_target() -> None:
    event, asked = threading.Event(), list[tuple[Any, bool]]()

    def ended_by(thing: Any, leads: Leads) -> Iterable[Any]:
        asked.append((thing, leads((thing,))))
        return ()

    having, other = {"it": [event]}, {"it": [threading.Event()]}
    reach = Reach((event,), Budget(), ended_by)
    for _ in range(2):
        reach.ended_by_calls((having, other))
    assert [leads for thing, leads in asked if thing is having] == [True]
    assert [leads for thing, leads in asked if thing is other] == [False]


def test_a_look_keeps_no_reference_to_the_objects_it_read(alone: Callable[..., Agent], stuck: Stuck) -> None:
    class Held:
        pass

    kept: list[ref[Held]] = []

    def caller(get: Any) -> None:
        held = {"one": [Held()]}
        kept.append(ref(held["one"][0]))
        get(b"")
        held.clear()

    assert not look_at_caller(alone, stuck, caller).doubt
    gc.collect()
    assert kept[0]() is None


async def test_who_has_a_lock_of_tasks_does_not_have_what_its_waiters_wait_for() -> None:
    """A handler under a lock that mentions cancelling counted as a way out of all who wait for the lock."""
    for lock in (asyncio.Lock(), asyncio.Semaphore()):
        await lock.acquire()
        waiter = asyncio.create_task(lock.acquire())
        await asyncio.sleep(0)
        awaited = next(iter(lock._waiters or ()))
        assert Reach((awaited,), Budget()).held(({"lock": lock},), ends=True) == set()
        assert Reach((lock,), Budget()).held(({"lock": lock},), ends=True) == {id(lock)}
        waiter.cancel()
        del awaited
