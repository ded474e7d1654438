"""A thread that waits for an object that only blocked threads can reach waits forever; any other reacher makes that unknown."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import ctypes
import functools
import gc
import itertools
import queue
import signal
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.protocol.report import PartyTarget, Report
from stilltrue.runtime import compat
from stilltrue.runtime.compat import value_stack
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability import thread_waits
from stilltrue.runtime.waits.reachability.loops.waking import woken_ahead
from stilltrue.runtime.waits.reachability.references import reference_counts
from stilltrue.runtime.waits.reachability.references.thread_reach import leading_to, reached_by
from stilltrue.runtime.waits.reachability.thread_waits import ThreadWaits
from tests.client.look.worlds import look_at, report_of

pytestmark = pytest.mark.usefixtures("only_this_file_counts")

PATIENCE_SECONDS = 60.0
FAR_SECONDS = 600.0
CUTS_MIN = 8
_REGISTRY: dict[str, Any] = {}
_WEAK: weakref.WeakSet[Any] = weakref.WeakSet()
_VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("event")
_LOCAL = threading.local()
_ignored = contextlib.suppress(KeyError)


class Threads:
    """The threads of a test, which end with it."""

    def __init__(self) -> None:
        self.ends: list[Callable[[], object]] = []
        self._all: list[threading.Thread] = []

    def begin(self, name: str, run: Callable[..., Any], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=run, args=arguments, name=name, daemon=True)
        thread.start()
        self._all.append(thread)
        return thread

    def end(self) -> None:
        for end in self.ends:
            end()
        for thread in self._all:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


@pytest.fixture
def threads() -> Iterator[Threads]:
    found = Threads()
    yield found
    found.end()
    _REGISTRY.clear()


def waits(frames: list[Any]) -> bool:
    """Whether a thread is in a wait."""
    return bool(frames) and frames[0].f_code is threading.Condition.wait.__code__


def until_all_wait(*names: str) -> None:
    """Wait until the threads with these names are in a wait, or sleep."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        idents = {one.name: one.ident for one in compat.threads().values()}
        every = frames_of_threads()
        if all(waits(every.get(idents.get(name) or 0, [])) for name in names):
            return
        time.sleep(0.01)
    raise AssertionError(f"{names} do not wait")


def reaching(thing: OwnRef) -> set[str] | None:
    """The names of the threads and tasks that can reach an object, but for threads that have ended; None if not proved."""
    found = leading_to([thing], frames_of_threads(), time.thread_time() + PATIENCE_SECONDS)
    key = id(thing())
    reached = reached_by([key], found)
    idents = {one.ident: one.name for one in compat.threads().values()}
    if reached is None:
        return None
    return {
        idents[one] if isinstance(one, int) else one.get_name() for one in reached if not isinstance(one, int) or one in idents
    }


needs_memory = pytest.mark.skipif(not value_stack._can_read(), reason="this interpreter's frames cannot be read")


class _Worker:
    def __init__(self, late: threading.Event) -> None:
        self.late, self.gate = [late], threading.Event()

    def run(self) -> None:
        self.gate.wait()
        self.late[0].set()


class _WorkingThread(threading.Thread):
    def __init__(self, late: threading.Event) -> None:
        super().__init__(name="other", daemon=True)
        self.late, self.gate = late, threading.Event()

    def run(self) -> None:
        self.gate.wait()
        self.late.set()


# -- proved ------------------------------------------------------------------------------------------------------------


def by_an_argument(event: threading.Event, threads: Threads) -> None:
    def other(late: threading.Event, gate: threading.Event) -> None:
        gate.wait()
        late.set()

    gate = threading.Event()
    threads.ends.append(gate.set)
    threads.begin("other", other, event, gate)


def by_a_closure(event: threading.Event, threads: Threads) -> None:
    gate = threading.Event()

    def other() -> None:
        gate.wait()
        event.set()

    threads.ends.append(gate.set)
    threads.begin("other", other)


def by_an_object(event: threading.Event, threads: Threads) -> None:
    worker = _Worker(event)
    threads.ends.append(worker.gate.set)
    threads.begin("other", worker.run)


def by_a_method(event: threading.Event, threads: Threads) -> None:
    gate = threading.Event()

    def other(ends: Any) -> None:
        gate.wait()
        ends()

    threads.ends.append(gate.set)
    threads.begin("other", other, functools.partial(event.set))


def by_a_thread_of_its_own_class(event: threading.Event, threads: Threads) -> None:
    worker = _WorkingThread(event)
    threads.ends.append(worker.gate.set)
    worker.start()


def by_a_suspended_generator(event: threading.Event, threads: Threads) -> None:
    gate = threading.Event()

    def later() -> Iterator[None]:
        yield
        event.set()

    def other(generator: Iterator[None]) -> None:
        gate.wait()
        next(generator, None)

    generator = later()
    next(generator)
    threads.ends.append(gate.set)
    threads.begin("other", other, generator)


