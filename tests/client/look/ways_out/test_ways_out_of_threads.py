"""Ways out of a thread's wait that only a second look finds, each with a near miss that has none."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.protocol.requests.look import PartyLook
from stilltrue.runtime.waits.resolvers import executors
from tests.client.look.worlds import (
    Stuck,
    holders,
    look_at,
    look_at_caller,
    look_in_its_wait,
    of,
    report_of,
    report_when,
    serving,
)

FAR_SECONDS = 60.0


def test_nothing_ends_the_result_of_a_future(alone: Callable[..., Agent], stuck: Stuck) -> None:
    seen = look_at_caller(alone, stuck, lambda get: get.future(b"").result())
    assert (seen.unchanged, seen.ways_out, seen.doubt, seen.deadline) == (True, (), "", None)


def test_a_timer_thread_that_cancels_is_a_way_out(alone: Callable[..., Agent], stuck: Stuck) -> None:
    def caller(get: Any) -> None:
        call = get.future(b"")
        timer = threading.Timer(FAR_SECONDS, call.cancel)
        timer.start()
        call.result()
        timer.cancel()

    assert "-" in holders(look_at_caller(alone, stuck, caller))


def test_a_timer_thread_for_something_else_is_not_a_way_out(alone: Callable[..., Agent], stuck: Stuck) -> None:
    def caller(get: Any) -> None:
        timer = threading.Timer(FAR_SECONDS, stuck.go.set)
        timer.start()
        get.future(b"").result()
        timer.cancel()

    assert holders(look_at_caller(alone, stuck, caller)) == []


def test_a_thread_that_holds_the_call_is_a_way_out(alone: Callable[..., Agent], stuck: Stuck) -> None:
    def caller(get: Any) -> None:
        call = get.future(b"")

        def watch() -> None:
            stuck.go.wait(FAR_SECONDS)
            call.done()

        watcher = threading.Thread(target=watch)
        watcher.start()
        call.result()
        watcher.join()

    assert "-" in holders(look_at_caller(alone, stuck, caller))


@pytest.mark.parametrize(("timeout", "expected"), [(FAR_SECONDS, ["thread:watcher"]), (None, [])])
def test_a_thread_that_waits_for_the_same_call_is_a_way_out_if_it_goes_on_earlier(
    alone: Callable[..., Agent], stuck: Stuck, timeout: float | None, expected: list[str]
) -> None:
    front, back = alone("front"), alone("back")

    def watch(call: Any) -> None:
        try:
            call.exception(timeout=timeout)
        except grpc.FutureTimeoutError:
            call.cancel()

    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        call = get.future(b"")
        both = [
            threading.Thread(target=call.result, name="caller"),
            threading.Thread(target=watch, args=(call,), name="watcher"),
        ]
        for thread in both:
            thread.start()
        report = report_when(front, lambda report: len({wait.waiter for wait in report.waits}) == len(both))
        look = look_at(front, report)
        stuck.go.set()
        for thread in both:
            thread.join()
    assert holders(of(look, "front/thread:caller")) == expected
    assert holders(of(look, "front/thread:watcher")) == []


class Janitor(threading.Thread):
    """A thread of an application class that has calls in an object."""

    def __init__(self, go: threading.Event, calls: Any) -> None:
        super().__init__(daemon=True)
        self.go, self.open = go, SimpleNamespace(calls=calls)

    def run(self) -> None:
        if not self.go.wait(FAR_SECONDS):
            self.sweep()

    def sweep(self) -> None:
        """Cancel them."""
        for call in self.open.calls:
            call.cancel()


class Teller(Janitor):
    """The same, but it only counts."""

    def sweep(self) -> None:
        assert self.open.calls


@pytest.mark.parametrize(("kind", "expected"), [(Janitor, True), (Teller, False)])
def test_a_thread_subclass_may_cancel_the_calls_it_holds(
    alone: Callable[..., Agent], stuck: Stuck, kind: type[Janitor], expected: bool
) -> None:
    beside: list[Janitor] = []

    def caller(get: Any) -> None:
        call = get.future(b"")
        beside.append(kind(stuck.go, [call]))
        beside[0].start()
        call.result()

    found = holders(look_at_caller(alone, stuck, caller))
    beside[0].join()
    assert ("-" in found) is expected


def test_the_end_of_another_call_may_cancel_this_one(alone: Callable[..., Agent], stuck: Stuck) -> None:
    def caller(get: Any) -> None:
        first, second = get.future(b"1"), get.future(b"2")
        first.add_done_callback(lambda _: second.cancelled())
        second.result()
        first.result()

    assert holders(look_at_caller(alone, stuck, caller, calls=2)) == ["-"]


def test_a_signal_interrupts_the_main_thread_alone(alone: Callable[..., Agent], stuck: Stuck) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, FAR_SECONDS)
    try:
        assert holders(look_at_caller(alone, stuck, lambda get: get(b""))) == []
        front, back = alone("front2"), alone("back2")
        stuck.go.clear()
        seen: list[PartyLook] = []

        def looks() -> None:
            stuck.wait_for_callers()
            seen.append(of(look_at(front, report_of(front)), "front2/thread:MainThread"))
            stuck.go.set()

        threading.Thread(target=looks).start()
        with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
            get: Any = front.channel(channel).unary_unary("/s/Get")
            get(b"")
        assert "SIGALRM" in seen[0].ways_out[0].text
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_timer_may_close_an_object_that_cancels_the_call(alone: Callable[..., Agent], stuck: Stuck) -> None:
    def caller(get: Any) -> None:
        call = get.future(b"")
        closing = contextlib.ExitStack()
        closing.callback(call.cancel)
        timer = threading.Timer(FAR_SECONDS, closing.close)
        timer.start()
        call.result()
        timer.cancel()

    assert holders(look_at_caller(alone, stuck, caller)) == ["-"]


def test_the_handler_of_an_alarm_may_cancel_the_call_of_any_thread(alone: Callable[..., Agent], stuck: Stuck) -> None:
    calls: list[Any] = []
    before = signal.signal(signal.SIGALRM, lambda *_: calls[0].cancel())
    signal.setitimer(signal.ITIMER_REAL, FAR_SECONDS)

    def caller(get: Any) -> None:
        calls.append(get.future(b""))
        calls[0].result()

    try:
        seen = look_at_caller(alone, stuck, caller)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert any("SIGALRM" in way.text for way in seen.ways_out)


@pytest.mark.parametrize("passes_on", [True, False])
def test_a_context_that_passes_a_cancellation_on_makes_its_thread_interruptible(
    alone: Callable[..., Agent], stuck: Stuck, passes_on: bool
) -> None:
    front, back, client = alone("front"), alone("back"), alone("client")
    with serving(back, Get=stuck) as behind, grpc.insecure_channel(behind) as to_back:
        get: Any = front.channel(to_back).unary_unary("/s/Get")

        def place(request: bytes, context: Any) -> bytes:
            call = get.future(request)
            context.add_callback(call.cancel if passes_on else stuck.go.is_set)
            return bytes(call.result())

        with serving(front, Place=place) as address, grpc.insecure_channel(address) as to_front:
            stub: Any = client.channel(to_front).unary_unary("/s/Place")
            outer = stub.future(b"", timeout=FAR_SECONDS)
            stuck.wait_for_callers()
            report = report_when(front, lambda report: bool(report.waits))
            seen = of(look_at(front, report), "front/Place#")
            assert seen.interruptible is passes_on
            assert (seen.deadline is not None) is passes_on
            assert seen.ways_out == ()
            stuck.go.set()
            assert outer.result() == b""


@pytest.mark.parametrize("passes_on", [True, False])
def test_a_caller_without_an_agent_may_hang_up_where_the_context_passes_that_on(
    alone: Callable[..., Agent], stuck: Stuck, passes_on: bool
) -> None:
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as behind, grpc.insecure_channel(behind) as to_back:
        get: Any = front.channel(to_back).unary_unary("/s/Get")

        def place(request: bytes, context: Any) -> bytes:
            call = get.future(request)
            context.add_callback(call.cancel if passes_on else stuck.go.is_set)
            return bytes(call.result())

        with serving(front, Place=place) as address, grpc.insecure_channel(address) as outside:
            stub: Any = outside.unary_unary("/s/Place")
            outer = stub.future(b"")
            stuck.wait_for_callers()
            report = report_when(front, lambda report: bool(report.waits))
            seen = of(look_at(front, report), "front/Place#")
            stuck.go.set()
            assert outer.result() == b""
    assert holders(seen) == (["-"] if passes_on else [])


def give_up(go: threading.Event, contexts: list[Any]) -> None:
    """Cancel the served calls, later."""
    go.wait(FAR_SECONDS)
    for context in contexts:
        context.cancel()


def report_on(go: threading.Event, contexts: list[Any]) -> None:
    """Count them."""
    go.wait(FAR_SECONDS)
    assert sum(context.is_active() for context in contexts) < len(contexts) + 1


@pytest.mark.parametrize("asked_for", ["a reply", "the first item", "an item for a request", "a reply to all requests"])
@pytest.mark.parametrize(("reap", "expected"), [(give_up, ["-"]), (report_on, [])])
def test_a_canceller_of_the_call_that_a_thread_serves_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, reap: Callable[..., None], expected: list[str], asked_for: str
) -> None:
    front, back, client = alone("front"), alone("back"), alone("client")
    served: list[Any] = []
    with serving(back, Get=stuck) as behind, grpc.insecure_channel(behind) as to_back:
        get: Any = front.channel(to_back).unary_unary("/s/Get")

        def place(request: Any, context: Any) -> bytes:
            served.append(context)
            return bytes(get(b"".join([request] if type(request) is bytes else request)))

        def items(request: Any, context: Any) -> Iterator[bytes]:
            yield place(request, context)

        def item_for_each(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            for request in requests:
                yield place(request, context)

        kind, behaviour, request = {
            "a reply": ("unary_unary", place, b""),
            "the first item": ("unary_stream", items, b""),
            "an item for a request": ("stream_stream", item_for_each, iter([b""])),
            "a reply to all requests": ("stream_unary", place, iter([b""])),
        }[asked_for]
        reaper = threading.Thread(target=reap, args=(stuck.go, served))
        reaper.start()
        with serving(front, Place=(kind, behaviour)) as address, grpc.insecure_channel(address) as to_front:
            stub: Any = getattr(client.channel(to_front), kind)("/s/Place")
            outer = stub(request) if kind.endswith("stream") else stub.future(request)
            stuck.wait_for_callers()
            seen = of(look_at(front, report_when(front, lambda report: bool(report.waits))), "front/Place#")
            stuck.go.set()
            reaper.join()
            outer.cancel()  # unless it has been cancelled
    assert holders(seen) == expected


@pytest.mark.parametrize(("reap", "expected"), [(give_up, ["-"]), (report_on, [])])
@pytest.mark.parametrize("kind", ["stream_unary", "stream_stream"])
def test_a_canceller_of_a_call_whose_thread_waits_for_a_request_is_a_way_out(
    alone: Callable[..., Agent], kind: str, reap: Callable[..., None], expected: list[str]
) -> None:
    front, client, go = alone("front"), alone("client"), threading.Event()
    served: list[Any] = []

    def take(requests: Iterator[bytes], context: Any) -> bytes:
        served.append(context)
        return b"".join(requests)

    def takes(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield take(requests, context)

    def no_requests() -> Iterator[bytes]:
        go.wait(FAR_SECONDS)
        yield from ()

    reaper = threading.Thread(target=reap, args=(go, served))
    reaper.start()
    behaviour = take if kind == "stream_unary" else takes
    with serving(front, Take=(kind, behaviour)) as address, grpc.insecure_channel(address) as channel:
        stub: Any = getattr(client.channel(channel), kind)("/s/Take")
        outer = stub.future(no_requests()) if kind == "stream_unary" else stub(no_requests())
        seen = look_in_its_wait(front, "front/Take#")
        go.set()
        reaper.join()
        outer.cancel()  # unless it has been cancelled
    assert holders(seen) == expected


def test_a_stopping_threaded_server_ends_its_calls(alone: Callable[..., Agent], stuck: Stuck) -> None:
    front, back, client = alone("front"), alone("back"), alone("client")
    with serving(back, Get=stuck) as behind, grpc.insecure_channel(behind) as to_back:
        get: Any = front.channel(to_back).unary_unary("/s/Get")

        def place(request: bytes, context: Any) -> bytes:
            return bytes(get(request))

        server = grpc.server(front.pool(ThreadPoolExecutor(1)), interceptors=[front.server_interceptor()])
        methods: dict[str, Any] = {"Place": grpc.unary_unary_rpc_method_handler(place)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with grpc.insecure_channel(address) as to_front:
            stub: Any = client.channel(to_front).unary_unary("/s/Place")
            outer = stub.future(b"")
            stuck.wait_for_callers()
            report = report_of(front)
            before = of(look_at(front, report), "front/Place#")
            stopped = server.stop(FAR_SECONDS)
            report_after = report_of(front)
            after = of(look_at(front, report_after), "front/Place#")
            stuck.go.set()
            assert outer.result() == b""
            stopped.wait()
        assert (before.ways_out, before.deadline) == ((), None)
        assert after.ways_out == ()
        assert after.deadline is not None  # the end of the grace period
        assert after.deadline > time.time() + FAR_SECONDS / 2
        ends = [wait.deadline is not None for one in (report, report_after) for wait in one.waits]
        assert ends == [False, True]  # known at the cut, since a party that was looked at is not looked at again soon


@pytest.mark.parametrize("ended", [False, True])
def test_the_iterator_of_a_threads_request_stream_may_fail(alone: Callable[..., Agent], stuck: Stuck, ended: bool) -> None:
    front, back = alone("front"), alone("back")

    def feeds() -> Iterator[bytes]:
        yield b"1"
        if not ended:
            stuck.go.wait(FAR_SECONDS)

    def upload(requests: Any, context: Any) -> bytes:
        return bytes(stuck(next(requests), context))

    with serving(back, Upload=("stream_unary", upload)) as address, grpc.insecure_channel(address) as channel:
        stub: Any = front.channel(channel).stream_unary("/s/Upload")
        thread = threading.Thread(target=lambda: stub(feeds()), name="caller")
        thread.start()
        stuck.wait_for_callers()
        settled = "its requests" if ended else "feeds"
        end = time.monotonic() + FAR_SECONDS
        while time.monotonic() < end:
            seen = of(look_at(front, report_of(front)), "front/thread:caller")
            if not seen.doubt and bool(seen.ways_out) is not ended:
                break  # until then gRPC is sending the first request: doubt
            assert not seen.doubt or "requests" in seen.doubt
        assert not any(settled in way.text for way in seen.ways_out) or not ended
        assert [("feeds" in way.text, way.party) for way in seen.ways_out] == ([] if ended else [(True, None)])
        stuck.go.set()
        thread.join()


@pytest.mark.parametrize(("rest", "ends"), [("", False), ("jobs.shutdown(cancel_futures=True)", True)])
def test_a_module_that_waits_for_the_end_of_its_server_does_not_end_the_items_of_its_executor(
    alone: Callable[..., Agent], stuck: Stuck, rest: str, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_codes_of_modules", list)  # other tests' modules mention cancel_futures
    agent, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel, ThreadPoolExecutor(1) as jobs:
        server = grpc.server(ThreadPoolExecutor(1))
        server.start()
        module = compile(f"server.wait_for_termination()\n{rest}", __file__, "exec")
        main = threading.Thread(target=exec, args=(module, {"jobs": jobs, "server": server}))
        main.start()
        get: Any = agent.channel(channel).unary_unary("/s/Get")
        jobs.submit(get, b"")
        stuck.wait_for_callers()
        waiter = threading.Thread(target=lambda: jobs.submit(int).result(), name="waiter")
        waiter.start()
        report = report_when(agent, lambda report: any(wait.waiter == "front/thread:waiter" for wait in report.waits))
        seen = of(look_at(agent, report), "front/thread:waiter")
        stuck.go.set()
        waiter.join()
        server.stop(0)
        main.join()
    assert ("-" in holders(seen)) is ends, seen.ways_out


@pytest.mark.parametrize(("waits", "ends"), [("server.wait_for_termination()", False), (f"go.wait({FAR_SECONDS})", True)])
def test_an_exit_handler_that_cancels_is_a_way_out_if_its_module_goes_on(
    alone: Callable[..., Agent], stuck: Stuck, waits: str, ends: bool
) -> None:
    calls: list[Any] = []
    server, go = grpc.server(ThreadPoolExecutor(1)), threading.Event()
    server.start()

    def cleanup() -> None:
        for call in calls:
            call.cancel()

    def caller(get: Any) -> None:
        calls.append(get.future(b""))
        calls[0].result()

    names = {"atexit": atexit, "calls": calls, "cleanup": cleanup, "go": go, "server": server}
    module = compile(f"atexit.register(cleanup)\n{waits}", __file__, "exec")
    main = threading.Thread(target=exec, args=(module, names))
    main.start()
    seen = look_at_caller(alone, stuck, caller)
    atexit.unregister(cleanup)
    server.stop(0)
    go.set()
    main.join()
    assert ("-" in holders(seen)) is ends, seen.ways_out


@pytest.mark.parametrize(("after", "ends"), [("", False), ("drop()", True)])
def test_what_a_coroutine_names_is_not_ahead_of_the_module_whose_loop_runs_it(
    alone: Callable[..., Agent], stuck: Stuck, after: str, ends: bool
) -> None:
    """The coroutine's task is an actor of its own, and has its handlers behind it."""
    calls: list[Any] = []
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def drop() -> None:
        for call in calls:
            call.cancel()

    async def main() -> None:
        loops.append((asyncio.get_running_loop(), asyncio.Event()))
        handlers = {"drop": drop}
        del handlers
        await loops[0][1].wait()

    def caller(get: Any) -> None:
        calls.append(get.future(b""))
        calls[0].result()

    names = {"asyncio": asyncio, "calls": calls, "drop": drop, "main": main}
    module = compile(f"asyncio.run(main())\n{after}", __file__, "exec")
    runs = threading.Thread(target=exec, args=(module, names))
    runs.start()
    seen = look_at_caller(alone, stuck, caller)
    loops[0][0].call_soon_threadsafe(loops[0][1].set)
    runs.join()
    assert ("-" in holders(seen)) is ends, seen.ways_out


