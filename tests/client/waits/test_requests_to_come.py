"""What the methods of a server lead to: requests to come reach it, unless no method ends the wait or no worker is free."""

from __future__ import annotations

import asyncio
import functools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.runtime import compat
from stilltrue.runtime.compat import value_stack
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability import requests, thread_waits
from stilltrue.runtime.waits.reachability.awaited_objects import awaited_in
from stilltrue.runtime.waits.reachability.names import mentions

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not value_stack._can_read(), reason="this interpreter's frames cannot be read"),
]

PATIENCE_SECONDS = 30.0
ATTEMPTS, PAUSE_SECONDS = 40, 0.2
Behaviour = Callable[[bytes, Any], bytes]
_LEFT: list[threading.Thread] = []
"""The threads that were there before the test, and its own. A new thread may have the number of one that has ended."""


class Desk:
    """Keeps the events for which its callers wait; each caller waits for one."""

    def __init__(self) -> None:
        self.pending: dict[bytes, Any] = {}
        self.box: queue.Queue[Any] = queue.Queue()
        self.kept: list[Any] = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.keep_running, daemon=True)

    def ask(self, request: bytes, context: Any) -> bytes:
        event = self.pending[request] = threading.Event()
        event.wait()
        return request

    def ask_until_hung_up(self, request: bytes, context: Any) -> bytes:
        event = self.pending[request] = threading.Event()

        def hang_up() -> None:
            event.set()

        context.add_callback(hang_up)
        event.wait()
        return request

    def ask_by_a_method(self, request: bytes, context: Any) -> bytes:
        event = threading.Event()
        self.pending[request] = event.set
        event.wait()
        return request

    def ask_for_a_future(self, request: bytes, context: Any) -> bytes:
        future = self.pending[request] = Future[None]()
        future.result()
        return request

    def ask_a_loop(self, request: bytes, context: Any) -> bytes:
        future = self.pending[request] = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop)
        future.result()
        return request

    def keep_running(self) -> None:
        self.loop.run_forever()

    def run_loop(self, request: bytes, context: Any) -> bytes:
        self.loop.run_until_complete(asyncio.sleep(0))
        return request

    def begin_loop(self, request: bytes, context: Any) -> bytes:
        self.thread.start()
        return request

    def count(self, request: bytes, context: Any) -> bytes:
        return b"%d" % len(self.pending)

    def count_kinds(self, request: bytes, context: Any) -> bytes:
        return b"%d" % len(set(map(type, self.pending.values())))

    def answer(self, request: bytes, context: Any) -> bytes:
        self.pending[request].set()
        return request

    def serve_by_name(self, request: bytes, context: Any) -> bytes:
        return bytes(getattr(self, "do_" + request.decode())(request))

    def do_answer(self, request: bytes) -> bytes:
        self.pending[request].set()
        return request

    def complete(self, request: bytes, context: Any) -> bytes:
        self.kept[0].set_result(None)
        return request

    def hand_on(self, request: bytes, context: Any) -> bytes:
        self.box.put(self.pending[request])
        return request


class Releases(grpc.ServerInterceptor):
    """Sets the events for any request."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        for one in self.desk.kept:
            one.set()
        return continuation(details)


def end_all(desk: Desk) -> None:
    for one in list(desk.pending.values()):
        one.set_result(None) if isinstance(one, Future) else getattr(one, "set", one)()


@pytest.fixture(autouse=True)
def only_the_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out others' functions and threads, and suspended generators, such as fixtures that set an event at their end."""
    own = [one for one in vars(Desk).values() if callable(one)]
    monkeypatch.setattr(requests, "census", lambda: (own, []))
    monkeypatch.setattr(requests, "SECONDS_MAX", PATIENCE_SECONDS)
    _LEFT[:] = compat.threads().values()


@contextmanager
def asking(
    agent: Agent,
    desk: Desk,
    ask: str = "ask",
    callers: int = 1,
    interceptors: Iterable[Any] = (),
    attempts: int = ATTEMPTS,
    **methods: Behaviour,
) -> Iterator[set[str] | None]:
    """The names of the threads that are proved to be able to end a caller's wait, the test's own left out.

    The server has two workers. ``attempts``: one where nothing is proved, however often it is tried.
    """
    every = {"Ask": getattr(desk, ask), **methods}
    handlers: dict[str, Any] = {name: grpc.unary_unary_rpc_method_handler(behaviour) for name, behaviour in every.items()}
    with ThreadPoolExecutor(2) as executor:
        server = grpc.server(agent.pool(executor), interceptors=[agent.server_interceptor(), *interceptors])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", handlers),))
        with grpc.insecure_channel(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}") as channel:
            server.start()
            asks: Any = channel.unary_unary("/s/Ask")
            calls = [asks.future(b"%d" % number) for number in range(callers)]
            try:
                yield reaching(until_waiting(callers)[0], attempts)
            finally:
                end_all(desk)
                for call in calls:
                    call.result(PATIENCE_SECONDS)
        server.stop(0).wait()