def by_a_failed_task(event: threading.Event, threads: Threads) -> None:
    """The error of a task that has ended keeps the event, and another thread has the task."""
    gate = threading.Event()

    async def fails(event: threading.Event) -> None:
        if not event.is_set():
            raise ValueError

    async def main(event: threading.Event) -> asyncio.Task[None]:
        task = asyncio.create_task(fails(event))
        await asyncio.wait([task])
        return task

    def other(task: asyncio.Task[None]) -> None:
        gate.wait()
        assert task.exception() is not None

    threads.ends.append(gate.set)
    threads.begin("other", other, asyncio.run(main(event)))


@needs_memory
@pytest.mark.parametrize(
    "view",
    [
        by_an_argument,
        by_a_closure,
        by_an_object,
        by_a_method,
        by_a_thread_of_its_own_class,
        by_a_suspended_generator,
        by_a_failed_task,
    ],
    ids=lambda one: one.__name__,
)
def test_the_parties_that_can_reach_an_object_are_proved(
    view: Callable[[threading.Event, Threads], None], threads: Threads
) -> None:
    event = threading.Event()
    view(event, threads)
    thing = OwnRef(event)
    del event
    until_all_wait("other")
    assert reaching(thing) == {"other"}


async def _set_later(event: threading.Event, gate: asyncio.Event) -> None:
    await gate.wait()
    event.set()


async def _forget(event: threading.Event, gate: asyncio.Event) -> None:
    event.is_set()
    await gate.wait()


async def _set_in_the_end(event: threading.Event, gate: asyncio.Event) -> None:
    try:
        await gate.wait()
    finally:
        event.set()


def begin_task(threads: Threads, name: str, run: Callable[[Any, asyncio.Event], Any], thing: Any) -> None:
    """A task of this name on a loop of its own; it is suspended on its gate."""
    things, there = [thing], threading.Event()

    async def main() -> None:
        gate, loop = asyncio.Event(), asyncio.get_running_loop()
        threads.ends.append(lambda: loop.call_soon_threadsafe(gate.set))
        task = asyncio.create_task(run(things.pop(), gate), name=name)
        await asyncio.sleep(0)
        there.set()
        await task

    threads.begin("loop", lambda: asyncio.run(main()))
    assert there.wait(PATIENCE_SECONDS)


@needs_memory
@pytest.mark.parametrize(("run", "by"), [(_set_later, {"task"}), (_set_in_the_end, {"task"}), (_forget, set())])
def test_a_suspended_task_reaches_the_names_ahead_in_its_coroutine(run: Any, by: set[str], threads: Threads) -> None:
    event = threading.Event()
    begin_task(threads, "task", run, event)
    thing = OwnRef(event)
    del event
    assert reaching(thing) == by


@needs_memory
def test_the_threads_of_an_executor_reach_what_is_in_its_queue(threads: Threads) -> None:
    gates = [threading.Event(), threading.Event()]

    def begin(event: threading.Event) -> None:
        pool = ThreadPoolExecutor(1, thread_name_prefix="item")
        pool.submit(gates[0].wait)
        pool.submit(event.set)

    event = threading.Event()
    begin(event)
    thing = OwnRef(event)
    threads.ends.append(gates[0].set)
    del event
    until_all_wait("item_0")
    assert reaching(thing) == {"item_0"}


@needs_memory
def test_a_variable_that_is_never_read_again_leads_nowhere(threads: Threads) -> None:
    gate = threading.Event()

    def other(event: threading.Event) -> None:
        event.is_set()
        gate.wait()

    event = threading.Event()
    threads.ends.append(gate.set)
    threads.begin("other", other, event)
    thing = OwnRef(event)
    del event
    until_all_wait("other")
    assert reaching(thing) == set()


@needs_memory
@pytest.mark.parametrize(
    ("timeout", "default", "by"), [(FAR_SECONDS, None, {"other"}), (None, FAR_SECONDS, {"other"}), (None, None, set())]
)
def test_a_wait_at_a_barrier_that_times_out_breaks_it_for_all(
    timeout: float | None, default: float | None, by: set[str], threads: Threads
) -> None:
    def other(barrier: threading.Barrier) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(timeout)

    barrier = threading.Barrier(2, timeout=default)
    thing = OwnRef(barrier)
    threads.ends.append(lambda: _there(thing).abort())
    threads.begin("other", other, barrier)
    del barrier
    until_all_wait("other")
    assert reaching(thing) == by


# -- not proved ----------------------------------------------------------------------------------------------------------


def in_a_module(event: threading.Event, threads: Threads) -> None:
    _REGISTRY["event"] = event


def in_a_class(event: threading.Event, threads: Threads) -> None:
    class Holder:
        late = event

    _REGISTRY["class"] = weakref.ref(Holder)
    threads.ends.append(lambda: Holder.__name__)


def on_a_signal(event: threading.Event, threads: Threads) -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: event.set())
    threads.ends.append(lambda: signal.signal(signal.SIGUSR2, before))


def at_exit(event: threading.Event, threads: Threads) -> None:
    atexit.register(event.set)
    threads.ends.append(lambda: atexit.unregister(event.set))


def in_a_context(event: threading.Event, threads: Threads) -> None:
    token = _VARIABLE.set(event)
    threads.ends.append(lambda: _VARIABLE.reset(token))


