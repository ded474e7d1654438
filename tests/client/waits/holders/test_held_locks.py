"""Holders of locks by position: blocks of any object, functions under ``contextmanager``, and ``acquire()`` without a block."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest

from stilltrue.runtime.compat import value_stack
from stilltrue.runtime.waits.holders.with_blocks import exits_of
from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import PATIENCE_SECONDS, Front
from tests.client.waits.resolvers.test_locks_of_tasks import Loop, waits_of

Inside = Callable[[], object]
KEPT: list[Any] = []
HELD: dict[str, Callable[[Any, Inside], None]] = {}
NOT_HELD: dict[str, Callable[[Any, Inside], None]] = {}
reads_stacks = pytest.mark.skipif(
    not value_stack._can_read(),
    reason="what a running frame keeps cannot be read here",
)


def held(function: Callable[[Any, Inside], None]) -> Callable[[Any, Inside], None]:
    HELD[function.__name__] = function
    return function


def not_held(function: Callable[[Any, Inside], None]) -> Callable[[Any, Inside], None]:
    NOT_HELD[function.__name__] = function
    return function


@contextmanager
def locked(locks: dict[str, Any], key: str) -> Iterator[None]:
    with locks[key]:
        yield


@contextmanager
def taken(lock: Any) -> Iterator[None]:
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def within(lock: Any) -> Iterator[None]:
    with taken(lock):
        yield


@contextmanager
def given_back_early(lock: Any) -> Iterator[None]:
    lock.acquire()
    lock.release()
    yield


@contextmanager
def on_a_condition(lock: Any, takes: bool = True) -> Iterator[None]:
    if takes:
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def all_of(locks: list[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in locks:
            stack.enter_context(one)
        yield


class Shards:
    def __init__(self, lock: Any) -> None:
        self._locks = [threading.Lock(), lock]

    @property
    def mine(self) -> Any:
        return self._locks[1]

    def of(self, key: int) -> Any:
        return self._locks[key % 2]


@held
def by_a_generator(lock: Any, inside: Inside) -> None:
    with locked({"a": lock}, "a"):
        inside()


@held
def by_a_generator_with_finally(lock: Any, inside: Inside) -> None:
    with taken(lock):
        inside()


@held
def by_generators_in_generators(lock: Any, inside: Inside) -> None:
    with within(lock):
        inside()


@held
def by_a_call(lock: Any, inside: Inside) -> None:
    with Shards(lock).of(7):
        inside()


@held
def by_a_property(lock: Any, inside: Inside) -> None:
    with Shards(lock).mine:
        inside()


@held
def by_a_computed_item(lock: Any, inside: Inside) -> None:
    locks, key = [threading.Lock(), lock], 4
    with locks[key % 3]:
        inside()


@held
def by_a_choice(lock: Any, inside: Inside) -> None:
    with lock if id(inside) > 0 else threading.Lock():
        inside()


@held
def bare(lock: Any, inside: Inside) -> None:
    lock.acquire()
    inside()
    lock.release()


@held
def bare_with_two_ways_out(lock: Any, inside: Inside) -> None:
    lock.acquire()
    if inside() is None:
        lock.release()
        return
    lock.release()


@held
def bare_where_failures_are_caught(lock: Any, inside: Inside) -> None:
    try:
        lock.acquire()
        inside()
        lock.release()
    except ValueError:
        print("it has failed")


@held
def by_an_exit_stack(lock: Any, inside: Inside) -> None:
    with ExitStack() as stack:
        for one in (threading.Lock(), lock):
            stack.enter_context(one)
        inside()


@held
def by_an_exit_stack_that_another_function_fills(lock: Any, inside: Inside) -> None:
    def fill(stack: ExitStack) -> None:
        stack.enter_context(taken(lock))

    with ExitStack() as stack:
        fill(stack)
        inside()


@held
def by_an_exit_stack_in_a_generator(lock: Any, inside: Inside) -> None:
    with all_of([threading.Lock(), lock]):
        inside()


@held
def by_an_exit_stack_in_an_exit_stack(lock: Any, inside: Inside) -> None:
    with ExitStack() as outer:
        outer.enter_context(ExitStack()).enter_context(lock)
        inside()


def give_back(lock: Any) -> None:
    lock.release()


@held
def by_an_exit_stack_with_a_callback(lock: Any, inside: Inside) -> None:
    with ExitStack() as stack:
        lock.acquire()
        stack.callback(lock.release)
        inside()


@held
def by_an_exit_stack_with_callbacks_in_a_loop(lock: Any, inside: Inside) -> None:
    with ExitStack() as stack:
        for one in (threading.Lock(), lock):
            one.acquire()
            stack.callback(one.release)
        inside()


@not_held
def by_an_exit_stack_with_a_callback_for_what_another_party_has(lock: Any, inside: Inside) -> None:
    lock.acquire(timeout=1)
    with ExitStack() as stack:
        stack.callback(lock.release)
        inside()


@not_held
def by_an_exit_stack_with_a_function_that_releases(lock: Any, inside: Inside) -> None:
    with ExitStack() as stack:
        lock.acquire(timeout=1)
        stack.callback(lambda: lock.release())  # noqa: PLW0108
        inside()


@not_held
def by_an_exit_stack_with_another_method_as_callback(lock: Any, inside: Inside) -> None:
    with ExitStack() as stack:
        lock.acquire(timeout=1)
        stack.callback(lock.locked)
        inside()
    give_back(lock)


@not_held
def by_an_exit_stack_whose_callback_was_called(lock: Any, inside: Inside) -> None:
    with ExitStack() as stack:
        lock.acquire()
        stack.callback(lock.release)
        stack.close()
        lock.acquire(timeout=1)
        inside()
    lock.release()


@not_held
def by_a_callback_of_something_else(lock: Any, inside: Inside) -> None:
    class Later:
        def callback(self, run: Callable[[], None]) -> None:
            KEPT.append(run)

    with ExitStack():
        lock.acquire()
        Later().callback(lock.release)
        inside()
    KEPT.pop()()


@not_held
def by_an_exit_stack_that_was_closed(lock: Any, inside: Inside) -> None:
    with ExitStack() as stack:
        stack.enter_context(lock)
        stack.close()
        lock.acquire(timeout=1)
        inside()
    lock.release()


@not_held
def by_an_exit_stack_that_was_emptied(lock: Any, inside: Inside) -> None:
    with ExitStack() as stack:
        stack.enter_context(lock)
        others = stack.pop_all()
        inside()
    others.close()


@not_held
def by_an_exit_stack_of_another_class(lock: Any, inside: Inside) -> None:
    class Keeping(ExitStack):
        def __exit__(self, *_: object) -> None:
            KEPT.append(self.pop_all())

    with Keeping() as stack:
        stack.enter_context(lock)
        inside()
    ExitStack.__exit__(KEPT.pop(), None, None, None)


@not_held
def by_a_generator_that_has_given_it_back(lock: Any, inside: Inside) -> None:
    with given_back_early(lock):
        lock.acquire(timeout=1)
        inside()
    lock.release()


@not_held
def by_a_generator_that_may_have_it(lock: Any, inside: Inside) -> None:
    with on_a_condition(lock):
        inside()


@not_held
def by_a_generator_that_others_have(lock: Any, inside: Inside) -> None:
    manager = taken(lock)
    others = [manager]
    with manager:
        inside()
    others.clear()


@not_held
def bare_and_left(lock: Any, inside: Inside) -> None:
    lock.acquire()
    if inside() is not None:
        return  # as does get(b"")
    lock.release()


@not_held
def bare_and_handed_over(lock: Any, inside: Inside) -> None:
    lock.acquire()
    threading.Timer(PATIENCE_SECONDS, lock.release)
    inside()
    lock.release()


@pytest.mark.parametrize("how", HELD)
@reads_stacks
def test_a_party_at_this_position_holds_the_lock(front: Front, how: str) -> None:
    lock = threading.Lock()
    front.hold(HELD[how], lock, lambda: front.get(b""))
    assert front.waits_for(HELD[how], lock, lambda: None) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize("how", NOT_HELD)
def test_at_other_positions_the_holder_is_unknown(front: Front, how: str) -> None:
    lock = threading.Lock()
    front.hold(NOT_HELD[how], lock, lambda: front.get(b""))
    assert front.waits_unseen(by_a_call, lock, lambda: None)
    if how == "bare_and_left":
        lock.release()
    front.let_go()


@reads_stacks
def test_another_party_that_releases_after_a_bare_acquire_is_a_way_out(front: Front) -> None:
    """A lock as a signal: its function acquires it twice, and another thread releases it in between."""
    lock, over = threading.Lock(), threading.Event()

    def awaits() -> None:
        lock.acquire()
        lock.acquire()
        lock.release()

    def signals() -> None:
        over.wait(PATIENCE_SECONDS)
        lock.release()

    signaller = threading.Thread(target=signals, name="signaller")
    signaller.start()
    assert front.waits_for(awaits) == ["thread:waiter"]
    seen = of(look_at(front.agent, front.report_when_still("waiter")), "front/thread:waiter")
    assert any("signaller" in one.text for one in seen.ways_out), seen
    over.set()
    front.let_go()
    signaller.join()


def test_asynchronous_generators_and_locks_that_a_call_returns(front: Front) -> None:
    locks = {"a": asyncio.Lock(), "b": asyncio.Lock()}

    @asynccontextmanager
    async def entered(key: str) -> AsyncIterator[None]:
        async with locks[key]:
            yield

    async def has(loop: Loop) -> None:
        async with entered("a"), locks.get("b"):  # type: ignore[union-attr]
            await asyncio.sleep(1_000)

    async def wants_a(loop: Loop) -> None:
        async with entered("a"):
            pass

    async def wants_b(loop: Loop) -> None:
        async with locks["b"]:
            pass

    loop = Loop(front)
    loop.run(has, wants_a, wants_b)
    report = loop.report("t1", "t2")
    assert waits_of(report, "t1") == [["task:t0"]]
    assert waits_of(report, "t2") == [["task:t0"]]
    loop.stop()


@reads_stacks
def test_the_value_stack_is_read_in_frames_with_all_kinds_of_variables() -> None:
    first, second = threading.Lock(), threading.Lock()
    found: list[Any] = []
    reading, over = threading.Event(), threading.Event()

    def stands(argument: int, *more: int, keyword: Any, **others: Any) -> Any:
        held = [argument for _ in more]
        with first, second:
            found.append(lambda: (held, keyword, argument, others))
            reading.set()
            over.wait(PATIENCE_SECONDS)
        return held

    thread = threading.Thread(target=stands, args=(1, 2, 3), kwargs={"keyword": first, "other": 1})
    thread.start()
    assert reading.wait(PATIENCE_SECONDS)
    frame: Any = sys._current_frames()[thread.ident or 0]
    while frame.f_code is not stands.__code__:
        frame = frame.f_back
    assert [one.__self__ for one in exits_of(frame)] == [first, second]
    over.set()
    thread.join()
    assert exits_of(frame) == []


def test_an_asynchronous_exit_stack(front: Front) -> None:
    locks = [asyncio.Lock(), asyncio.Lock()]

    async def has(loop: Loop) -> None:
        async with AsyncExitStack() as stack:
            for one in locks:
                await stack.enter_async_context(one)
            await asyncio.sleep(1_000)

    async def wants(loop: Loop) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(locks[1])

    loop = Loop(front)
    loop.run(has, wants)
    assert waits_of(loop.report("t1"), "t1") == [["task:t0"]]
    loop.stop()


@reads_stacks
@pytest.mark.parametrize("how", ["thread", "timer", "module", "nobody"])
def test_another_party_with_the_exit_stack_is_a_way_out(front: Front, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function may close the stack early, whatever its code mentions."""
    lock, over = threading.Lock(), threading.Event()

    def leaves(stack: ExitStack) -> None:
        over.wait(PATIENCE_SECONDS)
        with stack:
            pass

    def holds() -> None:
        with ExitStack() as stack:
            stack.enter_context(lock)
            if how == "thread":
                front.start("leaver", leaves, stack)
            elif how == "timer":
                timer = threading.Timer(PATIENCE_SECONDS, leaves, [stack])
                timer.daemon = True
                timer.start()
            elif how == "module":
                monkeypatch.setattr(f"{__name__}.KEPT", [stack])
            front.get(b"")

    front.hold(holds)
    assert front.waits_for(by_a_call, lock, lambda: None) == ["thread:holder"]
    report = front.report_when_still("waiter")
    seen = of(look_at(front.agent, report), "front/thread:waiter")
    own = [one for one in seen.ways_out if one.party == "front/thread:holder"]
    others = [one for one in seen.ways_out if one not in own]
    assert bool(others) == (how != "nobody"), seen
    over.set()
    front.let_go()
