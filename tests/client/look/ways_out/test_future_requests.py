"""A future request that would end a wait is doubt, not a way out."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.protocol.requests.look import PartyLook
from tests.client.look.worlds import (
    LoopWorld,
    Stuck,
    handler_of,
    look_at,
    look_at_caller,
    look_in_its_wait,
    of,
    report_when,
    serving,
    task_of,
)

_CALLS: dict[int, Any] = {}
_CONTEXTS: dict[int, Any] = {}
_STACKS: list[ExitStack] = []
_SEEN_SINCE_311 = pytest.mark.skipif(sys.version_info < (3, 11), reason="what an ExitStack holds is seen since 3.11")
_STOP = threading.Event()


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    _CALLS.clear()
    _CONTEXTS.clear()
    _STACKS.clear()
    _STOP.clear()


def calls_and_keeps_it(get: Any) -> None:
    call = _CALLS[0] = get.future(b"")
    call.result()


def cancels(request: bytes, _: Any) -> bytes:
    for call in _CALLS.values():
        call.cancel()
    return request


def cancels_by_a_function(request: bytes, _: Any) -> bytes:
    give_up()
    return request


def give_up() -> None:
    for call in _CALLS.values():
        call.cancel()


def counts(_: bytes, context: Any) -> bytes:
    if not _CALLS:
        context.abort(grpc.StatusCode.NOT_FOUND, "no calls")
    return str(len(_CALLS)).encode()


class Service:
    """A service that keeps its calls, and several methods that may end them."""

    def __init__(self) -> None:
        self.calls: dict[int, Any] = {}

    def fetch(self, get: Any) -> None:
        call = self.calls[0] = get.future(b"")
        call.result()

    def cancels(self, request: bytes, _: Any) -> bytes:
        self.calls[int(request)].cancel()
        return request

    def counts(self, _: bytes, __: Any) -> bytes:
        return str(len(self.calls)).encode()


@pytest.mark.parametrize(("method", "doubtful"), [(cancels, True), (cancels_by_a_function, True), (counts, False)])
def test_a_method_that_cancels_the_calls_of_its_module_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, method: Any, doubtful: bool
) -> None:
    with serving(alone("admin"), Do=method):
        seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    assert not seen.ways_out
    assert ("/s/Do" in seen.doubt) is doubtful, seen.doubt


@pytest.mark.parametrize("doubtful", [True, False])
def test_a_method_of_an_object_that_cancels_its_calls_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, doubtful: bool
) -> None:
    service = Service()
    with serving(alone("admin"), Do=service.cancels if doubtful else service.counts):
        seen = look_at_caller(alone, stuck, service.fetch)
    assert bool(seen.doubt) is doubtful, seen.doubt


def seen_in_a_pool(alone: Callable[..., Agent], stuck: Stuck, workers: int, **methods: Any) -> PartyLook:
    """The look at a handler stuck in a call, one of a pool of ``workers``, whose server also has these methods."""
    front, back = alone("front"), alone("back")

    def do(request: bytes, context: Any) -> bytes:
        _CONTEXTS[0] = context
        calls_and_keeps_it(get)
        return request

    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        with serving(front, workers=workers, Do=do, **methods) as door, grpc.insecure_channel(door) as outside:
            fetch: Any = outside.unary_unary("/s/Do")
            call = fetch.future(b"")
            stuck.wait_for_callers()
            report = report_when(front, lambda report: any(wait.waiter.startswith("front/Do") for wait in report.waits))
            seen = of(look_at(front, report), "front/Do")
            stuck.go.set()
            call.result()
    return seen


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_to_a_pool_that_is_full_of_suspects_comes_too_late(
    alone: Callable[..., Agent], stuck: Stuck, workers: int
) -> None:
    seen = seen_in_a_pool(alone, stuck, workers, Cancel=cancels)
    assert not seen.ways_out
    assert bool(seen.doubt) is (workers > 1), seen.doubt


def aborts(request: bytes, _: Any) -> bytes:
    _CONTEXTS.pop(0).cancel()
    return request


def lists_peers(_: bytes, __: Any) -> bytes:
    return "".join(context.peer() for context in _CONTEXTS.values()).encode()


@pytest.mark.parametrize(("method", "doubtful"), [(aborts, True), (lists_peers, False)])
def test_a_method_that_cancels_the_call_which_another_handler_serves_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, method: Any, doubtful: bool
) -> None:
    seen = seen_in_a_pool(alone, stuck, 2, Abort=method)
    assert not seen.ways_out
    assert ("/s/Abort" in seen.doubt) is doubtful, seen.doubt


def sets_the_event(request: bytes, _: Any) -> bytes:
    _STOP.set()
    return request


def reads_the_event(_: bytes, __: Any) -> bytes:
    return b"1" if _STOP.is_set() else b"0"


def waits_for_the_event() -> None:
    _STOP.wait()
    give_up()


@pytest.mark.parametrize(("method", "doubtful"), [(sets_the_event, True), (reads_the_event, False)])
def test_a_method_that_wakes_a_canceller_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, method: Any, doubtful: bool
) -> None:
    watchdog = threading.Thread(target=waits_for_the_event)
    watchdog.start()
    with serving(alone("admin"), Do=method):
        seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    _STOP.set()
    watchdog.join()
    assert not seen.ways_out
    assert bool(seen.doubt) is doubtful, seen.doubt


_LOCK = threading.Lock()


def gives_back_what_others_have(request: bytes, _: Any) -> bytes:
    if _LOCK.locked():
        _LOCK.release()
    return request


def gives_back_its_own(request: bytes, _: Any) -> bytes:
    _LOCK.acquire()
    try:
        return request
    finally:
        _LOCK.release()


class Carrying:
    """A service that carries the lock."""

    def __init__(self) -> None:
        self.lock = _LOCK

    def gives_back_its_own(self, request: bytes, _: Any) -> bytes:
        self.lock.acquire()
        try:
            return request
        finally:
            self.lock.release()

    def tries_and_gives_back_its_own(self, request: bytes, _: Any) -> bytes:
        if not self.lock.acquire(timeout=1):
            return b"busy"
        try:
            return request
        finally:
            self.lock.release()

    def gives_back_what_others_have(self, request: bytes, _: Any) -> bytes:
        self.lock.release()
        return request


def enters_a_stack_of_its_own(request: bytes, _: Any) -> bytes:
    with ExitStack() as stack:
        stack.enter_context(_LOCK)
        return request


def closes_the_stack_of_another(request: bytes, _: Any) -> bytes:
    _STACKS.pop().close()
    return request


@contextmanager
def held() -> Iterator[None]:
    _LOCK.acquire()
    try:
        yield
    finally:
        _LOCK.release()


def holds_it_by_a_function(request: bytes, _: Any) -> bytes:
    with held():
        return request


def gives_back_by_a_function(request: bytes, _: Any) -> bytes:
    give_back()
    return request


def give_back() -> None:
    _LOCK.release()


def decorated(method: Any) -> Any:
    @functools.wraps(method)
    def run(request: bytes, context: Any) -> Any:
        return method(request, context)

    return run


def look_at_a_waiter(alone: Callable[..., Agent], stuck: Stuck, *, keeps_its_stack: bool = False) -> PartyLook:
    """The look at a thread that waits for the lock, which another holds that is stuck in a call."""
    front, back = alone("front"), alone("back")

    def holds(get: Any) -> None:
        with ExitStack() as stack:
            stack.enter_context(_LOCK)
            _STACKS.append(stack)
            get(b"")

    def holds_it_itself(get: Any) -> None:
        with _LOCK:
            get(b"")

    def wants() -> None:
        with _LOCK:
            pass

    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        holder = threading.Thread(target=holds if keeps_its_stack else holds_it_itself, args=(get,), name="holder")
        holder.start()
        stuck.wait_for_callers()
        waiter = threading.Thread(target=wants, name="waiter")
        waiter.start()
        seen = look_in_its_wait(front, "front/thread:waiter")
        stuck.go.set()
        holder.join()
        waiter.join()
    return seen


@pytest.mark.parametrize(
    ("method", "doubtful"),
    [
        (gives_back_what_others_have, True),
        (gives_back_its_own, False),
        (Carrying().gives_back_its_own, False),
        (Carrying().tries_and_gives_back_its_own, False),
        (decorated(Carrying().gives_back_its_own), False),
        (Carrying().gives_back_what_others_have, True),
        (decorated(Carrying().gives_back_what_others_have), True),
        (enters_a_stack_of_its_own, False),
        pytest.param(closes_the_stack_of_another, True, marks=_SEEN_SINCE_311),
        (holds_it_by_a_function, False),
        (gives_back_by_a_function, True),
    ],
)
def test_a_method_that_releases_a_lock_it_has_not_taken_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, method: Any, doubtful: bool
) -> None:
    with serving(alone("admin"), Do=method):
        seen = look_at_a_waiter(alone, stuck, keeps_its_stack=method is closes_the_stack_of_another)
    assert bool(seen.doubt) is doubtful, seen.doubt


class Unlocking(grpc.ServerInterceptor):
    """Releases the lock for some requests."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """gRPC's interface."""
        if handler_call_details.method == "/s/Unlock":
            _LOCK.release()
        return continuation(handler_call_details)