def in_a_local(event: threading.Event, threads: Threads) -> None:
    _LOCAL.event = event
    threads.ends.append(lambda: delattr(_LOCAL, "event"))


def weakly(event: threading.Event, threads: Threads) -> None:
    _WEAK.add(event)
    kept = [event]
    threads.ends.append(kept.clear)


def by_a_finalizer(event: threading.Event, threads: Threads) -> None:
    class Owner:
        pass

    owner = Owner()
    weakref.finalize(owner, event.set)
    threads.ends.append(lambda: repr(owner))


def by_its_destructor(event: threading.Event, threads: Threads) -> None:
    class Owner:
        def __init__(self) -> None:
            self.late, self.itself = event, self

        def __del__(self) -> None:
            self.late.set()

    gc.disable()
    Owner()
    threads.ends.append(gc.enable)


def in_a_generator(event: threading.Event, threads: Threads) -> None:
    def later() -> Iterator[None]:
        yield
        event.set()

    generator = later()
    next(generator)
    threads.ends.append(lambda: next(generator, None))


def on_a_loop(event: threading.Event, threads: Threads) -> None:
    loop = asyncio.new_event_loop()
    loop.call_later(FAR_SECONDS, event.set)
    threads.ends.append(loop.close)


@needs_memory
@pytest.mark.parametrize(
    "view",
    [
        *(in_a_module, in_a_class, on_a_signal, at_exit, in_a_context, in_a_local, weakly, by_a_finalizer, by_its_destructor),
        *(in_a_generator, on_a_loop),
    ],
    ids=lambda one: one.__name__,
)
def test_the_parties_that_can_reach_an_object_are_not_proved(
    view: Callable[[threading.Event, Threads], None], threads: Threads
) -> None:
    event = threading.Event()
    thing = OwnRef(event)
    view(event, threads)
    del event
    assert reaching(thing) is None


class _Client:
    """A client as many libraries have them: it closes itself when it is released, which ends the waits for its event."""

    def __init__(self, event: threading.Event) -> None:
        self.replied = event

    def close(self) -> None:
        self.replied.set()

    def __del__(self) -> None:
        self.close()

    def ask(self) -> None:
        self.replied.wait()


def _asks(clients: list[_Client]) -> None:
    clients.pop().ask()


def _waits_for(event: threading.Event) -> None:
    event.wait()


def _keeps_until_it_ends(clients: list[_Client], gate: threading.Event) -> None:
    client = clients.pop()  # noqa: F841 - it is released when this ends
    gate.wait(FAR_SECONDS)


@needs_memory
def test_an_object_with_a_finalizer_leads_to_who_has_it(threads: Threads) -> None:
    event = threading.Event()
    clients, thing = [_Client(event)], OwnRef(event)
    threads.begin("asker", _asks, clients)
    threads.ends.append(lambda: _there(thing).set())
    del event
    until_all_wait("asker")
    assert reaching(thing) == {"asker"}


@needs_memory
def test_who_will_drop_an_object_with_a_finalizer_can_reach_what_that_ends(threads: Threads) -> None:
    """Near miss: the thread never reads its variable again, but its end releases the client."""

    gate = threading.Event()
    event = threading.Event()
    thing = OwnRef(event)
    clients = [_Client(event)]
    threads.begin("asker", _waits_for, event)
    threads.begin("keeper", _keeps_until_it_ends, clients, gate)
    threads.ends += [lambda: _there(thing).set(), gate.set]
    del event
    until_all_wait("asker")
    assert "keeper" in (reaching(thing) or ())


@needs_memory
def test_parties_that_proceed_can_reach_the_object(threads: Threads) -> None:
    """A timer, an executor's item, a sleeping thread: each is found as a reacher, and is not among the waiting threads."""
    for name in ("timer", "item", "sleeper"):
        event = threading.Event()
        if name == "timer":
            timer = threading.Timer(FAR_SECONDS, event.set)
            timer.name, timer.daemon = name, True
            timer.start()
            threads.ends.append(timer.cancel)
        elif name == "item":
            pool, gate = ThreadPoolExecutor(1, thread_name_prefix="item"), threading.Event()
            pool.submit(gate.wait)
            pool.submit(event.set)
            threads.ends += [gate.set, pool.shutdown]
        else:
            over: list[bool] = []
            threads.begin(name, _sleep_and_set, event, over)
            threads.ends.append(partial(over.append, True))
        thing = OwnRef(event)
        del event
        reached = reaching(thing)
        assert reached is None or any(one.startswith(name) for one in reached), name


@needs_memory
def test_code_that_enumerates_threads_reaches_their_objects(threads: Threads) -> None:
    def others() -> list[threading.Thread]:
        return threading.enumerate()

    event = threading.Event()
    by_a_thread_of_its_own_class(event, threads)
    thing = OwnRef(event)
    del event
    until_all_wait("other")
    assert reaching(thing) is None
    del others
    assert reaching(thing) == {"other"}