def until_waiting(count: int) -> list[int]:
    """The threads that wait for an event in a method of :class:`Desk`, once there are so many."""
    end, left = time.monotonic() + PATIENCE_SECONDS, {one.ident for one in _LEFT}
    while time.monotonic() < end:
        every = [pair for pair in frames_of_threads().items() if pair[0] not in left]
        found = [one for one, frames in every if (awaited := awaited_in(one, frames)) and is_event(awaited.thing)]
        if len(found) == count:
            return found
        time.sleep(0.01)
    raise AssertionError("they do not wait")


def is_event(thing: Any) -> bool:
    return type(thing) in (threading.Event, Future)


def reaching(ident: int, attempts: int) -> set[str] | None:
    awaited = awaited_in(ident, frames_of_threads()[ident])
    assert awaited is not None
    thing, proof = OwnRef(awaited.thing), None
    for attempt in range(attempts):  # a thread that is in the middle of something is doubt, and agents try again
        time.sleep(PAUSE_SECONDS if attempt and proof is None else 0.0)
        proof = proof or thread_waits.proved({ident: thing}, time.thread_time() + PATIENCE_SECONDS).get(ident)
    found = [] if proof is None else [compat.threads()[one] for one in proof.threads]
    return None if proof is None else {one.name.partition("_0")[0] for one in found if one not in _LEFT}


def test_a_method_that_does_not_end_the_wait_is_no_way_to_end_it(alone: Callable[..., Agent]) -> None:
    desk = Desk()
    with asking(alone("front"), desk, Count=desk.count) as reached:
        assert reached == set()


def test_nor_is_one_that_makes_a_set(alone: Callable[..., Agent]) -> None:
    desk = Desk()
    with asking(alone("front"), desk, Count=desk.count_kinds) as reached:
        assert reached == set()


@pytest.mark.parametrize("method", ["answer", "serve_by_name", "complete"])
def test_a_method_that_ends_the_wait_makes_it_unknown(alone: Callable[..., Agent], method: str) -> None:
    """Also one that calls another by a computed name, or completes a future, which calls its callbacks."""
    desk = Desk()
    with asking(alone("front"), desk, attempts=4, Answer=getattr(desk, method)) as reached:  # one may fail beside other tests
        assert reached is None


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("getattr(one, 'se' + kind)()", True),
        ("getattr(one, f'{kind}t')()", True),
        ("getattr(one, 'size_' + kind)()", False),
        ("getattr(one, 'size')('s')", False),
    ],
)
def test_a_name_that_is_put_together_may_be_one_that_begins_or_ends_so(text: str, ends: bool) -> None:
    names: dict[str, Any] = {}
    exec(compile(f"def call(one, kind): {text}", str(Path(__file__).with_name("made.py")), "exec"), names)
    assert mentions.may_end(names["call"], frozenset({"set"})) is ends


def test_what_reads_the_requests_of_a_method_may_end_the_wait() -> None:
    def parse(data: bytes) -> bytes:
        return data

    handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, context: request, request_deserializer=parse)
    server = SimpleNamespace(interceptor_pipeline=None, generic_handlers=[], registered_method_handlers={"/s/Answer": handler})
    assert parse in [one for _, one in compat.methods_of_server(server)]


def test_a_future_is_reached_like_an_event(alone: Callable[..., Agent]) -> None:
    desk = Desk()
    with asking(alone("front"), desk, "ask_for_a_future", callers=2) as reached:
        assert reached is not None
        assert len(reached) == 1


def test_a_loop_that_no_method_runs_is_no_way_to_end_the_wait(alone: Callable[..., Agent]) -> None:
    desk = Desk()
    with asking(alone("front"), desk, "ask_a_loop", Count=desk.count) as reached:
        assert reached == set()


