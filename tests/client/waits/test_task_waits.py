"""A task that waits for an object that only blocked tasks can reach waits forever; any other reacher makes that unknown."""

from __future__ import annotations

import asyncio
import contextvars
import importlib.util
import signal
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.protocol.report import PartyTarget, Report
from stilltrue.protocol.requests.look import PartyLook
from stilltrue.runtime import compat
from stilltrue.runtime.waits.reachability import task_reach, task_waits
from stilltrue.runtime.waits.reachability.task_waits import TaskWaits
from tests.client.look.worlds import look_at, report_of, report_when, settle

FAR_SECONDS = 600.0
PATIENCE_SECONDS = 20.0
Main = Callable[[], Coroutine[Any, Any, Any]]
_REGISTRY: dict[str, asyncio.Event] = {}
_WEAK: weakref.WeakSet[asyncio.Event] = weakref.WeakSet()
_VARIABLE: contextvars.ContextVar[asyncio.Event] = contextvars.ContextVar("event")


@contextmanager
def _started(thread: threading.Thread, begun: threading.Event, loops: list[asyncio.AbstractEventLoop]) -> Iterator[None]:
    """Start the thread of a loop, which has ``begun``; cancel its tasks in the end."""
    thread.start()
    assert begun.wait(PATIENCE_SECONDS)
    try:
        yield
    finally:
        loops[0].call_soon_threadsafe(_cancel_all, loops[0])
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


@contextmanager
def running(main: Main) -> Iterator[None]:
    """Run ``main``, which blocks, on a loop in a separate thread."""
    loops: list[asyncio.AbstractEventLoop] = []
    begun = threading.Event()

    async def outermost() -> None:
        loops.append(asyncio.get_running_loop())
        task: asyncio.Task[Any] = asyncio.create_task(main(), name="main")
        await settle()
        begun.set()
        await asyncio.wait({task})

    def run() -> None:
        try:
            asyncio.run(outermost())
        except asyncio.CancelledError:
            begun.set()

    thread = threading.Thread(target=run, name="loop", daemon=True)
    with _started(thread, begun, loops):
        yield


@contextmanager
def running_as_main_task(main: Main) -> Iterator[None]:
    """As :func:`running`, but ``main`` is the task that runs the loop."""
    loops: list[asyncio.AbstractEventLoop] = []
    begun = threading.Event()

    async def outermost() -> None:
        loops.append(asyncio.get_running_loop())
        loops[0].call_later(0.1, begun.set)
        await main()

    def run() -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(outermost())

    with _started(threading.Thread(target=run, name="loop", daemon=True), begun, loops):
        yield


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        if not compat.is_grpc_task(task):  # its core would write to the memory of a cancelled one
            task.cancel()


def reaching(name: str) -> set[str] | None:
    """The tasks that can reach what the task with this name waits for; None if not proved."""
    found = {task.get_name(): enders for task, enders in TaskWaits().proved({}).enders.items()}
    return None if name not in found else {one.get_name() for one in found[name] if isinstance(one, asyncio.Task)}