@needs_memory
def test_functions_that_gc_freeze_hides_may_reach_anything(threads: Threads) -> None:
    event = threading.Event()
    by_a_thread_of_its_own_class(event, threads)
    thing = OwnRef(event)
    del event
    until_all_wait("other")
    gc.freeze()
    try:
        assert reaching(thing) is None
    finally:
        gc.unfreeze()
    assert reaching(thing) == {"other"}


@needs_memory
def test_a_thread_that_is_within_a_statement_has_the_object_only_for_a_moment(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = threading.Event()
    by_a_thread_of_its_own_class(event, threads)
    thing = OwnRef(event)
    del event
    until_all_wait("other")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing()))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == len(reference_counts.AGAIN_SECONDS):
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(thing()))

    with monkeypatch.context() as patched:
        patched.setattr(reference_counts, "time", SimpleNamespace(sleep=pause, thread_time=lambda: 0.0))
        reached = reaching(thing)
    assert reached == {"other"}
    assert pauses == list(reference_counts.AGAIN_SECONDS)


def test_a_threads_position_is_read_once_however_many_proofs_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def place(frames: Any) -> int:
        read.append(frames)
        return len(frames)

    monkeypatch.setattr(thread_waits, "_place", place)
    running: dict[int, Any] = {1: ("frame",), 2: ("frame", "frame")}
    proofs = [thread_waits.Proof((1, 2), (), {1: 1, 2: 2}) for _ in range(50)]
    known: dict[int, object] = {}
    assert [one.enders(running, known) for one in proofs] == [(1, 2)] * 50
    assert len(read) == len(running)
    assert thread_waits.Proof((1, 2), (), {1: 1, 2: 3}).enders(running, known) is None, "the second has moved"


def test_searches_that_fail_are_repeated_at_once_until_what_was_saved_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0, 0.0]  # of the clock, and of the processor

    def proves_nothing(*_: Any) -> dict[int, Any]:
        now[1] += 0.25
        return {}

    clock = SimpleNamespace(monotonic=lambda: now[0], thread_time=lambda: now[1])
    monkeypatch.setattr(thread_waits, "time", clock)
    monkeypatch.setattr(thread_waits, "proved", proves_nothing)
    monkeypatch.setattr(thread_waits._Candidate, "still_waits", lambda *_: True)
    found = ThreadWaits()
    monkeypatch.setattr(thread_waits, "SHARE_OF_TIME", 0.02)
    found._candidates[0] = thread_waits._Candidate(0, (), OwnRef(threading.Event()), now[0])
    for count in range(1000):
        found.search()
        now[0] += 0.1
        if count == 10:
            assert now[1] >= thread_waits.SAVED_SECONDS_MAX
    assert now[1] <= thread_waits.SAVED_SECONDS_MAX + 0.02 * 100 + 0.25


def _sleep_and_set(event: threading.Event, over: list[bool]) -> None:
    while not over:
        time.sleep(0.05)
    event.set()


# -- reports -------------------------------------------------------------------------------------------------------------


keeps_exits = pytest.mark.skipif(sys.version_info >= (3, 12), reason="the exit of a block that is entered is not on the stack")


def until_all_hold_still(*names: str) -> None:
    """Wait until the threads with these names have not run for some time."""
    before: list[Any] = []
    while True:
        idents = {one.name: one.ident for one in compat.threads().values()}
        every = frames_of_threads()
        now = [[(id(one), one.f_lasti) for one in every.get(idents.get(name) or 0, [])] for name in names]
        if all(now) and now == before:
            return
        before = now
        time.sleep(0.1)


def reported(agent: Agent, *names: str) -> Report:
    """The report once these threads wait; without names, the report after several cuts with searches in between."""
    end = time.monotonic() + PATIENCE_SECONDS
    for count in itertools.count():
        report = report_of(agent)
        if set(names) <= awaited(report).keys() and (names or count > CUTS_MIN):
            return report
        assert time.monotonic() < end, awaited(report)
        time.sleep(thread_waits.AGAIN_SECONDS)
        agent._observer.searchers.search(time.time())
    raise AssertionError


def awaited(report: Report) -> dict[str, set[str]]:
    """The parties that each thread waits for."""
    return {one.waiter.partition(":")[2]: _names(one.among) for one in report.waits}


def _names(among: Any) -> set[str]:
    return {one.party.partition(":")[2] for one in among if isinstance(one, PartyTarget)}


def in_a_cycle(first: threading.Event, second: threading.Event, threads: Threads) -> None:
    """Two threads that wait for each other's event."""

    def run(own: threading.Event, other: threading.Event) -> None:
        own.wait()
        other.set()

    threads.begin("a", run, first, second)
    threads.begin("b", run, second, first)
    until_all_wait("a", "b")


def _there(weak: OwnRef) -> Any:
    found = weak()
    assert found is not None
    return found


def _begin_cycle(threads: Threads) -> OwnRef:
    first, second = threading.Event(), threading.Event()
    found = OwnRef(first)
    threads.ends.append(lambda: _there(found).set())
    in_a_cycle(first, second, threads)
    return found