class Housekeeping:
    """Works under a lock now and then, on a thread of its own."""

    def __init__(self, go: threading.Event) -> None:
        self.go = go
        self.lock = threading.Lock()
        self.rounds = 0

    def takes_it(self) -> None:
        """Release the lock that it has acquired itself."""
        while not self.go.wait(FAR_SECONDS):
            self.lock.acquire()
            try:
                self.rounds += 1
            finally:
                self.lock.release()

    def frees_it(self) -> None:
        """Release the lock, whoever holds it."""
        while not self.go.wait(FAR_SECONDS):
            self.lock.release()


@pytest.mark.parametrize(("job", "may_end"), [(Housekeeping.takes_it, False), (Housekeeping.frees_it, True)])
def test_a_thread_that_takes_a_lock_later_on_is_not_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, job: Any, may_end: bool
) -> None:
    front, back = alone("front"), alone("back")
    housekeeping = Housekeeping(stuck.go)

    def holds(get: Any) -> None:
        with housekeeping.lock:
            get(b"")

    def wants() -> None:
        with housekeeping.lock:
            pass

    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        others = [threading.Thread(target=job.__get__(housekeeping)), threading.Thread(target=holds, args=(get,))]
        for one in others:
            one.start()
        stuck.wait_for_callers()
        waiter = threading.Thread(target=wants, name="waiter")
        waiter.start()
        seen = look_in_its_wait(front, "front/thread:waiter")
        stuck.go.set()
        for one in (*others, waiter):
            one.join()
    assert bool(seen.ways_out) is may_end, seen.ways_out