def in_time(name: str) -> set[str] | None:
    """As above, but retries a failed proof: in a large process a search may use up its processor time."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (found := reaching(name)) is None and time.monotonic() < until:
        time.sleep(0.1)
    return found


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def waiter(event: asyncio.Event) -> asyncio.Task[None]:
    """A task that waits for the event."""
    return asyncio.create_task(_wait(event), name="waiter")


# -- proved ------------------------------------------------------------------------------------------------------------


async def an_event() -> None:
    await waiter(asyncio.Event())


async def an_event_that_the_awaiting_task_sets_afterwards() -> None:
    event = asyncio.Event()
    await waiter(event)
    event.set()


async def a_queue_whose_producer_has_failed() -> None:
    queue = asyncio.Queue[int]()

    async def produce() -> None:
        raise OSError
        await queue.put(1)

    async def consume() -> None:
        await queue.get()

    failed = asyncio.create_task(produce())
    await asyncio.wait({failed})
    await asyncio.create_task(consume(), name="waiter")


async def a_condition() -> None:
    condition = asyncio.Condition()

    async def wait() -> None:
        async with condition:
            await condition.wait()

    await asyncio.create_task(wait(), name="waiter")
    condition.notify_all()


async def a_future_in_a_table() -> None:
    table: dict[str, Any] = {"it": asyncio.get_running_loop().create_future()}

    async def wait() -> None:
        await table["it"]

    await asyncio.create_task(wait(), name="waiter")
    table.clear()


async def a_generator_that_it_steps_itself() -> None:
    event = asyncio.Event()

    def steps() -> Iterator[None]:
        yield
        event.set()

    stepped = steps()
    next(stepped)
    await waiter(event)
    next(stepped)


@pytest.mark.parametrize(
    ("main", "enders"),
    [
        (an_event, {"waiter"}),
        (an_event_that_the_awaiting_task_sets_afterwards, {"main"}),
        (a_queue_whose_producer_has_failed, {"main"}),
        (a_condition, {"main"}),
        (a_future_in_a_table, {"main"}),
        (a_generator_that_it_steps_itself, {"main"}),
    ],
)
def test_an_object_that_only_tasks_reach_is_proved(main: Main, enders: set[str]) -> None:
    with running(main):
        assert in_time("waiter") == enders


def test_a_context_variable_counts_as_a_reference() -> None:
    """A task can reach what its context refers to."""

    async def main() -> None:
        event = asyncio.Event()

        async def other() -> None:
            await asyncio.Event().wait()
            _VARIABLE.get().set()

        def begin() -> asyncio.Task[None]:
            _VARIABLE.set(event)
            return asyncio.create_task(other(), name="other")

        started = contextvars.copy_context().run(begin)
        await waiter(event)
        started.cancel()

    with running(main):
        assert in_time("waiter") == {"main", "other"}


# -- not proved --------------------------------------------------------------------------------------------------------


async def in_a_module() -> None:
    event = _REGISTRY["it"] = asyncio.Event()
    await waiter(event)


async def weakly_known() -> None:
    event = asyncio.Event()
    _WEAK.add(event)
    await waiter(event)


async def set_by_a_timer() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(FAR_SECONDS, event.set)
    await waiter(event)


async def set_by_a_timers_closure() -> None:
    event = asyncio.Event()

    def later() -> None:
        event.set()

    asyncio.get_running_loop().call_later(FAR_SECONDS, later)
    del later
    await waiter(event)


async def set_by_a_server() -> None:
    event = asyncio.Event()

    async def serve(_: Any, writer: Any) -> None:
        event.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        await waiter(event)


async def set_by_what_an_executor_has_yet_to_run() -> None:
    event, loop, go = asyncio.Event(), asyncio.get_running_loop(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(go.wait)
        pool.submit(loop.call_soon_threadsafe, event.set)
        try:
            await waiter(event)
        finally:
            go.set()


async def set_by_a_thread() -> None:
    event, loop, go = asyncio.Event(), asyncio.get_running_loop(), threading.Event()

    def later() -> None:
        go.wait()
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    threading.Thread(target=later, daemon=True).start()
    try:
        await waiter(event)
    finally:
        go.set()


class _Token:
    """An object to release."""


async def set_by_a_weak_references_callback() -> None:
    event, token, go = asyncio.Event(), _Token(), threading.Event()
    known = weakref.ref(token, lambda _: event.set())
    threading.Thread(target=lambda held: go.wait(), args=(token,), daemon=True).start()
    del token
    try:
        await waiter(event)
    finally:
        go.set()
    assert known() is None


async def set_at_the_end_of_a_future_that_a_module_has() -> None:
    event = asyncio.Event()
    future = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda _: event.set())
    _FUTURES.append(future)
    del future
    await waiter(event)


_FUTURES: list[Any] = []


async def collected_with_a_cycle() -> None:
    event = asyncio.Event()
    cycle: list[Any] = [event.set]
    cycle.append(cycle)
    del cycle
    await waiter(event)


async def kept_by_nobody() -> None:
    """Nothing refers to the task: the next collection ends it."""

    async def lost() -> None:
        await asyncio.get_running_loop().create_future()

    asyncio.create_task(lost(), name="waiter")  # noqa: RUF006 - that is the point
    await asyncio.sleep(FAR_SECONDS)


@pytest.mark.parametrize(
    "main",
    [
        in_a_module,
        weakly_known,
        set_by_a_timer,
        set_by_a_timers_closure,
        set_by_a_server,
        set_by_what_an_executor_has_yet_to_run,
        set_by_a_thread,
        set_by_a_weak_references_callback,
        set_at_the_end_of_a_future_that_a_module_has,
        collected_with_a_cycle,
        kept_by_nobody,
    ],
)
def test_an_object_that_another_party_may_reach_is_unknown(main: Main) -> None:
    with running(main):
        assert reaching("waiter") is None
    _FUTURES.clear()
    _REGISTRY.clear()


def test_an_object_that_a_signal_handler_refers_to_is_unknown() -> None:
    events = [asyncio.Event()]

    def handler(*_: object, event: asyncio.Event = events[0]) -> None:
        event.set()

    before = signal.signal(signal.SIGUSR2, handler)
    del handler

    async def main() -> None:
        await waiter(events.pop())

    try:
        with running(main):
            assert reaching("waiter") is None
    finally:
        signal.signal(signal.SIGUSR2, before)


# -- reports of the agent ----------------------------------------------------------------------------------------------


def waits_of(report: Report) -> dict[str, set[str]]:
    """The parties that each task waits for."""
    found: dict[str, set[str]] = {}
    for wait in report.waits:
        among = {target.party.rpartition(":")[2] for target in wait.among if isinstance(target, PartyTarget)}
        found.setdefault(wait.waiter.rpartition(":")[2], set()).update(among)
    return found


def test_a_task_and_its_awaiter_wait_for_each_other(alone: Callable[..., Agent]) -> None:
    agent = alone("here")
    with running(a_queue_whose_producer_has_failed):
        found = waits_of(report_when(agent, lambda report: "waiter" in waits_of(report)))
        assert found["waiter"] == {"main"}
        assert found["main"] == {"waiter"}
        seen = _looked_at(agent)
        assert all(one.unchanged and one.deadline is None for one in seen.values())
        assert {way.party for one in seen.values() for way in one.ways_out} <= {one.party for one in seen.values()}
        assert not any(one.doubt for one in seen.values())


async def _puts_into_the_others_full_queue(mine: asyncio.Queue[int], other: asyncio.Queue[int], met: asyncio.Event) -> None:
    await other.put(1)
    if mine.full() and other.full():
        met.set()
    await met.wait()
    await other.put(2)
    await mine.get()


async def two_stages_with_full_queues() -> None:
    left, right, met = asyncio.Queue[int](1), asyncio.Queue[int](1), asyncio.Event()
    stages = [
        asyncio.create_task(_puts_into_the_others_full_queue(left, right, met), name="left"),
        asyncio.create_task(_puts_into_the_others_full_queue(right, left, met), name="right"),
    ]
    await asyncio.gather(*stages)


async def two_stages_in_a_wait() -> None:
    left, right, met = asyncio.Queue[int](1), asyncio.Queue[int](1), asyncio.Event()
    await asyncio.wait(
        {
            asyncio.create_task(_puts_into_the_others_full_queue(left, right, met), name="left"),
            asyncio.create_task(_puts_into_the_others_full_queue(right, left, met), name="right"),
        }
    )


async def _consume(outer: asyncio.Lock, condition: asyncio.Condition, items: list[int]) -> None:
    async with outer, condition:
        await condition.wait_for(lambda: bool(items))


async def _produce(outer: asyncio.Lock, condition: asyncio.Condition, items: list[int]) -> None:
    async with outer, condition:
        items.append(1)
        condition.notify()


async def a_condition_awaited_under_the_lock_that_its_notifier_wants() -> None:
    outer, condition, items = asyncio.Lock(), asyncio.Condition(), list[int]()
    await asyncio.gather(
        asyncio.create_task(_consume(outer, condition, items), name="left"),
        asyncio.create_task(_produce(outer, condition, items), name="right"),
    )


@pytest.mark.parametrize(
    "stuck",
    [
        two_stages_with_full_queues,
        two_stages_in_a_wait,
        a_condition_awaited_under_the_lock_that_its_notifier_wants,
    ],
)
def test_tasks_that_are_awaited_together_wait_for_each_other(alone: Callable[..., Agent], stuck: Main) -> None:
    agent = alone("here")
    with running(stuck):
        found = waits_of(report_when(agent, lambda report: "left" in waits_of(report)))
        assert found["left"] == {"main", "right"}
        assert "left" in found["right"]
        assert found["main"] == {"left", "right"}
        seen = _looked_at(agent)
        assert all(one.unchanged and one.deadline is None and not one.doubt for one in seen.values())
        assert {way.party for one in seen.values() for way in one.ways_out} <= {one.party for one in seen.values()}


async def _waits_and_sets(awaited: asyncio.Event, other: asyncio.Event) -> None:
    await awaited.wait()
    other.set()


async def _waits_and_has(awaited: asyncio.Event, other: asyncio.Event) -> None:
    await awaited.wait()
    print(other)


async def _waits_and_completes(awaited: asyncio.Future[None], other: asyncio.Future[None]) -> None:
    await awaited
    other.set_result(None)


def _two_of(each: Callable[..., Any], made: Callable[[], Any]) -> list[asyncio.Task[None]]:
    """Two tasks that are the only ones to have the two objects."""
    first, second = made(), made()
    return [asyncio.create_task(each(first, second), name="left"), asyncio.create_task(each(second, first), name="right")]


def _consumer_and_producer() -> list[asyncio.Task[None]]:
    """Two tasks that are the only ones to have the condition."""
    outer, condition, items = asyncio.Lock(), asyncio.Condition(), list[int]()
    return [
        asyncio.create_task(_consume(outer, condition, items), name="left"),
        asyncio.create_task(_produce(outer, condition, items), name="right"),
    ]


async def two_that_set_each_others_event() -> None:
    await asyncio.gather(*_two_of(_waits_and_sets, asyncio.Event))


async def two_that_set_each_others_event_of_a_library() -> None:
    await asyncio.gather(*_two_of(_waits_and_sets, importlib.import_module("anyio").Event))


async def two_that_complete_each_others_future() -> None:
    await asyncio.gather(*_two_of(_waits_and_completes, asyncio.get_running_loop().create_future))


async def two_that_alone_have_a_condition() -> None:
    await asyncio.gather(*_consumer_and_producer())


async def two_that_park() -> None:
    await asyncio.gather(*_two_of(_waits_and_has, asyncio.Event))


@pytest.mark.parametrize(
    "stuck",
    [
        two_that_set_each_others_event,
        pytest.param(
            two_that_set_each_others_event_of_a_library,
            marks=pytest.mark.skipif(importlib.util.find_spec("anyio") is None, reason="needs anyio"),
        ),
        two_that_complete_each_others_future,
        two_that_alone_have_a_condition,
    ],
)
def test_tasks_that_are_to_wake_each_other_are_not_parked(alone: Callable[..., Agent], stuck: Main) -> None:
    agent = alone("here")
    with running(stuck):
        found = waits_of(report_when(agent, lambda report: "left" in waits_of(report)))
        assert (found["left"], found["right"]) == ({"right"}, {"left"})
        seen = _looked_at(agent)
        assert all(one.unchanged and one.deadline is None and not one.doubt for one in seen.values())


def test_tasks_that_only_hold_what_others_wait_for_are_parked(alone: Callable[..., Agent]) -> None:
    agent = alone("here")
    with running(two_that_park):
        assert in_time("left") == {"right"}
        for _ in range(3):
            assert "left" not in waits_of(report_of(agent))


async def two_stages_and_a_timer_that_takes_one_out() -> None:
    left, right, met = asyncio.Queue[int](1), asyncio.Queue[int](1), asyncio.Event()
    asyncio.get_running_loop().call_later(FAR_SECONDS, right.get_nowait)
    await asyncio.gather(
        asyncio.create_task(_puts_into_the_others_full_queue(left, right, met), name="left"),
        asyncio.create_task(_puts_into_the_others_full_queue(right, left, met), name="right"),
    )


async def two_stages_and_a_task_that_takes_one_out_later() -> None:
    left, right, met = asyncio.Queue[int](1), asyncio.Queue[int](1), asyncio.Event()

    async def rescue() -> None:
        await asyncio.sleep(FAR_SECONDS)
        right.get_nowait()

    await asyncio.gather(
        asyncio.create_task(_puts_into_the_others_full_queue(left, right, met), name="left"),
        asyncio.create_task(_puts_into_the_others_full_queue(right, left, met), name="right"),
        asyncio.create_task(rescue(), name="rescue"),
    )


@pytest.mark.parametrize("rescued", [two_stages_and_a_timer_that_takes_one_out, two_stages_and_a_task_that_takes_one_out_later])
def test_a_later_get_ends_the_wait_of_a_put(alone: Callable[..., Agent], rescued: Main) -> None:
    agent = alone("here")
    with running(rescued):
        found = waits_of(report_when(agent, lambda report: "right" in waits_of(report)))
        assert "main" in found["right"]
        assert "left" not in found or "rescue" in found["left"]
        assert "rescue" not in found


def test_idle_workers_and_parked_tasks_are_not_deadlocked(alone: Callable[..., Agent]) -> None:
    async def main() -> None:
        queue = asyncio.Queue[int]()

        async def work() -> None:
            await queue.get()

        workers = [asyncio.create_task(work(), name="worker") for _ in range(3)]

        async def supervise() -> None:
            await asyncio.gather(*workers)

        supervisor = asyncio.create_task(supervise())
        await asyncio.Event().wait()
        supervisor.cancel()

    agent = alone("here")
    with running(main):
        assert (in_time("worker") or set()) >= {"main"}
        for _ in range(3):
            assert "worker" not in waits_of(report_of(agent))


async def _take_items(queue: asyncio.Queue[int]) -> None:
    while True:
        await queue.get()


def _consumers(more: Main | None = None, *, fed: bool = False) -> list[asyncio.Task[Any]]:
    """Consumers of a queue that they alone reach, whose producer has ended; and a task that runs ``more``."""
    queue = asyncio.Queue[int]()
    if fed:
        asyncio.get_running_loop().call_later(FAR_SECONDS, queue.put_nowait, 1)
    other = [asyncio.create_task(more(), name="more")] if more is not None else []
    return [*(asyncio.create_task(_take_items(queue), name=name) for name in ("left", "right")), *other]


async def _gathers() -> None:
    await asyncio.gather(*_consumers())


async def _awaits_one_after_the_other() -> None:
    for one in _consumers():
        await one


async def _awaits_those_who_gather() -> None:
    await asyncio.create_task(_gathers())


@pytest.mark.parametrize("stuck", [_gathers, _awaits_one_after_the_other, _awaits_those_who_gather])
def test_consumers_for_whose_ends_the_main_task_waits_wait_for_each_other(alone: Callable[..., Agent], stuck: Main) -> None:
    """A frequent mistake: the producer has ended, and nobody tells the consumers."""
    agent = alone("here")
    with running(stuck):
        found = waits_of(report_when(agent, lambda report: "left" in waits_of(report)))
        assert (found["left"], found["right"]) == ({"right"}, {"left"})
        seen = _looked_at(agent)
        assert all(seen[one].unchanged and seen[one].deadline is None and not seen[one].doubt for one in ("left", "right"))


def test_a_single_consumer_for_whose_end_the_main_task_waits_waits_for_itself(alone: Callable[..., Agent]) -> None:
    async def main() -> None:
        await asyncio.create_task(_take_items(asyncio.Queue[int]()), name="left")

    agent = alone("here")
    with running(main):
        found = waits_of(report_when(agent, lambda report: "left" in waits_of(report)))
        assert found["left"] == {"left"}


async def _forever() -> None:
    await asyncio.Event().wait()


async def _some_time() -> None:
    await asyncio.sleep(FAR_SECONDS)


async def _beside_one_that_parks() -> None:
    await asyncio.gather(*_consumers(_forever))


async def _beside_a_timer() -> None:
    await asyncio.gather(*_consumers(_some_time))


async def _awaits_none_of_them() -> None:
    begun = _consumers()
    await asyncio.Event().wait()
    del begun


async def _fed_by_a_timer() -> None:
    await asyncio.gather(*_consumers(fed=True))


@pytest.mark.parametrize("main", [_beside_one_that_parks, _beside_a_timer, _awaits_none_of_them, _fed_by_a_timer])
def test_consumers_park_if_the_main_task_waits_for_anything_else(alone: Callable[..., Agent], main: Main) -> None:
    agent = alone("here")
    with running(main):
        for _ in range(5):
            assert waits_of(report_of(agent)).keys().isdisjoint({"left", "right"})
            time.sleep(0.2)


class _Service:
    """One that serves until it is stopped, which nobody does."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    async def serve(self) -> None:
        await self.stopping.wait()

    def stop(self) -> None:
        self.stopping.set()