@needs_memory
def test_a_cycle_of_events_is_reported_and_the_look_finds_no_way_out(alone: Callable[..., Agent], threads: Threads) -> None:
    _begin_cycle(threads)
    agent = alone("one")
    report = reported(agent, "a", "b")
    assert awaited(report) == {"a": {"b"}, "b": {"a"}}
    looks = [one for one in look_at(agent, report).parties if one.party.endswith((":a", ":b"))]
    assert [(one.unchanged, one.ways_out, one.doubt) for one in looks] == [(True, (), "")] * 2


@needs_memory
def test_a_wait_counts_from_the_cut_that_saw_it_first_not_from_its_proof(alone: Callable[..., Agent], threads: Threads) -> None:
    _begin_cycle(threads)
    agent = alone("one")
    time.sleep(0.5)  # so that both are surely asleep: a thread that runs once more is seen anew
    assert not awaited(report_of(agent)), "nothing is proved at the first cut"
    seen = time.time()
    time.sleep(0.2)
    report = reported(agent, "a", "b")
    since = [one.since for one in report.waits if one.waiter.endswith((":a", ":b"))]
    assert len(since) == 2
    assert all(one is not None and one <= seen for one in since)


@needs_memory
def test_a_future_that_nobody_is_known_to_complete_is_waited_for_like_an_event(
    alone: Callable[..., Agent], threads: Threads
) -> None:
    def run(pending: dict[str, Future[None]], own: str, other: str) -> None:
        pending[own].result()
        if not pending[other].done():
            pending[other].set_result(None)

    pending = {"a": Future[None](), "b": Future[None]()}
    first = OwnRef(pending["a"])
    threads.ends.append(lambda: _there(first).set_result(None))
    threads.begin("a", run, pending, "a", "b")
    threads.begin("b", run, pending, "b", "a")
    del pending
    until_all_wait("a", "b")
    assert awaited(reported(alone("one"), "a", "b")) == {"a": {"b"}, "b": {"a"}}


@needs_memory
def test_a_party_that_gets_the_object_after_the_cut_is_a_way_out(alone: Callable[..., Agent], threads: Threads) -> None:
    event = _begin_cycle(threads)
    agent = alone("one")
    report = reported(agent, "a", "b")
    _REGISTRY["event"] = event()
    looks = [one for one in look_at(agent, report).parties if one.party.endswith((":a", ":b"))]
    assert len(looks) == 2
    assert any(one.doubt or one.ways_out for one in looks)


class _Bounded:
    """An executor with room for two items, which each item's end makes."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(2, thread_name_prefix="item")
        self.room = threading.BoundedSemaphore(2)

    def submit(self, depth: int) -> Future[None]:
        self.room.acquire()
        future = self.executor.submit(self._run, depth)
        future.add_done_callback(lambda _: self.room.release())
        return future

    def _run(self, depth: int) -> None:
        if depth:
            self.submit(depth - 1)


def _submit_all(rooms: list[OwnRef]) -> None:
    bounded = _Bounded()
    rooms.append(OwnRef(bounded.room))
    both = threading.Barrier(2)
    for begun in [bounded.executor.submit(both.wait) for _ in range(2)]:  # so that there are both threads
        begun.result()
    del both
    for one in [bounded.submit(1) for _ in range(2)]:
        one.result()
    bounded.executor.shutdown()


def _add_room(room: Any) -> None:
    room._initial_value += 1
    room.release()


@needs_memory
def test_items_that_wait_for_the_end_of_another_item_are_looked_at_again(alone: Callable[..., Agent], threads: Threads) -> None:
    rooms = list[OwnRef]()
    threads.begin("submits", _submit_all, rooms)
    until_all_wait("submits", "item_0", "item_1")
    threads.ends.append(lambda: _add_room(_there(rooms[0])))
    agent = alone("one")
    report = reported(agent, "item_0", "item_1")
    looks = [one for one in look_at(agent, report).parties if ":item_" in one.party]
    assert [(one.unchanged, one.doubt) for one in looks] == [(True, "")] * 2


def _iterate_over(items: Iterator[Any]) -> None:
    for _ in items:
        pass


def _iterate_in_blocks(items: Iterator[Any]) -> None:
    for _ in range(1):
        with _ignored:
            for _ in items:
                with _ignored:
                    pass


def _iterate_in_a_handler(items: Iterator[Any]) -> None:
    try:
        _REGISTRY["none of it"]
    except LookupError:
        for _ in items:
            pass


def _make_list_in_loop(items: Iterator[Any]) -> None:
    for _ in range(1):
        [None for _ in items]


@needs_memory
@pytest.mark.parametrize(
    ("work", "kept", "by"),
    [
        (_iterate_over, False, {"other"}),
        (_iterate_over, True, None),
        (_iterate_in_a_handler, False, {"other"}),
        (_iterate_in_blocks, False, {"other"}),
        (lambda items: [None for _ in items], False, {"other"}),
        (lambda items: {one: None for one in items}, False, {"other"}),  # noqa: C420 - the comprehension is what is tried
        (lambda items: {None for _ in range(3) for _ in items}, False, {"other"}),
        (_make_list_in_loop, False, {"other"}),
        (lambda items: [None for _ in items], True, None),
    ],
    ids=[
        "alone",
        "also kept elsewhere",
        "in a handler",
        "in blocks",
        "list",
        "dict",
        "set",
        "in a loop",
        "kept list",
    ],
)
def test_the_iterator_of_a_loop_is_on_the_stack_of_its_frame(
    work: Callable[[Any], object], kept: bool, by: set[str] | None, threads: Threads
) -> None:
    todo = queue.Queue[Any]()
    thing = OwnRef(todo)

    def run() -> None:
        work(iter(things.pop().get, None))

    things = [todo]
    if kept:
        _REGISTRY["items"] = iter(todo.get, None)
    threads.begin("other", run)
    del todo
    until_all_wait("other")
    try:
        assert reaching(thing) == by
    finally:
        threads.ends.append(lambda: _there(thing).put(None))


@needs_memory
def test_idle_workers_of_an_unfed_queue_are_not_reported(alone: Callable[..., Agent], threads: Threads) -> None:
    def work(todo: queue.Queue[Any], done: queue.Queue[Any]) -> None:
        while (item := todo.get()) is not None:
            done.put(item)

    first, second = queue.Queue[Any](), queue.Queue[Any]()
    threads.begin("a", work, first, second)
    threads.begin("b", work, second, first)
    things = OwnRef(first), OwnRef(second)
    del first, second
    until_all_wait("a", "b")
    try:
        found = awaited(reported(alone("one")))
        assert not {"a", "b"} <= found.keys(), "one may seem to wait for the other while that is read"
    finally:
        threads.ends += [lambda: _there(things[0]).put(None), lambda: _there(things[1]).put(None)]


class Job:
    """An item of a hand-written pool of threads, whose end others wait for."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.run = run
        self.done = threading.Event()

    def perform(self) -> None:
        self.run()
        self.done.set()

    def wait(self) -> None:
        self.done.wait()