class Locking(grpc.ServerInterceptor):
    """Takes the lock for each request."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """gRPC's interface."""
        _LOCK.acquire()
        try:
            return continuation(handler_call_details)
        finally:
            _LOCK.release()


@pytest.mark.parametrize(("kind", "doubtful"), [(Unlocking, True), (Locking, False)])
def test_an_interceptor_of_a_server_that_releases_a_lock_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, kind: type[grpc.ServerInterceptor], doubtful: bool
) -> None:
    server = grpc.server(ThreadPoolExecutor(1), interceptors=[alone("admin").server_interceptor(), kind()])
    server.add_insecure_port("127.0.0.1:0")
    server.start()
    seen = look_at_a_waiter(alone, stuck)
    server.stop(0)
    assert bool(seen.doubt) is doubtful, seen.doubt


async def aborts_on_a_loop(request: bytes, _: Any) -> bytes:
    await _CONTEXTS[0].abort(grpc.StatusCode.ABORTED, "by an operator")
    return request


async def writes_on_a_loop(request: bytes, _: Any) -> bytes:
    for context in _CONTEXTS.values():
        await context.write(request)
    return request


async def aborts_itself(request: bytes, context: Any) -> bytes:
    if not request:
        await context.abort(grpc.StatusCode.NOT_FOUND, "nothing")
    return request