async def _serves() -> None:
    service = _Service()
    await asyncio.gather(asyncio.create_task(service.serve(), name="left"))


async def _serves_until_the_first_ends() -> None:
    stop = asyncio.Event()
    await asyncio.wait([asyncio.create_task(stop.wait(), name="left")], return_when=asyncio.FIRST_COMPLETED)


async def _stops_in_any_case() -> None:
    service = _Service()
    serving = asyncio.create_task(service.serve(), name="left")
    try:
        await serving
    finally:
        service.stopping.set()


async def _stops_in_any_case_by_a_method() -> None:
    service = _Service()
    serving = asyncio.create_task(service.serve(), name="left")
    try:
        await serving
    finally:
        service.stop()


async def _stops_what_has_ended() -> None:
    service = _Service()
    await asyncio.create_task(service.serve(), name="left")
    service.stop()


@pytest.mark.parametrize("main", [_serves, _serves_until_the_first_ends, _stops_in_any_case, _stops_in_any_case_by_a_method])
@pytest.mark.parametrize("search", [True, False], ids=["search", "cut"])
def test_a_service_that_nobody_stops_parks_though_who_awaits_it_has_it(
    alone: Callable[..., Agent], main: Main, search: bool
) -> None:
    """Whether the cut proves it first, or the search between cuts."""
    agent = alone("here")
    with running_as_main_task(main):
        for _ in range(6):
            if search:
                agent._observer.searchers.search(time.time())
            assert "left" not in waits_of(report_of(agent))
            time.sleep(0.1)


