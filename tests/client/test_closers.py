"""Who may close the channel or stop the server that a wait depends on, each with a near miss that never gets there."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import queue
import sched
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.runtime.frames import frames_of_threads
from tests.client.look_worlds import LoopWorld, Stuck, holders, look_at, of, report_when, serving

FAR_SECONDS = 60.0
Holder = Callable[[Any, threading.Event], object]


class Ended(BaseException):
    """What interrupts a holder at the end of its test, as a signal would."""


def interrupted(go: threading.Event) -> None:
    """A sleep, and an interruption at the end of the test."""
    if go.wait(FAR_SECONDS):
        raise Ended


class Service:
    """Owns a channel or a server under some name."""

    def __init__(self, owned: Any) -> None:
        self.owned = owned

    def finish(self) -> None:
        """End what it owns."""
        self.owned.close()

    def tell(self) -> bool:
        """Say whether there is anything."""
        return self.owned is not None


class Other:
    """Something else that can be closed."""

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing."""


# -- who gets there ----------------------------------------------------------------------------------------------------


def sleeps_then_closes(owned: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    owned.close()


def closes_by_name(owned: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    operator.methodcaller("close")(owned)


def polls_then_closes(owned: Any, go: threading.Event) -> None:
    while not go.wait(FAR_SECONDS):
        pass
    Service(owned).owned.close()


def gives_up_then_closes(owned: Any, go: threading.Event) -> None:
    results: queue.Queue[int] = queue.Queue()
    with contextlib.suppress(ValueError):
        while not go.is_set():
            try:
                results.get(timeout=0.2)
            except (queue.Empty, KeyError):
                if go.is_set():
                    owned.close()


def leaves_its_block(owned: Any, go: threading.Event) -> None:
    with owned:
        go.wait(FAR_SECONDS)


def leaves_an_exit_stack(owned: Any, go: threading.Event) -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(owned.close)
        del owned
        go.wait(FAR_SECONDS)


def leaves_a_closing(owned: Any, go: threading.Event) -> None:
    with contextlib.closing(owned):
        go.wait(FAR_SECONDS)


@contextlib.contextmanager
def lent(owned: Any) -> Iterator[None]:
    """Close it at the end."""
    try:
        yield
    finally:
        owned.close()


def leaves_a_generators_block(owned: Any, go: threading.Event) -> None:
    with lent(owned):
        go.wait(FAR_SECONDS)


@contextlib.contextmanager
def connected(owned: Any) -> Iterator[Any]:
    """Lend a stub, and close its channel at the end."""
    try:
        yield owned.unary_unary("/s/Get")
    finally:
        owned.close()


def leaves_the_block_of_a_stub(owned: Any, go: threading.Event) -> None:
    with connected(owned) as stub:
        del owned
        go.wait(FAR_SECONDS)
        assert stub is not None


def has_an_object_close_it(owned: Any, go: threading.Event) -> None:
    service = Service(owned)
    del owned
    go.wait(FAR_SECONDS)
    service.finish()


def has_a_function_close_it(owned: Any, go: threading.Event) -> None:
    def finish() -> None:
        owned.close()

    go.wait(FAR_SECONDS)
    finish()


def closes_several(owned: Any, go: threading.Event) -> None:
    everything = [Other(), owned]
    del owned
    for _ in everything:
        go.wait(FAR_SECONDS)
    for one in everything:
        one.close()


def sets_a_timer(owned: Any, go: threading.Event) -> None:
    timer = threading.Timer(FAR_SECONDS, owned.close)
    timer.start()
    del owned
    go.wait()
    timer.cancel()


def plans_it(owned: Any, go: threading.Event) -> None:
    def wait(seconds: float) -> None:
        if seconds:
            go.wait(seconds)

    plan = sched.scheduler(delayfunc=wait, timefunc=lambda: FAR_SECONDS * go.is_set())
    plan.enter(FAR_SECONDS, 1, owned.close)
    del owned
    plan.run()


def waits_for_who_sleeps(owned: Any, go: threading.Event) -> None:
    sleeper = threading.Thread(target=lambda: go.wait(FAR_SECONDS))
    sleeper.start()
    sleeper.join()
    owned.close()


def waits_for_what_somebody_sets(owned: Any, go: threading.Event) -> None:
    over = threading.Event()

    def sets() -> None:
        go.wait(FAR_SECONDS)
        over.set()

    setter = threading.Thread(target=sets)
    setter.start()
    over.wait()
    owned.close()
    setter.join()


def waits_for_an_executor(owned: Any, go: threading.Event) -> None:
    with ThreadPoolExecutor(1) as executor:
        executor.submit(go.wait, FAR_SECONDS).result()
    owned.close()


def is_told_by_a_caller(owned: Any, go: threading.Event) -> None:
    def inner() -> None:
        go.wait(FAR_SECONDS)

    inner()
    owned.close()


# -- who does not ------------------------------------------------------------------------------------------------------


def waits_for_ever(owned: Any, go: threading.Event) -> None:
    go.wait()
    owned.close()


def sleeps_until_it_is_interrupted(owned: Any, go: threading.Event) -> None:
    try:
        while True:
            interrupted(go)
    except (KeyboardInterrupt, SystemExit):
        owned.close()
    finally:
        owned.close()


def stays_in_its_block(owned: Any, go: threading.Event) -> None:
    with owned:
        while True:
            interrupted(go)


def calls_what_never_returns(owned: Any, go: threading.Event) -> None:
    def runs() -> None:
        while True:
            interrupted(go)

    try:
        runs()
    finally:
        owned.close()
    owned.close()


def closes_something_else(owned: Any, go: threading.Event) -> None:
    other = Other()
    go.wait(FAR_SECONDS)
    other.close()
    assert owned is not None


def leaves_the_block_of_something_else(owned: Any, go: threading.Event) -> None:
    with Other():
        go.wait(FAR_SECONDS)
    assert owned is not None


def only_tells(owned: Any, go: threading.Event) -> None:
    service = Service(owned)
    go.wait(FAR_SECONDS)
    service.tell()


def waits_for_who_never_ends(owned: Any, go: threading.Event) -> None:
    waiter = threading.Thread(target=go.wait)
    waiter.start()
    waiter.join()
    owned.close()


def waits_for_what_only_a_signal_sets(owned: Any, go: threading.Event) -> None:
    before = threading.Event()
    threading.Thread(target=_sets_after, args=(go, before)).start()
    before.wait()
    owned.close()


def waits_for_what_others_watch(owned: Any, go: threading.Event) -> None:
    over = threading.Event()

    def watches() -> None:
        while not go.is_set():
            over.wait(0.2)

    threading.Thread(target=watches).start()
    threading.Thread(target=_sets_after, args=(go, over)).start()
    over.wait()
    owned.close()


class Looping:
    """Something that runs until it is told to stop, as servers and workers are written."""

    def __init__(self, owned: Any, go: threading.Event) -> None:
        self.owned, self.go, self.running, self.state = owned, go, True, "up"
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether it was told to."""
        return self._stopped.is_set()

    def is_stopped(self) -> bool:
        """The same as a method."""
        return self._stopped.is_set()

    def tick(self) -> None:
        """One round; at the end of the test whatever it polls has changed."""
        if self.go.wait(0.05):
            raise Ended

    def tick_and_stop(self) -> None:
        """One round, perhaps the last."""
        self.running = not self.go.wait(0.05)

    def by_attribute(self) -> None:
        """Poll an attribute."""
        while self.running:
            self.tick()
        self.owned.close()

    def by_state(self) -> None:
        """Compare one."""
        while self.state == "up":
            self.tick()
        self.owned.close()

    def by_property(self) -> None:
        """Poll a property that reads an event."""
        while not self.stopped:
            self.tick()
        self.owned.close()

    def by_method(self) -> None:
        """Poll a method that reads an event."""
        while True:
            if self.is_stopped():
                break
            self.tick()
        self.owned.close()

    def by_own_method(self) -> None:
        """Poll what its own rounds set."""
        while self.running:
            self.tick_and_stop()
        self.owned.close()

    def polls_slowly(self) -> None:
        """Look at the flag after the first round only."""
        while True:
            if self.go.wait(FAR_SECONDS):
                raise Ended
            if self.is_stopped():
                break
        self.owned.close()

    def tick_while_down(self) -> None:
        """The same with an attribute."""
        while True:
            if self.go.wait(FAR_SECONDS):
                raise Ended
            if self.running is False:
                break
        self.owned.close()

    def stop(self) -> None:
        """Tell it to stop."""
        self.running = False
        self.state = "down"
        self._stopped.set()


def polls_an_event(owned: Any, go: threading.Event) -> None:
    over = threading.Event()
    while not over.wait(0.05):
        if go.is_set():
            raise Ended
    owned.close()


def polls_an_attribute(owned: Any, go: threading.Event) -> None:
    Looping(owned, go).by_attribute()


def polls_a_state(owned: Any, go: threading.Event) -> None:
    Looping(owned, go).by_state()


def polls_a_property(owned: Any, go: threading.Event) -> None:
    Looping(owned, go).by_property()


def polls_a_method(owned: Any, go: threading.Event) -> None:
    Looping(owned, go).by_method()


def polls_an_item(owned: Any, go: threading.Event) -> None:
    flags = {"stop": False}
    while not flags["stop"]:
        interrupted_soon(go)
    owned.close()


def polls_a_variable(owned: Any, go: threading.Event) -> None:
    running = True

    def stops() -> None:
        nonlocal running
        running = False

    signal_handlers = [stops]
    while running:
        interrupted_soon(go)
    owned.close()
    assert signal_handlers


def polls_who_never_ends(owned: Any, go: threading.Event) -> None:
    waiter = threading.Thread(target=go.wait)
    waiter.start()
    while waiter.is_alive():
        waiter.join(0.05)
    owned.close()


def polls_what_is_set_already(owned: Any, go: threading.Event) -> None:
    looping = Looping(owned, go)
    looping.stop()
    looping.polls_slowly()


def polls_a_state_that_is_reached(owned: Any, go: threading.Event) -> None:
    looping = Looping(owned, go)
    looping.running = False
    looping.tick_while_down()


def returns_from_a_poll(owned: Any, go: threading.Event) -> None:
    polls_an_event(Other(), go)
    owned.close()


def interrupted_soon(go: threading.Event) -> None:
    """One round of a loop, and an interruption at the end of the test."""
    if go.wait(0.05):
        raise Ended


def polls_an_event_that_is_set_later(owned: Any, go: threading.Event) -> None:
    over = threading.Event()
    threading.Thread(target=_sleeps_then_calls, args=(go, over.set)).start()
    while not over.is_set():
        interrupted_soon(go)
    owned.close()


def polls_an_attribute_that_is_set_later(owned: Any, go: threading.Event) -> None:
    looping = Looping(owned, go)
    threading.Thread(target=_sleeps_then_calls, args=(go, looping.stop)).start()
    looping.by_attribute()


def polls_a_property_that_a_timer_changes(owned: Any, go: threading.Event) -> None:
    looping = Looping(owned, go)
    timer = threading.Timer(FAR_SECONDS, looping.stop)
    timer.start()
    try:
        looping.by_property()
    finally:
        timer.cancel()


def polls_what_its_rounds_set(owned: Any, go: threading.Event) -> None:
    Looping(owned, go).by_own_method()


def polls_a_variable_that_a_timer_sets(owned: Any, go: threading.Event) -> None:
    running = True

    def stops() -> None:
        nonlocal running
        running = False

    timer = threading.Timer(FAR_SECONDS, stops)
    timer.start()
    try:
        while running:
            interrupted_soon(go)
        owned.close()
    finally:
        timer.cancel()


def polls_an_item_that_is_set_later(owned: Any, go: threading.Event) -> None:
    flags = {"stop": False}

    def stops() -> None:
        flags["stop"] = True

    threading.Thread(target=_sleeps_then_calls, args=(go, stops)).start()
    while not flags["stop"]:
        interrupted_soon(go)
    owned.close()


def polls_who_sleeps(owned: Any, go: threading.Event) -> None:
    sleeper = threading.Thread(target=lambda: go.wait(FAR_SECONDS))
    sleeper.start()
    while sleeper.is_alive():
        sleeper.join(0.05)
    owned.close()


def polls_a_clock(owned: Any, go: threading.Event) -> None:
    over = threading.Event()
    end = time.monotonic() + FAR_SECONDS
    while not over.is_set() and time.monotonic() < end:
        interrupted_soon(go)
    owned.close()


def waits_for_room_in_a_queue(owned: Any, go: threading.Event) -> None:
    items: queue.Queue[int] = queue.Queue(1)

    def takes() -> None:
        go.wait(FAR_SECONDS)
        items.get()

    items.put(1)
    threading.Thread(target=takes).start()
    items.put(2)
    owned.close()


def _sleeps_then_calls(go: threading.Event, what: Callable[[], object]) -> None:
    go.wait(FAR_SECONDS)
    what()


def _sets_after(go: threading.Event, event: threading.Event) -> None:
    go.wait()
    event.set()


GET_THERE: list[Holder] = [
    closes_by_name,
    sleeps_then_closes, gives_up_then_closes, leaves_its_block, leaves_an_exit_stack, leaves_a_closing,
    leaves_a_generators_block, leaves_the_block_of_a_stub,
    has_an_object_close_it, has_a_function_close_it, closes_several, sets_a_timer, plans_it, waits_for_who_sleeps,
    waits_for_what_somebody_sets, waits_for_an_executor, is_told_by_a_caller, polls_an_event_that_is_set_later,
    polls_an_attribute_that_is_set_later, polls_a_property_that_a_timer_changes, polls_what_its_rounds_set,
    polls_a_variable_that_a_timer_sets, polls_an_item_that_is_set_later, polls_who_sleeps, polls_a_clock,
    waits_for_room_in_a_queue, polls_what_is_set_already, polls_a_state_that_is_reached,
]  # fmt: skip
DO_NOT: list[Holder] = [
    waits_for_ever, sleeps_until_it_is_interrupted, stays_in_its_block, calls_what_never_returns, closes_something_else,
    leaves_the_block_of_something_else, only_tells, waits_for_who_never_ends, waits_for_what_only_a_signal_sets,
    waits_for_what_others_watch, polls_an_event, polls_an_attribute, polls_a_state, polls_a_property, polls_a_method,
    polls_an_item, polls_a_variable, polls_who_never_ends, returns_from_a_poll,
    polls_then_closes,
]  # fmt: skip


@pytest.fixture
def stuck() -> Any:
    stuck = Stuck()
    yield stuck
    stuck.go.set()


@pytest.mark.parametrize("holder", [*GET_THERE, *DO_NOT], ids=lambda one: one.__name__)
def test_who_may_close_the_channel(alone: Callable[..., Agent], stuck: Stuck, holder: Holder) -> None:
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address:
        channel = front.channel(grpc.insecure_channel(address))
        get: Any = channel.unary_unary("/s/Get")
        assert bool(_seen_beside(front, stuck, get, channel, holder)) is (holder in GET_THERE)


class Stopped:
    """A server, and what tests call closing it."""

    def __init__(self, server: grpc.Server) -> None:
        self._server = server

    def close(self) -> None:
        """Stop it."""
        self._server.stop(0)


@pytest.mark.parametrize("holder", [sleeps_then_closes, has_an_object_close_it, waits_for_ever, sleeps_until_it_is_interrupted])
def test_who_may_stop_the_server(alone: Callable[..., Agent], stuck: Stuck, holder: Holder) -> None:
    front, back, client = alone("front"), alone("back"), alone("client")
    with serving(back, Get=stuck) as behind, grpc.insecure_channel(behind) as to_back:
        get: Any = front.channel(to_back).unary_unary("/s/Get")

        def place(request: bytes, context: Any) -> bytes:
            return bytes(get(request))

        with ThreadPoolExecutor(1) as executor:
            server = grpc.server(front.pool(executor), interceptors=[front.server_interceptor()])
            methods: dict[str, Any] = {"Place": grpc.unary_unary_rpc_method_handler(place)}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
            address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            server.start()
            with grpc.insecure_channel(address) as to_front:
                stub: Any = client.channel(to_front).unary_unary("/s/Place")
                seen = _seen_beside(front, stuck, stub, Stopped(server), holder, party="front/Place#")
            server.stop(0).wait()
    assert (seen == ["-"]) is (holder in GET_THERE)


def _seen_beside(
    front: Agent, stuck: Stuck, call: Any, owned: Any, holder: Holder, party: str = "front/thread:caller"
) -> list[str]:
    """The ways out of the stuck ``party`` while a thread runs ``holder``, told by whether they are open."""

    def calls() -> None:
        with contextlib.suppress(grpc.RpcError):
            call(b"")

    def holds() -> None:
        with contextlib.suppress(Ended):
            holder(owned, stuck.go)

    beside = threading.Thread(target=holds, name="holder")
    caller = threading.Thread(target=calls, name="caller")
    caller.start()
    stuck.wait_for_callers()
    beside.start()
    end = time.monotonic() + FAR_SECONDS
    while not _is_at_rest(beside):
        assert time.monotonic() < end
    report = report_when(front, lambda report: any(wait.waiter.startswith(party) for wait in report.waits))
    seen = holders(of(look_at(front, report), party))
    stuck.go.set()
    caller.join()
    beside.join()
    return list(dict.fromkeys(seen))


def _is_at_rest(thread: threading.Thread) -> bool:
    """Whether a thread has come to where it waits."""
    codes = [frame.f_code for frame in frames_of_threads().get(thread.ident or 0, [])]
    return threading.Thread.start.__code__ not in codes and codes[0].co_filename in (threading.__file__, sched.__file__)


# -- on an event loop --------------------------------------------------------------------------------------------------


@pytest.fixture
async def world(alone: Callable[..., Agent]) -> AsyncIterator[LoopWorld]:
    world = LoopWorld(alone("front"), alone("back"))
    await world.start()
    yield world
    await world.stop()


async def later_closes(world: LoopWorld) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await world.channel.close()


async def later_stops(world: LoopWorld) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await world.servers[0].stop(0)


async def cancels_all(world: LoopWorld) -> None:
    await asyncio.sleep(FAR_SECONDS)
    for task in asyncio.all_tasks():
        task.cancel()


async def for_ever(world: LoopWorld) -> None:
    await grpc.aio.server().wait_for_termination()
    await world.channel.close()


async def serves_in_its_block(world: LoopWorld) -> None:
    async with world.channel:
        await grpc.aio.server().wait_for_termination()


async def counts_all(world: LoopWorld) -> None:
    await asyncio.sleep(FAR_SECONDS)
    assert asyncio.all_tasks()


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        *((later_closes, True), (later_stops, True), (cancels_all, True)),
        *((for_ever, False), (serves_in_its_block, False), (counts_all, False)),
    ],
)
async def test_who_may_close_or_stop_or_cancel_on_an_event_loop(
    world: LoopWorld, beside: Callable[[LoopWorld], Any], expected: bool
) -> None:
    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    task = asyncio.create_task(beside(world))
    await asyncio.sleep(0)
    (seen,) = (await world.look(body)).parties
    task.cancel()
    await asyncio.wait([task])
    assert bool(seen.ways_out) is expected, seen.ways_out


async def test_a_timer_may_have_the_channel_closed(world: LoopWorld) -> None:
    closing: list[Any] = []
    timer = asyncio.get_running_loop().call_later(
        FAR_SECONDS, lambda: closing.append(asyncio.create_task(world.channel.close()))
    )

    async def body(world: LoopWorld) -> None:
        await world.stuck(b"")

    (seen,) = (await world.look(body)).parties
    timer.cancel()
    assert holders(seen) == ["-"]


@pytest.mark.parametrize("ends", [True, False])
def test_the_end_of_what_asyncio_runs_cancels_the_other_tasks(alone: Callable[..., Agent], ends: bool) -> None:
    front, back = alone("front"), alone("back")
    seen: list[Any] = []

    async def main(world: LoopWorld) -> None:
        async def body(world: LoopWorld) -> None:
            await world.stuck(b"")

        world.body = body
        await world.start()
        call: Any = world.outside.unary_unary("/t.T/Do")(b"")
        await world.held.acquire()
        looked = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_soon(threading.Thread(target=look, args=(loop, looked)).start)  # once this very task waits
        if ends:
            await asyncio.wait_for(looked.wait(), FAR_SECONDS)
        else:
            await looked.wait()
        world.go.set()
        await call
        await world.stop()

    def look(loop: asyncio.AbstractEventLoop, looked: asyncio.Event) -> None:
        report = report_when(front, lambda report: bool(report.waits))
        seen.append(of(look_at(front, report), "front/Do#"))
        loop.call_soon_threadsafe(looked.set)

    asyncio.run(main(LoopWorld(front, back)))
    assert bool(seen[0].ways_out) is ends, seen[0].ways_out


def test_an_alarm_may_close_the_channel(alone: Callable[..., Agent], stuck: Stuck) -> None:
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address:
        channel = front.channel(grpc.insecure_channel(address))
        before = signal.signal(signal.SIGALRM, lambda *_: channel.close())
        signal.setitimer(signal.ITIMER_REAL, FAR_SECONDS)
        try:
            seen = _seen_beside(front, stuck, channel.unary_unary("/s/Get"), channel, waits_for_ever)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert seen == ["-"]