async def lists_peers_on_a_loop(_: bytes, __: Any) -> bytes:
    return "".join(context.peer() for context in _CONTEXTS.values()).encode()


@pytest.mark.parametrize(
    ("method", "doubtful"),
    [(aborts_on_a_loop, True), (writes_on_a_loop, True), (aborts_itself, False), (lists_peers_on_a_loop, False)],
)
async def test_a_method_on_a_loop_that_answers_the_caller_of_another_call_is_doubt(
    world: LoopWorld, method: Any, doubtful: bool
) -> None:
    admin = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(method)
    admin.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"Do": handler}),))
    admin.add_insecure_port("127.0.0.1:0")
    await admin.start()
    world.on_context = lambda context: _CONTEXTS.update({0: context})
    seen = handler_of(await world.look(lambda world: world.stuck(b"")))
    await admin.stop(0)
    assert ("/s/Do" in seen.doubt) is doubtful, seen.doubt


async def writes_a_request(request: bytes, _: Any) -> bytes:
    await _CALLS[0].write(request)
    return request


async def ends_the_requests(request: bytes, _: Any) -> bytes:
    await _CALLS[0].done_writing()
    return request


async def tells_its_state(_: bytes, __: Any) -> bytes:
    return str(_CALLS[0].done()).encode()


@pytest.mark.parametrize(
    ("method", "doubtful"), [(writes_a_request, True), (ends_the_requests, True), (tells_its_state, False)]
)
async def test_a_method_on_a_loop_that_writes_the_requests_of_another_call_is_doubt(
    world: LoopWorld, method: Any, doubtful: bool
) -> None:
    call = _CALLS[0] = world.upload()
    begin = call.write

    async def body(world: LoopWorld) -> None:
        await begin(b"")
        world.held.release()  # as the method that holds the call: the request may arrive before it is written
        await _CALLS[0]

    del call
    admin = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(method)
    admin.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"Do": handler}),))
    admin.add_insecure_port("127.0.0.1:0")
    await admin.start()
    seen = handler_of(await world.look(body, stuck=2))
    await admin.stop(0)
    assert ("/s/Do" in seen.doubt) is doubtful, seen.doubt


_JOBS: set[Any] = set()


@pytest.mark.parametrize("doubtful", [True, False])
async def test_a_method_on_a_loop_that_cancels_jobs_is_doubt(world: LoopWorld, doubtful: bool) -> None:
    async def cancel(request: bytes, _: Any) -> bytes:
        for job in _JOBS:
            job.cancel()
        return request

    async def count(_: bytes, __: Any) -> bytes:
        return str(len(_JOBS)).encode()

    admin = grpc.aio.server()
    method: Any = grpc.unary_unary_rpc_method_handler(cancel if doubtful else count)
    del cancel
    admin.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"Do": method}),))
    admin.add_insecure_port("127.0.0.1:0")
    await admin.start()

    async def body(world: LoopWorld) -> None:
        job = asyncio.ensure_future(world.stuck(b""))
        _JOBS.add(job)
        job.add_done_callback(_JOBS.discard)
        await job

    del method
    seen = task_of(await world.look(body))
    await admin.stop(0)
    assert bool(seen.doubt) is doubtful, seen.doubt