def test_a_task_that_another_than_the_main_task_awaits_does_not_park(alone: Callable[..., Agent]) -> None:
    """Such as a call that is served, whose caller waits."""
    agent = alone("here")

    async def main() -> None:
        background = asyncio.create_task(_serves(), name="right")
        await asyncio.sleep(FAR_SECONDS)
        background.cancel()

    with running_as_main_task(main):
        agent.parties  # noqa: B018
        report = report_when(agent, lambda report: "left" in waits_of(report))
        assert waits_of(report)["left"] == {"right"}


def test_who_goes_on_to_stop_what_it_awaits_waits_for_it_and_it_for_that(alone: Callable[..., Agent]) -> None:
    agent = alone("here")
    with running_as_main_task(_stops_what_has_ended):
        assert len(waits_of(report_when(agent, lambda report: "left" in waits_of(report)))["left"]) == 1


async def _gathers_for_some_time() -> None:
    await asyncio.wait_for(_gathers(), FAR_SECONDS)


async def _gathers_until_stopped() -> None:
    begun = _consumers()

    async def stop() -> None:
        await asyncio.sleep(FAR_SECONDS)
        begun[0].cancel()

    stopping = asyncio.create_task(stop())
    await asyncio.gather(*begun)
    stopping.cancel()


@pytest.mark.parametrize("rescued", [_gathers_for_some_time, _gathers_until_stopped])
def test_consumers_that_are_cancelled_later_are_not_deadlocked(alone: Callable[..., Agent], rescued: Main) -> None:
    agent = alone("here")
    with running(rescued):
        report = report_when(agent, lambda report: "left" in waits_of(report))
        seen = {one.party.rpartition(":")[2]: one for one in look_at(agent, report).parties}
        limited = any(wait.deadline is not None for wait in report.waits)
        assert limited or any(one.deadline is not None or one.ways_out or one.doubt for one in seen.values())