@needs_memory
@pytest.mark.parametrize("nested", [True, False], ids=["each item waits for another one", "the workers are idle"])
def test_items_of_a_pool_of_ones_own_that_wait_for_items_behind_them(
    nested: bool, alone: Callable[..., Agent], threads: Threads
) -> None:
    """A worker waits in a loop, but not as an idle one does: it is at work on an item."""

    def work(todo: queue.Queue[Job | None]) -> None:
        while (job := todo.get()) is not None:
            job.perform()

    def begin() -> OwnRef:
        todo = queue.Queue[Job | None]()

        def outer() -> None:
            both.wait()
            inner = Job(int)
            jobs.append(OwnRef(inner.done))
            todo.put(inner)
            inner.wait()

        for name in ("a", "b"):
            todo.put(Job(outer if nested else both.wait))
            threads.begin(name, work, todo)
        return OwnRef(todo)

    both, jobs = threading.Barrier(2), list[OwnRef]()
    todo = begin()
    until_all_wait("a", "b")
    threads.ends += [lambda: _there(todo).put(None), lambda: _there(todo).put(None)]
    threads.ends += [lambda: _there(jobs[0]).set(), lambda: _there(jobs[1]).set()] if nested else []
    agent = alone("one")
    if not nested:
        assert not {"a", "b"} & awaited(reported(agent)).keys()
        return
    report = reported(agent, "a", "b")
    assert awaited(report) == {"a": {"b"}, "b": {"a"}}
    looks = [one for one in look_at(agent, report).parties if one.party.endswith((":a", ":b"))]
    assert [(one.unchanged, one.ways_out, one.doubt) for one in looks] == [(True, (), "")] * 2


def _get(todo: queue.Queue[Any]) -> None:
    while todo.get() is not None:
        pass


def _iterate(todo: queue.Queue[Any]) -> None:
    try:
        for _ in range(1):
            for _ in iter(todo.get, None):
                pass
    finally:
        todo.qsize()


@needs_memory
@pytest.mark.parametrize("work", [_get, _iterate])
def test_idle_workers_that_are_joined_are_reported(
    work: Callable[[Any], None], alone: Callable[..., Agent], threads: Threads
) -> None:
    """A published bug: the sentinels are put after the workers have been joined."""

    def run() -> None:
        todo = queue.Queue[Any]()
        things.append(OwnRef(todo))
        workers = [threads.begin(name, work, todo) for name in ("a", "b")]
        for worker in workers:
            worker.join()
        for _ in workers:
            todo.put(None)

    things: list[OwnRef] = []
    threads.begin("main", run)
    until_all_wait("a", "b")
    try:
        assert awaited(reported(alone("one"), "a", "b"))["a"] == {"b", "main"}
    finally:
        threads.ends += [lambda: _there(things[0]).put(None), lambda: _there(things[0]).put(None)]


def _end_join(thing: OwnRef) -> None:
    found = _there(thing)
    while found.unfinished_tasks:
        found.task_done()


