"""Code that may close the channel or stop the server a wait depends on, each with a near miss that never gets there."""

from __future__ import annotations

import contextlib
import multiprocessing.pool
import operator
import queue
import sched
import signal
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc
import pytest

from stilltrue import Agent
from tests.client.look.ways_out.closing import (
    FAR_SECONDS,
    Holder,
    Other,
    interrupted,
    may_close_the_channel,
    seen_beside,
    sets_after,
)
from tests.client.look.worlds import Stuck, serving


class Service:
    """Owns a channel or server under some name."""

    def __init__(self, owned: Any) -> None:
        self.owned = owned

    def finish(self) -> None:
        """Close or stop it."""
        self.owned.close()

    def tell(self) -> bool:
        """Return whether it owns anything."""
        return self.owned is not None


class Named(NamedTuple):
    """Owns one as an item."""

    owned: Any

    def finish(self) -> None:
        """Close it."""
        self.owned.close()

    def tell(self) -> bool:
        """Return whether it owns anything."""
        return self.owned is not None


class Owned(dict[str, Any]):
    """Owns one as a value."""

    def finish(self) -> None:
        """Close all."""
        for one in self.values():
            one.close()


class Listed(list[Any]):
    """Owns one as an attribute."""

    def __init__(self, owned: Any) -> None:
        super().__init__()
        self.owned = owned

    def finish(self) -> None:
        """Close it."""
        self.owned.close()


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


def has_a_tuple_close_it(owned: Any, go: threading.Event) -> None:
    service = Named(owned)
    del owned
    go.wait(FAR_SECONDS)
    service.finish()


def has_a_tuple_tell(owned: Any, go: threading.Event) -> None:
    service = Named(owned)
    del owned
    go.wait(FAR_SECONDS)
    service.tell()


def has_a_dictionary_close_it(owned: Any, go: threading.Event) -> None:
    service = Owned(owned=owned)
    del owned
    go.wait(FAR_SECONDS)
    service.finish()


def has_a_list_close_it(owned: Any, go: threading.Event) -> None:
    service = Listed(owned)
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
    threading.Thread(target=sets_after, args=(go, before)).start()
    before.wait()
    owned.close()


def waits_for_what_others_watch(owned: Any, go: threading.Event) -> None:
    over = threading.Event()

    def watches() -> None:
        while not go.is_set():
            over.wait(0.2)

    threading.Thread(target=watches).start()
    threading.Thread(target=sets_after, args=(go, over)).start()
    over.wait()
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


def runs_in_a_pool(go: threading.Event, callback: Callable[[Any], object]) -> None:
    pool = multiprocessing.pool.ThreadPool(1)
    pool.apply_async(go.wait, (FAR_SECONDS,), callback=callback)
    threading.Thread(target=terminates_after, args=(go, pool)).start()


def terminates_after(go: threading.Event, pool: multiprocessing.pool.ThreadPool) -> None:
    go.wait()
    pool.terminate()


def gets_a_result(owned: Any, go: threading.Event) -> None:
    runs_in_a_pool(go, lambda _: owned.close())
    interrupted(go)


def waits_for_a_result_of_a_pool(owned: Any, go: threading.Event) -> None:
    over = threading.Event()
    threading.Thread(target=sets_after, args=(go, over)).start()
    runs_in_a_pool(go, lambda _: over.set())
    over.wait()
    owned.close()


def counts_results(owned: Any, go: threading.Event) -> None:
    runs_in_a_pool(go, lambda _: id(owned))
    interrupted(go)


def closes_in_a_comprehension(owned: Any, go: threading.Event) -> None:
    every = [owned]
    go.wait(FAR_SECONDS)
    assert [one.close() for one in every]


def closes_in_a_generator(owned: Any, go: threading.Event) -> None:
    every = [owned]
    go.wait(FAR_SECONDS)
    any(one.close() for one in every)


