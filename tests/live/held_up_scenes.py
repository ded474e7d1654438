"""Programs in which a call is sent and accepted by nobody: for good, or (the near misses) not so.

``python held_up_scenes.py SCENE`` runs one: three agents in one process, in the detector that the environment names. It prints
``stuck`` once everybody waits, and stays as it is.

``a.Outer`` calls ``b.Go``, which calls ``a.Inner``: what differs is why that call is not accepted, and what could help it.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import grpc.aio

from stilltrue import Agent

A, B, C = (Agent(service=name, instance=name, reactive=True) for name in ("a", "b", "client"))
STUBS: dict[str, Any] = {}
ENTERED = threading.Event()
IN_GO = threading.Event()
FOR_EVER = threading.Event()
FAR_SECONDS = 600.0
"""When what would help comes: long after the test."""
PLAIN = (("grpc.use_local_subchannel_pool", 1),)


def echo(request: Any, _: Any) -> Any:
    return request


def slow(request: Any, _: Any) -> Any:
    """A replica without an agent, which will answer."""
    FOR_EVER.wait(FAR_SECONDS)
    return request


def go(request: Any, _: Any) -> Any:
    IN_GO.set()
    return STUBS["inner"](request)


def call_go(request: Any, *_: Any) -> Any:
    ENTERED.set()
    return STUBS["go"](request)


def dial(agent: Agent, address: str, *options: Any) -> Any:
    given = (*PLAIN, *options)
    return agent.channel(grpc.insecure_channel(address, options=given), address, options=given)


def handler_of(behaviour: Any) -> Any:
    """A behaviour is unary, unless it is a handler already."""
    return behaviour if isinstance(behaviour, grpc.RpcMethodHandler) else grpc.unary_unary_rpc_method_handler(behaviour)


def handlers(methods: dict[str, Any]) -> Any:
    table: dict[str, Any] = {name: handler_of(behaviour) for name, behaviour in methods.items()}
    return grpc.method_handlers_generic_handler("s", table)


def serve(
    agent: Agent | None,
    address: str = "127.0.0.1:0",
    options: Any = (),
    interceptors: Iterable[Any] | None = None,
    **methods: Any,
) -> str:
    """A server of threads; its address. ``interceptors``: all of them (None: the agent's)."""
    pool = ThreadPoolExecutor(8)
    if interceptors is None:
        interceptors = () if agent is None else (agent.server_interceptor(),)
    server = grpc.server(pool if agent is None else agent.pool(pool), interceptors=list(interceptors), options=options)
    server.add_generic_rpc_handlers((handlers(methods),))
    port = server.add_insecure_port(address)
    server.start()
    STUBS[f"server {port}"] = server
    return f"127.0.0.1:{port}"


def serve_on_loop(agent: Agent, address: str = "127.0.0.1:0", **methods: Any) -> str:
    """A server of grpc.aio on a loop of its own, ``STUBS["loop"]``; its address."""
    loop = STUBS["loop"] = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def start() -> str:
        server = STUBS["aio"] = grpc.aio.server(interceptors=[agent.aio_server_interceptor()])
        server.add_generic_rpc_handlers((handlers(methods),))
        port = server.add_insecure_port(address)
        await server.start()
        return f"127.0.0.1:{port}"

    return asyncio.run_coroutine_threadsafe(start(), loop).result()


async def inner_on_loop(request: Any, _: Any) -> Any:
    return request


async def outer_on_loop(request: Any, context: Any) -> Any:
    return call_go(request, context)


def stub(agent: Agent, address: str, method: str, *options: Any) -> Any:
    return dial(agent, address, *options).unary_unary(f"/s/{method}")


def begin(call: Callable[[], Any]) -> None:
    threading.Thread(target=call, daemon=True).start()


def blocked_loop(outer: Any = outer_on_loop, between: Callable[[str], str] = str, *options: Any) -> None:
    """A coroutine of ``a`` makes a blocking call; what it needs in the end is the loop that it blocks."""
    a = serve_on_loop(A, Outer=outer, Inner=inner_on_loop)
    STUBS["go"] = stub(A, serve(B, Go=go), "Go")
    STUBS["inner"] = stub(B, between(a), "Inner", *options)
    begin(partial(stub(C, a, "Outer"), b"x"))


def blocked_by_a_task() -> None:
    """As before, but it is a task of the loop that serves nobody; the server has answered before."""
    a = serve_on_loop(A, Outer=inner_on_loop, Inner=inner_on_loop)
    STUBS["go"] = stub(A, serve(B, Go=go), "Go")
    STUBS["inner"] = stub(B, a, "Inner")
    known = stub(C, a, "Outer")
    while not [one for one in A.sight.servers if one.endpoint.server is not None]:
        known(b"x")
        FOR_EVER.wait(0.05)

    async def task() -> None:
        call_go(b"x")

    asyncio.run_coroutine_threadsafe(task(), STUBS["loop"])


async def with_a_time_out(request: Any, _: Any) -> Any:
    ENTERED.set()
    return STUBS["go"](request, timeout=FAR_SECONDS)


async def through_a_future(request: Any, _: Any) -> Any:
    ENTERED.set()
    call = STUBS["go"].future(request)
    return call.result()


async def with_a_timer(request: Any, _: Any) -> Any:
    ENTERED.set()
    call = STUBS["go"].future(request)
    threading.Timer(FAR_SECONDS, call.cancel).start()
    return call.result()


def through_a_proxy(address: str) -> str:
    """The address of a proxy for TCP: who could have more than one server behind it."""
    host, port = address.rsplit(":", 1)
    listener = socket.create_server(("127.0.0.1", 0))

    def copy(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            target.sendall(data)

    def accept() -> None:
        while True:
            one, _ = listener.accept()
            other = socket.create_connection((host, int(port)))
            begin(partial(copy, one, other))
            begin(partial(copy, other, one))

    begin(accept)
    return f"127.0.0.1:{listener.getsockname()[1]}"


def beside_a_stranger(address: str) -> str:
    """Two addresses, each called in turn: the other's server has no agent, and is slow."""
    return f"ipv4:{address},{serve(None, Inner=slow)}"


def of_twins() -> None:
    """Two servers listen at one address (SO_REUSEPORT); the connection is to the one without an agent."""
    twin = serve(None, Inner=slow, Outer=echo, Warm=echo)
    STUBS["go"] = stub(A, serve(B, Go=go), "Go")
    channel = dial(B, twin)
    channel.unary_unary("/s/Warm")(b"x")
    STUBS["inner"] = channel.unary_unary("/s/Inner")
    a = serve_on_loop(A, twin, Outer=outer_on_loop, Inner=inner_on_loop)
    while not ENTERED.is_set():  # each connection is accepted by either
        begin(partial(stub(C, a, "Outer"), b"x"))
        ENTERED.wait(0.1)


def full_connection(outer: Any = call_go, caller: Callable[[Any], Any] | None = None, *options: Any) -> None:
    """``a`` has workers enough, but a connection carries one call at once."""
    a = serve(A, options=(("grpc.max_concurrent_streams", 1), *options), Outer=outer, Inner=echo)
    STUBS["go"] = stub(A, serve(B, Go=go), "Go")
    channel = dial(B, a)
    STUBS["inner"] = channel.unary_unary("/s/Inner")
    method = channel.unary_unary("/s/Outer")
    begin(partial(caller or (lambda one: one(b"x")), method))


def cancelled_by_a_timer(method: Any) -> Any:
    call = method.future(b"x")
    threading.Timer(FAR_SECONDS, call.cancel).start()
    return call.result()


def ended_by_its_context(request: Any, context: Any) -> Any:
    threading.Timer(FAR_SECONDS, context.cancel).start()
    return call_go(request)


class Asking(grpc.ServerInterceptor):
    """Asks ``b`` before each call of ``Outer``."""

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        if details.method == "/s/Outer":
            call_go(b"x")
        return continuation(details)


def asking_interceptor(*, first: bool = True) -> None:
    """A server interceptor of ``a`` calls back."""
    ours = A.server_interceptor()
    a = serve(A, interceptors=(ours, Asking()) if first else (Asking(), ours), Outer=echo, Inner=echo)
    STUBS["go"] = stub(A, serve(B, Go=go), "Go")
    STUBS["inner"] = stub(B, a, "Inner")
    begin(partial(stub(C, a, "Outer"), b"x"))


MESSAGE = b"x" * 1_000_000
WITHOUT_LIMIT = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


def full_windows() -> None:
    """Both ends of a stream write and do not read. A call of another thread could still enlarge the stream's windows."""
    begun = {"client": 0, "server": 0}
    written = threading.Event()

    def write(end: str) -> Iterator[bytes]:
        while True:
            begun[end] += 1
            yield MESSAGE

    def chat(requests: Iterable[bytes], _: Any) -> Iterator[bytes]:
        yield from write("server")
        yield from requests

    def talk() -> None:
        replies = channel.stream_stream("/s/Chat")(write("client"))
        written.wait()
        STUBS["replies"] = list(replies)

    def call_later() -> None:
        FOR_EVER.wait(FAR_SECONDS)
        channel.unary_unary("/s/Bulk")(MESSAGE)

    address = serve(A, options=WITHOUT_LIMIT, Chat=grpc.stream_stream_rpc_method_handler(chat), Bulk=echo)
    channel = dial(C, address, *WITHOUT_LIMIT)
    begin(talk)
    begin(call_later)
    before: dict[str, int] = {}
    while before != begun or not all(begun.values()):
        before = dict(begun)
        FOR_EVER.wait(1.0)
    ENTERED.set()
    IN_GO.set()


ROUND_ROBIN = ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}')
SCENES: dict[str, Callable[[], None]] = {
    "blocked_loop": blocked_loop,
    "blocked_through_a_future": partial(blocked_loop, through_a_future),
    "blocked_by_a_task": blocked_by_a_task,
    "full_connection": full_connection,
    "asking_interceptor": asking_interceptor,
    "time_out": partial(blocked_loop, with_a_time_out),
    "timer": partial(blocked_loop, with_a_timer),
    "proxy": partial(blocked_loop, outer_on_loop, through_a_proxy),
    "stranger": partial(blocked_loop, outer_on_loop, beside_a_stranger, ROUND_ROBIN),
    "twin": of_twins,
    "full_until_cancelled": partial(full_connection, call_go, cancelled_by_a_timer),
    "full_until_ended": partial(full_connection, ended_by_its_context),
    "full_until_too_old": partial(full_connection, call_go, None, ("grpc.max_connection_age_ms", 600_000)),
    "full_windows": full_windows,
    "other_interceptor_first": partial(asking_interceptor, first=False),
}


if __name__ == "__main__":
    for agent in (A, B, C):
        assert agent.wait_until_joined(20)
    SCENES[sys.argv[1]]()
    assert ENTERED.wait(20)
    assert IN_GO.wait(20)
    print("stuck", flush=True)
    FOR_EVER.wait()