@needs_memory
@pytest.mark.parametrize("workers", [0, 1])
def test_joining_a_queue_without_task_done_never_ends(alone: Callable[..., Agent], threads: Threads, workers: int) -> None:
    """The worker has ended, or has forgotten ``task_done()`` and waits for more."""

    def work(todo: queue.Queue[Any]) -> None:
        while todo.get() is not None:
            pass

    def run() -> None:
        todo = queue.Queue[Any]()
        things.append(OwnRef(todo))
        todo.put(1)
        if workers:
            threads.begin("worker", work, todo)
        todo.join()

    things: list[OwnRef] = []
    threads.begin("main", run)
    until_all_wait("main", *["worker"] * workers)
    agent = alone("one")
    try:
        report = reported(agent, "main")
        assert awaited(report)["main"] == ({"worker"} if workers else {"main"})
        looks = [one for one in look_at(agent, report).parties if one.party.endswith((":main", ":worker"))]
        assert [(one.unchanged, one.ways_out, one.doubt) for one in looks] == [(True, (), "")] * (1 + workers)
    finally:
        threads.ends += [lambda: _there(things[0]).put(None), lambda: _end_join(things[0])]


@needs_memory
def test_a_future_that_nobody_completes_is_no_place_to_park(alone: Callable[..., Agent], threads: Threads) -> None:
    """A published bug: the thread that would have completed it has failed."""

    def run() -> None:
        future = Future[None]()
        things.append(OwnRef(future))
        future.result()

    things: list[OwnRef] = []
    threads.begin("main", run)
    until_all_wait("main")
    try:
        assert awaited(reported(alone("one"), "main"))["main"] == {"main"}
    finally:
        threads.ends.append(lambda: _there(things[0]).set_result(None))


@needs_memory
def test_locks_by_which_threads_signal_each_other_are_waited_for_like_events(
    alone: Callable[..., Agent], threads: Threads
) -> None:
    """Each is acquired by one thread and released by another, so nobody is known to hold it."""

    def run(own: threading.Lock, other: threading.Lock) -> None:
        own.acquire()
        other.release()

    first, second = threading.Lock(), threading.Lock()
    first.acquire()
    second.acquire()
    found = OwnRef(first)
    threads.ends.append(lambda: _there(found).release())
    threads.begin("a", run, first, second)
    threads.begin("b", run, second, first)
    del first, second
    until_all_hold_still("a", "b")
    agent = alone("one")
    report = reported(agent, "a", "b")
    assert awaited(report) == {"a": {"b"}, "b": {"a"}}
    looks = [one for one in look_at(agent, report).parties if one.party.endswith((":a", ":b"))]
    assert [(one.unchanged, one.doubt) for one in looks] == [(True, "")] * 2
    assert all(str(way.party).endswith((":a", ":b")) for one in looks for way in one.ways_out)


@needs_memory
@pytest.mark.parametrize("enters", [False, pytest.param(True, marks=keeps_exits)])
def test_a_thread_that_acquires_a_lock_twice_waits_for_itself_if_it_is_joined(
    alone: Callable[..., Agent], threads: Threads, enters: bool
) -> None:
    def run(lock: threading.Lock) -> None:
        lock.acquire()
        if enters:
            with lock:
                pass
        else:
            lock.acquire()

    def join(thread: threading.Thread) -> None:
        thread.join()

    lock = threading.Lock()
    found = OwnRef(lock)
    threads.ends.append(lambda: _there(found).release())
    twice = threads.begin("twice", run, lock)
    del lock
    until_all_hold_still("twice")
    threads.begin("joins", join, twice)
    assert awaited(reported(alone("one"), "twice", "joins")) == {"twice": {"twice"}, "joins": {"twice"}}


@needs_memory
def test_whoever_has_a_lock_without_a_holder_may_release_it(alone: Callable[..., Agent], threads: Threads) -> None:
    gate = threading.Event()

    def run(lock: threading.Lock) -> None:
        lock.acquire()

    def other(lock: threading.Lock) -> None:
        gate.wait(FAR_SECONDS)
        lock.release()

    lock = threading.Lock()
    lock.acquire()
    threads.ends.append(gate.set)
    threads.begin("waits", run, lock)
    threads.begin("other", other, lock)
    thing = OwnRef(lock)
    del lock
    until_all_hold_still("waits")
    assert reaching(thing) == {"waits", "other"}


@needs_memory
@pytest.mark.parametrize("how", ["wait", "as_completed", "first"])
def test_a_cancelled_future_of_which_nobody_tells_is_no_place_to_park(
    alone: Callable[..., Agent], threads: Threads, how: str
) -> None:
    """python/cpython 92001: ``wait`` counts a cancelled future as done once its executor has come to it."""

    def run() -> None:
        future = Future[None]()
        future.cancel()
        things.append(OwnRef(future))
        if how == "as_completed":
            list(as_completed([future]))
        elif how == "wait":
            wait([future])
        else:
            wait([future, Future[None]()], return_when=FIRST_COMPLETED)

    things: list[OwnRef] = []
    threads.begin("main", run)
    until_all_wait("main")
    try:
        agent = alone("one")
        if how == "first":
            assert "main" not in awaited(reported(agent))
        else:
            assert awaited(reported(agent, "main"))["main"] == {"main"}
    finally:
        threads.ends.append(lambda: _there(things[0]).set_running_or_notify_cancel())


