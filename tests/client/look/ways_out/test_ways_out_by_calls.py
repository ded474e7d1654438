"""Code that ends a task without naming it, or deep in its calls: a handler, a block's exit, a finalizer, a decorator."""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import pytest

from stilltrue.protocol.requests.look import Look, PartyLook
from tests.client.look.worlds import LoopWorld, holders

FAR_SECONDS = 60.0


class Bus:
    """Calls its subscribers."""

    def __init__(self) -> None:
        self.handlers: dict[str, list[Callable[[], object]]] = {}

    def emit(self, what: str) -> None:
        """Call them."""
        for handler in self.handlers.get(what, ()):
            handler()


class Jobs:
    """Tasks, and several ways to cancel them."""

    def __init__(self, tasks: list[Any]) -> None:
        self.tasks = tasks

    def tick(self) -> None:
        """The first in a chain of functions."""
        self._check()

    def _check(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._drop()

    def _drop(self) -> None:
        for task in self.tasks:
            task.cancel()

    def count(self) -> int:
        """Only count them."""
        return len(self.tasks)


class Background(Jobs):
    """Cancels its tasks when its block is left."""

    async def __aenter__(self) -> Background:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()


class Session(Jobs):
    """Cancels its tasks when it is dropped."""

    def __del__(self) -> None:
        for task in self.tasks:
            task.cancel()


class Plain:
    """An object with a finalizer of its own."""


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """As many decorators do."""

    @functools.wraps(function)
    def inner(*arguments: Any) -> Any:
        return function(*arguments)

    return inner


@traced
def give_up(jobs: Jobs) -> None:
    """Cancel them."""
    jobs._drop()


async def _emits(go: asyncio.Event, tasks: list[Any]) -> None:
    bus, jobs = Bus(), Jobs(tasks)
    bus.handlers["late"] = [jobs._drop]
    del tasks, jobs
    await go.wait()
    bus.emit("late")


async def _calls_down(go: asyncio.Event, tasks: list[Any]) -> None:
    jobs = Jobs(tasks)
    del tasks
    await go.wait()
    jobs.tick()


async def _calls_decorated(go: asyncio.Event, tasks: list[Any]) -> None:
    jobs = Jobs(tasks)
    del tasks
    await go.wait()
    give_up(jobs)


async def _leaves_a_block(go: asyncio.Event, tasks: list[Any]) -> None:
    background = Background(tasks)
    del tasks
    async with background:
        await go.wait()


async def _forgets(go: asyncio.Event, tasks: list[Any]) -> None:
    session = Session(tasks)
    del tasks
    await go.wait()
    del session


async def _forgets_what_has_a_finalizer(go: asyncio.Event, tasks: list[Any]) -> None:
    plain = Plain()
    weakref.finalize(plain, Jobs(list(tasks))._drop)
    del tasks
    await go.wait()
    del plain


async def _is_told_by_a_socket(go: asyncio.Event, tasks: list[Any]) -> None:
    ours, theirs = socket.socketpair()
    asyncio.get_running_loop().add_reader(ours, Jobs(tasks)._drop)
    del tasks
    await go.wait()
    asyncio.get_running_loop().remove_reader(ours)
    ours.close()
    theirs.close()


async def _hears_of_a_child(go: asyncio.Event, tasks: list[Any], number: signal.Signals = signal.SIGCHLD) -> None:
    asyncio.get_running_loop().add_signal_handler(number, tasks.pop().cancel)
    await go.wait()
    asyncio.get_running_loop().remove_signal_handler(number)


async def _hears_of_an_operator(go: asyncio.Event, tasks: list[Any]) -> None:
    await _hears_of_a_child(go, tasks, signal.SIGUSR2)


class Open:
    """Tasks kept by a class."""

    tasks: ClassVar[list[Any]] = []

    @classmethod
    def give_up(cls) -> None:
        """Cancel them all."""
        for task in cls.tasks:
            task.cancel()

    @classmethod
    def count(cls) -> int:
        """Only count them."""
        return len(cls.tasks)


async def _gives_up_all_of_a_class(go: asyncio.Event, tasks: list[Any]) -> None:
    Open.tasks[:] = tasks
    del tasks
    await go.wait()
    Open.give_up()


async def _counts_all_of_a_class(go: asyncio.Event, tasks: list[Any]) -> None:
    Open.tasks[:] = tasks
    del tasks
    await go.wait()
    assert Open.count()


class Scope:
    """A timeout without an end yet, as asyncio's and anyio's: it has the task that it may cancel."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self.deadline = float("inf")

    def reschedule(self, when: float) -> None:
        self.deadline = when


class Hangup(asyncio.Protocol):
    """Cancels its jobs when the peer is gone."""

    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs

    def connection_lost(self, exc: Exception | None) -> None:
        for one in self._jobs:
            one.cancel()


async def _is_told_as_a_protocol(go: asyncio.Event, tasks: list[Any]) -> None:
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(functools.partial(Hangup, [*tasks]), sock=ours)
    del tasks
    await go.wait()
    theirs.close()


async def _reschedules(go: asyncio.Event, tasks: list[Any]) -> None:
    scopes = [Scope(one) for one in tasks]
    del tasks
    await go.wait()
    for one in scopes:
        one.reschedule(0.0)


async def _sets_a_deadline(go: asyncio.Event, tasks: list[Any]) -> None:
    scopes = [Scope(one) for one in tasks]
    del tasks
    await go.wait()
    for one in scopes:
        one.deadline = 0.0


async def _counts(go: asyncio.Event, tasks: list[Any]) -> None:
    jobs = Jobs(tasks)
    del tasks
    await go.wait()
    jobs.count()


async def _cleans_up(tasks: list[Any]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _drops_what_cleans_up(go: asyncio.Event, tasks: list[Any]) -> None:
    kept = [_cleans_up(tasks)]
    del tasks
    await anext(kept[0])
    await go.wait()
    kept.clear()


def task_of(look: Look) -> PartyLook:
    """The look at the task that makes the call."""
    return max(look.parties, key=lambda one: len(one.party))


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (_emits, True),
        (_calls_down, True),
        (_calls_decorated, True),
        (_leaves_a_block, True),
        (_drops_what_cleans_up, True),
        (_forgets, True),
        (_forgets_what_has_a_finalizer, True),
        (_is_told_by_a_socket, True),
        (_is_told_as_a_protocol, True),
        (_hears_of_a_child, True),
        (_hears_of_an_operator, False),
        (_gives_up_all_of_a_class, True),
        (_counts_all_of_a_class, False),
        (_reschedules, True),
        (_sets_a_deadline, True),
        (_counts, False),
    ],
)
async def test_whether_code_may_end_a_task_without_naming_it(
    world: LoopWorld, beside: Callable[[asyncio.Event, list[Any]], Any], expected: bool
) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(FAR_SECONDS, over.set)
        other = asyncio.create_task(beside(over, [task]))
        await asyncio.sleep(0)
        await task
        over.set()
        await other
        Open.tasks.clear()

    assert ("-" in holders(task_of(await world.look(body)))) is expected


def _cancels_those_open(never: Any) -> None:
    for task in Open.tasks if never is None else ():
        task.cancel()


def _counts_those_open(_: Any) -> None:
    assert len(Open.tasks) >= 0


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "not_recorded"])
@pytest.mark.parametrize("cancels", [True, False])
async def test_a_callback_of_another_call_may_find_the_task_by_a_global(
    world: LoopWorld, cancels: bool, recorded: bool
) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))
        other = (world.stuck if recorded else world.stuck._inner)(b"")
        other.add_done_callback(_cancels_those_open if cancels else _counts_those_open)
        Open.tasks.append(task)
        await task
        await other
        Open.tasks.clear()

    seen = task_of(await world.look(body, stuck=2))
    assert any("another call" in way.text for way in seen.ways_out) is cancels, seen.ways_out