def closes_by_a_function_made_later(owned: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    threading.Thread(target=lambda: owned.close()).start()  # noqa: PLW0108 - made only then


def closes_by_its_class(owned: Any, go: threading.Event) -> None:
    every = [owned]
    go.wait(FAR_SECONDS)
    with contextlib.suppress(NotImplementedError):  # each kind of channel overrides it
        list(map(grpc.Channel.close, every))


class Base:
    def __init__(self, owned: Any) -> None:
        self.owned = owned

    def shift(self) -> None:
        """Change to another one."""
        self.owned.close()

    def count(self) -> None:
        """Does nothing."""


class Derived(Base):
    def shift(self) -> None:
        super().shift()

    def count(self) -> None:
        super().count()


def has_a_base_close_it(owned: Any, go: threading.Event) -> None:
    derived = Derived(owned)
    go.wait(FAR_SECONDS)
    derived.shift()


def has_a_base_count(owned: Any, go: threading.Event) -> None:
    derived = Derived(owned)
    go.wait(FAR_SECONDS)
    derived.count()


class Closing:
    """Closes what it has at the end of its block."""

    def __init__(self, owned: Any) -> None:
        self.owned = owned

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        self.owned.close()


class Counting(Closing):
    def __exit__(self, *exception: object) -> None:
        id(self.owned)


def stays_in(kind: type[Closing], kept: list[Any], go: threading.Event) -> None:
    with kind(kept.pop()):
        go.wait(FAR_SECONDS)


def leaves_a_block_without_a_name(owned: Any, go: threading.Event) -> None:
    stays_in(Closing, [owned], go)


def leaves_another_block_without_a_name(owned: Any, go: threading.Event) -> None:
    stays_in(Counting, [owned], go)


@contextlib.contextmanager
def another_server(go: threading.Event) -> Iterator[grpc.Server]:
    server = grpc.server(ThreadPoolExecutor(1))
    server.start()
    threading.Thread(target=stops_after, args=(go, server.stop, 0)).start()
    yield server


def stops_after(go: threading.Event, stop: Callable[..., object], *arguments: object) -> None:
    go.wait()
    stop(*arguments)


def serves_until_it_is_stopped(owned: Any, go: threading.Event) -> None:
    with another_server(go) as server:
        threading.Thread(target=waits_and_stops, args=(go, server)).start()
        server.wait_for_termination()
        owned.close()


def waits_and_stops(go: threading.Event, server: grpc.Server) -> None:
    go.wait(FAR_SECONDS)
    server.stop(0)


def serves_for_ever(owned: Any, go: threading.Event) -> None:
    with another_server(go) as server:
        server.wait_for_termination()
        owned.close()


def serves_until_it_is_shut_down(owned: Any, go: threading.Event) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        threading.Thread(target=waits_and_shuts_down, args=(go, server)).start()
        server.serve_forever()
    owned.close()


def waits_and_shuts_down(go: threading.Event, server: socketserver.BaseServer) -> None:
    go.wait(FAR_SECONDS)
    server.shutdown()


def serves_http_for_ever(owned: Any, go: threading.Event) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        threading.Thread(target=stops_after, args=(go, server.shutdown)).start()
        server.serve_forever()
    owned.close()


GET_THERE: list[Holder] = [
    closes_by_name, sleeps_then_closes, gives_up_then_closes, leaves_its_block, leaves_an_exit_stack, leaves_a_closing,
    leaves_a_generators_block, leaves_the_block_of_a_stub, has_an_object_close_it, has_a_function_close_it, closes_several,
    sets_a_timer, plans_it, waits_for_who_sleeps, waits_for_what_somebody_sets, waits_for_an_executor, is_told_by_a_caller,
    waits_for_room_in_a_queue, gets_a_result, waits_for_a_result_of_a_pool, closes_in_a_comprehension, closes_in_a_generator,
    closes_by_a_function_made_later, closes_by_its_class, has_a_base_close_it, serves_until_it_is_stopped,
    serves_until_it_is_shut_down, leaves_a_block_without_a_name,
    has_a_tuple_close_it, has_a_dictionary_close_it, has_a_list_close_it,
]  # fmt: skip
DO_NOT: list[Holder] = [
    waits_for_ever, sleeps_until_it_is_interrupted, stays_in_its_block, calls_what_never_returns, closes_something_else,
    leaves_the_block_of_something_else, only_tells, waits_for_who_never_ends, waits_for_what_only_a_signal_sets,
    waits_for_what_others_watch, polls_then_closes, counts_results, has_a_base_count, serves_for_ever, serves_http_for_ever,
    leaves_another_block_without_a_name, has_a_tuple_tell,
]  # fmt: skip


if sys.version_info < (3, 11):  # the stacks of running frames cannot be read
    GET_THERE.remove(leaves_a_block_without_a_name)


@pytest.mark.parametrize("holder", [*GET_THERE, *DO_NOT], ids=lambda one: one.__name__)
def test_whether_code_may_close_the_channel(alone: Callable[..., Agent], stuck: Stuck, holder: Holder) -> None:
    assert may_close_the_channel(alone, stuck, holder) is (holder in GET_THERE)


class Stopped:
    """A server whose ``stop`` the tests name ``close``."""

    def __init__(self, server: grpc.Server) -> None:
        self._server = server

    def close(self) -> None:
        """Stop it."""
        self._server.stop(0)


@pytest.mark.parametrize("holder", [sleeps_then_closes, has_an_object_close_it, waits_for_ever, sleeps_until_it_is_interrupted])
def test_whether_code_may_stop_the_server(alone: Callable[..., Agent], stuck: Stuck, holder: Holder) -> None:
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
                seen = seen_beside(front, stuck, stub, Stopped(server), holder, party="front/Place#")
            server.stop(0).wait()
    assert (seen == ["-"]) is (holder in GET_THERE)


def test_an_alarm_may_close_the_channel(alone: Callable[..., Agent], stuck: Stuck) -> None:
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address:
        channel = front.channel(grpc.insecure_channel(address))
        before = signal.signal(signal.SIGALRM, lambda *_: channel.close())
        signal.setitimer(signal.ITIMER_REAL, FAR_SECONDS)
        try:
            seen = seen_beside(front, stuck, channel.unary_unary("/s/Get"), channel, waits_for_ever)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert seen == ["-"]