class _Stoppable:
    """What tells the next once it is told to stop."""

    def __init__(self) -> None:
        self.stop, self.stopped, self.closed = threading.Event(), threading.Event(), threading.Event()

    def watch(self) -> None:
        self.stop.wait()
        self.stopped.set()

    def tell(self) -> None:
        self.stopped.wait()
        self.closed.set()

    def ask(self) -> None:
        self.stopped.wait()
        self.stop.set()


@needs_memory
@pytest.mark.parametrize("other", ["tell", "ask"])
def test_watchers_of_a_stop_that_is_never_asked_for_park_unless_each_would_wake_the_other(
    alone: Callable[..., Agent], threads: Threads, other: str
) -> None:
    def begin() -> threading.Thread:
        both = _Stoppable()
        things.append(OwnRef(both.stop))
        threads.begin("watch", both.watch)
        return threads.begin("other", getattr(both, other))

    def join(thread: threading.Thread) -> None:
        thread.join()

    things: list[OwnRef] = []
    begun = begin()
    until_all_wait("watch", "other")
    agent = alone("one")
    try:
        if other == "ask":
            assert awaited(reported(agent, "watch", "other")) == {"watch": {"other"}, "other": {"watch"}}
        else:
            for _ in range(3):
                assert awaited(reported(agent)).keys().isdisjoint({"watch", "other"})
            threads.begin("joins", join, begun)
            assert awaited(reported(agent, "joins", "other", "watch"))["other"] == {"watch"}
    finally:
        threads.ends.append(lambda: _there(things[0]).set())


@needs_memory
def test_a_thread_at_an_unreachable_event_is_parked_unless_it_is_joined(alone: Callable[..., Agent], threads: Threads) -> None:
    def park() -> None:
        event = threading.Event()
        things.append(OwnRef(event))
        event.wait()

    def join(thread: threading.Thread) -> None:
        thread.join()

    things: list[OwnRef] = []
    agent, parked = alone("one"), threads.begin("parked", park)
    until_all_wait("parked")
    try:
        assert "parked" not in awaited(reported(agent))
        threads.begin("joins", join, parked)
        assert awaited(reported(agent, "parked"))["parked"] == {"parked"}
    finally:
        threads.ends.append(lambda: _there(things[0]).set())


@needs_memory
@pytest.mark.parametrize("by", ["waits", "loop"], ids=["a task", "a callback"])
def test_an_event_that_a_task_of_the_blocked_loop_would_set_is_a_cycle(
    alone: Callable[..., Agent], threads: Threads, by: str
) -> None:
    async def wait(event: threading.Event) -> None:
        await asyncio.sleep(0.1)
        event.wait()

    def wait_in_a_callback(event: threading.Event) -> None:
        event.wait()

    async def set_later(event: threading.Event) -> None:
        await asyncio.sleep(0.2)
        event.set()

    async def main() -> None:
        event = threading.Event()
        things.append(OwnRef(event))
        tasks = [asyncio.create_task(set_later(event), name="sets")]
        if by == "waits":
            tasks.append(asyncio.create_task(wait(event), name="waits"))
        else:
            asyncio.get_running_loop().call_later(0.1, wait_in_a_callback, event)
        del event
        await asyncio.wait(tasks)

    things: list[OwnRef] = []
    agent = alone("one")
    threads.begin("loop", lambda: asyncio.run(main()))
    until_all_wait("loop")
    try:
        report = reported(agent, by)
        assert awaited(report)[by] == {"sets"}
        assert awaited(report)["sets"] == {by}
        waiting = {one.waiter for one in report.waits}
        looks = [one for one in look_at(agent, report).parties if one.party.endswith((f":{by}", ":sets"))]
        assert [(one.unchanged, one.doubt) for one in looks] == [(True, "")] * 2
        assert all(way.party in waiting for one in looks for way in one.ways_out)
    finally:
        threads.ends.append(lambda: _there(things[0]).set())


class _Ring:
    """Threads of which each would set the next one's event."""

    def __init__(self, count: int) -> None:
        self.events = [threading.Event() for _ in range(count)]

    def run(self, at: int) -> None:
        self.events[at].wait()
        self.events[(at + 1) % len(self.events)].set()


@needs_memory
def test_the_code_of_each_thread_is_read_once_however_many_it_may_wake(
    alone: Callable[..., Agent], threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two hundred threads could reach the events of all others: reading all pairs took eight seconds at each cut."""
    count, read = 12, Counter[int]()

    def counted(frame: FrameType, waking: frozenset[str]) -> frozenset[int] | None:
        read[id(frame)] += 1
        return woken_ahead(frame, waking)

    def begin() -> None:
        ring = _Ring(count)
        things.extend(map(OwnRef, ring.events))
        for at in range(count):
            threads.begin(f"ring{at}", ring.run, at)

    things: list[OwnRef] = []
    names = [f"ring{at}" for at in range(count)]
    begin()
    until_all_wait(*names)
    agent = alone("one")
    try:
        reported(agent, *names)
        monkeypatch.setattr(thread_waits, "woken_ahead", counted)
        report_of(agent)
        assert read
        assert max(read.values()) == 1
    finally:
        threads.ends.append(lambda: [_there(one).set() for one in things])