def _looked_at(agent: Agent) -> dict[str, PartyLook]:
    report = report_of(agent)
    return {one.party.rpartition(":")[2]: one for one in look_at(agent, report).parties}


async def _waits_in_a_group(request: bytes, context: Any) -> bytes:
    event = asyncio.Event()
    child = waiter(event)
    await asyncio.wait({child})
    event.set()
    return b""


def test_a_handler_that_alone_can_end_its_tasks_wait_is_no_way_out_of_it(
    alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_waits, "LOOK_SECONDS_MAX", PATIENCE_SECONDS)  # its task reaches all that is imported
    monkeypatch.setattr(task_waits, "SHARE_OF_TIME", 1.0)
    monkeypatch.setattr(task_waits, "AGAIN_SECONDS_MAX", task_waits.AGAIN_SECONDS)
    monkeypatch.setattr(task_reach, "NODES_MAX", 10_000_000)
    agent, ports, servers = alone("here"), list[int](), list[Any]()

    async def serve() -> None:
        server = grpc.aio.server(interceptors=[agent.aio_server_interceptor()])
        methods: dict[str, Any] = {"Wait": grpc.unary_unary_rpc_method_handler(_waits_in_a_group)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        servers.append((server, asyncio.get_running_loop()))
        await server.wait_for_termination()
        await asyncio.Event().wait()  # the end of the block stops this loop

    with running(serve), grpc.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/s/Wait")
        call = method.future(b"")
        ring = {"here/Wait#1": {"here/Wait#1.waiter"}, "here/Wait#1.waiter": {"here/Wait#1"}}
        report_when(agent, lambda report: ring.items() <= waits_of(report).items())
        seen = _looked_at(agent)["here/Wait#1.waiter"]
        run = {"Task-1"}  # the main task, whose end would cancel all others
        assert {str(way.party).rpartition(":")[2] for way in seen.ways_out} <= {*ring, *run}
        assert not seen.doubt
        assert not call.done()
        server, loop = servers.pop()  # if the end of the loop cancelled gRPC's own tasks, its core would write to freed memory
        asyncio.run_coroutine_threadsafe(server.stop(None), loop).result(PATIENCE_SECONDS)


class _Answers:
    """A reader of answers, which handles questions itself; ``pending`` has the answers to its own."""

    def __init__(self, lines: asyncio.Queue[str]) -> None:
        self.lines = lines
        self.pending: dict[str, asyncio.Future[str]] = {}

    async def ask(self) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.pending["a"] = answer
        return await answer

    async def read(self) -> None:
        while True:
            line = await self.lines.get()
            if line == "question":
                await self.ask()
            else:
                self.pending.pop(line).set_result(line)

    async def park_after_that(self) -> None:
        self.pending["a"] = asyncio.get_running_loop().create_future()
        self.pending.pop("a").set_result("")
        await self.ask()


@contextmanager
def _as_main_task(name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[None]:
    """Run it as the main task of a loop in a separate thread: no other task awaits it."""
    loops: list[asyncio.AbstractEventLoop] = []
    begun = threading.Event()

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(name)
        del task
        loops.append(asyncio.get_running_loop())
        loops[0].call_soon(begun.set)
        with suppress(asyncio.CancelledError):
            await run()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    with _started(thread, begun, loops):
        yield


@contextmanager
def _reading(run: Callable[[_Answers], Coroutine[Any, Any, None]]) -> Iterator[None]:
    def read() -> Coroutine[Any, Any, None]:
        lines = asyncio.Queue[str]()
        lines.put_nowait("question")
        return run(_Answers(lines))

    with _as_main_task("reader", read):
        yield


def test_a_reader_that_awaits_an_answer_to_its_own_question_waits_for_itself(alone: Callable[..., Agent]) -> None:
    agent = alone("one")
    with _reading(_Answers.read):
        report = report_when(agent, lambda report: "reader" in waits_of(report))
        assert waits_of(report)["reader"] == {"reader"}
        assert [(one.unchanged, one.ways_out, one.doubt) for one in look_at(agent, report).parties] == [(True, (), "")]


class _Batches:
    """Loads keys in batches, each key once: who asks for a key that is being loaded awaits the same future."""

    def __init__(self) -> None:
        self.loading: dict[str, asyncio.Future[str]] = {}

    async def load(self, key: str) -> str:
        if key not in self.loading:
            self.loading[key] = asyncio.get_running_loop().create_future()
        return await self.loading[key]

    async def batch(self, needed: str) -> None:
        value = await self.load(needed)
        for one in self.loading.values():
            one.set_result(value)


async def two_that_await_one_future() -> None:
    """The batch that would load a key needs it itself."""
    batches = _Batches()
    asked, batch = asyncio.create_task(batches.load("a"), name="left"), asyncio.create_task(batches.batch("a"), name="right")
    del batches
    await asyncio.gather(asked, batch)


def test_tasks_that_await_one_future_are_each_seen(alone: Callable[..., Agent]) -> None:
    agent = alone("here")
    with running(two_that_await_one_future):
        found = waits_of(report_when(agent, lambda report: {"left", "right"} <= waits_of(report).keys()))
        assert "right" in found["left"]
        assert "left" in found["right"]
        seen = _looked_at(agent)
        assert all(one.unchanged and one.deadline is None and not one.doubt for one in seen.values())


def test_a_task_that_has_completed_a_future_before_may_park_at_one(alone: Callable[..., Agent]) -> None:
    agent = alone("one")
    with _reading(_Answers.park_after_that):
        for _ in range(5):
            time.sleep(2 * task_waits.AGAIN_SECONDS)
            assert "reader" not in waits_of(report_of(agent))


def _one_that_nobody_wakes() -> list[asyncio.Task[None]]:
    """A task, and the only other one that has what it waits for, and that alone has what it waits for itself."""
    first, second = asyncio.Event(), asyncio.Event()
    waits, nobody_wakes = _wait(first), _waits_and_sets(second, first)
    return [asyncio.create_task(waits, name="left"), asyncio.create_task(nobody_wakes, name="right")]


async def one_that_waits_for_one_that_nobody_wakes() -> None:
    await asyncio.gather(*_one_that_nobody_wakes())


def test_a_task_that_parks_waits_for_those_that_wait_only_for_it(alone: Callable[..., Agent]) -> None:
    agent = alone("here")
    with running(one_that_waits_for_one_that_nobody_wakes):
        found = waits_of(report_when(agent, lambda report: "right" in waits_of(report)))
        assert (found["left"], found["right"]) == ({"right"}, {"left"})
        seen = _looked_at(agent)
        assert all(one.unchanged and one.deadline is None and not one.doubt for one in seen.values())


async def sends_into_its_own_stream(anyio: Any) -> None:
    send, receive = anyio.create_memory_object_stream(0)
    await send.send("item")
    await receive.receive()


async def sends_into_its_own_full_stream(anyio: Any) -> None:
    send, receive = anyio.create_memory_object_stream(1)
    await send.send("first")
    await send.send("second")
    await receive.receive()


async def sends_for_some_time(anyio: Any) -> None:
    send, receive = anyio.create_memory_object_stream(0)
    with anyio.move_on_after(FAR_SECONDS):
        await send.send("item")
    receive.close()


async def sends_what_a_timer_receives(anyio: Any) -> None:
    send, receive = anyio.create_memory_object_stream(0)
    asyncio.get_running_loop().call_later(FAR_SECONDS, receive.receive_nowait)
    await send.send("item")


async def sends_what_a_task_receives_later(anyio: Any) -> None:
    send, receive = anyio.create_memory_object_stream(0)

    async def take() -> None:
        await asyncio.sleep(FAR_SECONDS)
        await receive.receive()

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await send.send("item")


async def receives_what_nobody_sends(anyio: Any) -> None:
    send, receive = anyio.create_memory_object_stream(0)
    await receive.receive()
    await send.send("item")


@contextmanager
def _alone_in_a_loop(run: Callable[[Any], Coroutine[Any, Any, None]]) -> Iterator[None]:
    anyio = pytest.importorskip("anyio")
    with _as_main_task("sender", lambda: run(anyio)):
        yield


@pytest.mark.parametrize("run", [sends_into_its_own_stream, sends_into_its_own_full_stream])
def test_who_sends_into_a_stream_that_it_alone_could_receive_from_waits_for_itself(
    alone: Callable[..., Agent], run: Callable[[Any], Coroutine[Any, Any, None]]
) -> None:
    agent = alone("one")
    with _alone_in_a_loop(run):
        report = report_when(agent, lambda report: "sender" in waits_of(report))
        assert waits_of(report)["sender"] == {"sender"}
        assert [(one.unchanged, one.ways_out, one.doubt) for one in look_at(agent, report).parties] == [(True, (), "")]


def test_a_tasks_wait_counts_from_the_cut_that_saw_it_first_not_from_its_proof(alone: Callable[..., Agent]) -> None:
    agent = alone("one")
    with _alone_in_a_loop(sends_into_its_own_stream):
        assert "sender" not in waits_of(report_of(agent)), "nothing is proved at the first cut"
        seen = time.time()
        time.sleep(2 * task_waits.AGAIN_SECONDS)
        report = report_when(agent, lambda report: "sender" in waits_of(report))
        (since,) = (one.since for one in report.waits if one.waiter.endswith(":sender"))
        assert since is not None
        assert since <= seen


@pytest.mark.parametrize(
    "run",
    [sends_for_some_time, sends_what_a_timer_receives, sends_what_a_task_receives_later, receives_what_nobody_sends],
)
def test_who_sends_what_something_else_may_receive_or_receives_does_not(
    alone: Callable[..., Agent], run: Callable[[Any], Coroutine[Any, Any, None]]
) -> None:
    agent = alone("one")
    with _alone_in_a_loop(run):
        for _ in range(5):
            time.sleep(2 * task_waits.AGAIN_SECONDS)
            report = report_of(agent)
            if waits_of(report).get("sender") == {"sender"}:
                seen = next(one for one in look_at(agent, report).parties if str(one.party).endswith("sender"))
                assert seen.deadline is not None or seen.ways_out or seen.doubt or not seen.unchanged