@pytest.mark.parametrize("method", ["run_loop", "begin_loop"])
def test_a_method_that_runs_the_loop_makes_it_unknown(alone: Callable[..., Agent], method: str) -> None:
    desk = Desk()
    with asking(alone("front"), desk, "ask_a_loop", attempts=1, Run=getattr(desk, method)) as reached:
        assert reached is None


def test_so_does_a_kept_method_of_the_loop(alone: Callable[..., Agent]) -> None:
    desk = Desk()
    run: Any = asyncio.BaseEventLoop.run_forever
    desk.kept.append(functools.partial(run, desk.loop))
    with asking(alone("front"), desk, "ask_a_loop", attempts=1, Count=desk.count) as reached:
        assert reached is None


def test_while_all_workers_are_busy_they_stand_for_the_requests_to_come(alone: Callable[..., Agent]) -> None:
    desk = Desk()
    with asking(alone("front"), desk, callers=2, Answer=desk.answer) as reached:
        assert reached is not None
        assert len(reached) == 1
        assert reached.pop().startswith("ThreadPoolExecutor")


def test_a_thread_that_ends_what_it_is_handed_stands_for_the_requests_to_come(alone: Callable[..., Agent]) -> None:
    desk, gate, box = Desk(), threading.Lock(), queue.Queue[Any]()

    def sends() -> None:
        with gate:
            box.get_nowait().set()

    with gate:
        thread = threading.Thread(target=sends, name="sender", daemon=True)
        thread.start()
        box.put(threading.Event())
        with asking(alone("front"), desk, Hand=desk.hand_on) as reached:
            assert reached == {"sender"}
    thread.join(PATIENCE_SECONDS)


def test_so_does_the_thread_of_an_executor_for_what_it_has_yet_to_run(alone: Callable[..., Agent]) -> None:
    def sends(box: queue.Queue[Any]) -> None:
        box.get_nowait().set()

    desk, gate = Desk(), threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="items") as executor:
        executor.submit(gate.wait, PATIENCE_SECONDS)
        executor.submit(sends, desk.box)
        try:
            with asking(alone("front"), desk, Hand=desk.hand_on) as reached:
                assert reached == {"items"}
        finally:
            desk.box.put(threading.Event())
            gate.set()


def test_what_a_hang_up_calls_is_a_way_to_end_the_wait(alone: Callable[..., Agent]) -> None:
    desk = Desk()
    with asking(alone("front"), desk, "ask_until_hung_up", callers=2, attempts=1, Count=desk.count) as reached:
        assert reached is None or any("_serve" in name for name in reached)


def test_a_kept_method_that_ends_the_wait_makes_it_unknown(alone: Callable[..., Agent]) -> None:
    desk = Desk()
    with asking(alone("front"), desk, "ask_by_a_method", callers=2, attempts=1, Count=desk.count) as reached:
        assert reached is None


def test_an_interceptor_that_ends_the_wait_makes_it_unknown(alone: Callable[..., Agent]) -> None:
    desk = Desk()
    with asking(alone("front"), desk, callers=2, interceptors=[Releases(desk)], attempts=1) as reached:
        assert reached is None


def test_code_that_gives_pools_more_workers_makes_the_wait_unknown(
    alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    monkeypatch.setattr(requests, "may_grow_pools", lambda code: code is Desk.count.__code__)
    with asking(alone("front"), desk, callers=2, attempts=1, Answer=desk.answer) as reached:
        assert reached is None


def test_a_full_pool_whose_method_has_one_of_its_own_makes_the_wait_unknown(alone: Callable[..., Agent]) -> None:
    def answer(request: bytes, context: Any) -> bytes:
        return desk.answer(request, context)

    desk = Desk()
    answer.experimental_thread_pool = None  # type: ignore[attr-defined]
    with asking(alone("front"), desk, callers=2, attempts=1, Answer=answer) as reached:
        assert reached is None


@pytest.mark.parametrize(
    ("text", "grows"),
    [
        ("pool._max_workers += 1", True),
        ("pool._adjust_thread_count()", True),
        ("setattr(pool, '_max_workers', 9)", True),
        ("metric(pool._work_queue.qsize())", False),
        ("metric(pool._max_workers)", False),
    ],
)
def test_code_that_changes_a_pool_may_give_it_workers_and_code_that_measures_it_does_not(text: str, grows: bool) -> None:
    names: dict[str, Any] = {}
    exec(compile(f"def change(pool, metric): {text}", str(Path(__file__).with_name("made.py")), "exec"), names)
    assert requests.may_grow_pools(names["change"].__code__) is grows
