"""Handlers that are made anew for each call share the class of their method."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.aio import server as aio_server
from stilltrue.runtime.calls.handler_classes import CLASSES_MAX, HandlerClasses
from stilltrue.sync import server as sync_server

CALLS = 20


def answer(request: bytes, _: Any) -> bytes:
    return request + b"!"


async def answer_on_loop(request: bytes, _: Any) -> bytes:
    return request + b"!"


class Proxy(grpc.GenericRpcHandler):
    """Makes a handler for each call, as proxies do."""

    def __init__(self, behaviour: Any) -> None:
        self.behaviour = behaviour

    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self.behaviour)


def agent() -> Agent:
    return Agent("proxy", instance="proxy", detector="127.0.0.1:1")


def test_a_proxy_of_threads_makes_one_class() -> None:
    one = agent()
    server = grpc.server(ThreadPoolExecutor(1), interceptors=[one.server_interceptor()])
    server.add_generic_rpc_handlers((Proxy(answer),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    before = set(map(id, sync_server._UnaryUnary.__subclasses__()))
    with grpc.insecure_channel(address) as channel:
        method: Any = channel.unary_unary("/t.T/Do")
        assert {method(b"done") for _ in range(CALLS)} == {b"done!"}
    made = [kind for kind in sync_server._UnaryUnary.__subclasses__() if id(kind) not in before]
    server.stop(None).wait()
    one.close()
    assert len(made) <= 2, "one before the server's options are known, and one after"


async def test_a_proxy_on_a_loop_makes_one_class() -> None:
    one = agent()
    server = grpc.aio.server(interceptors=[one.aio_server_interceptor()])
    server.add_generic_rpc_handlers((Proxy(answer_on_loop),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    before = set(map(id, aio_server._Handler.__subclasses__()))
    async with grpc.aio.insecure_channel(address) as channel:
        method: Any = channel.unary_unary("/t.T/Do")
        assert set(await asyncio.gather(*(method(b"done") for _ in range(CALLS)))) == {b"done!"}
    made = [kind for kind in aio_server._Handler.__subclasses__() if id(kind) not in before]
    await server.stop(None)
    one.close()
    assert len(made) <= 2


class Service:
    def do(self, request: bytes, _: Any) -> bytes:
        return request


class Equal:
    """A callable that is equal to any other of its class."""

    def __call__(self, request: bytes, _: Any) -> bytes:
        return request

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 1


def same_class(one: Any, other: Any) -> bool:
    classes: HandlerClasses[object] = HandlerClasses()
    found = [classes.of(grpc.unary_unary_rpc_method_handler(each), "unary_unary", lambda *_: object()) for each in (one, other)]
    return found[0] is found[1]


SERVICE = Service()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (answer, answer, True),
        (SERVICE.do, SERVICE.do, True),
        (SERVICE.do, Service().do, False),
        (answer, lambda request, _: request, False),
        (Equal(), Equal(), False),
    ],
)
def test_handlers_share_a_class_if_they_run_the_same_function(one: Any, other: Any, *, same: bool) -> None:
    assert same_class(one, other) is same


def test_handlers_with_another_serializer_have_another_class() -> None:
    classes: HandlerClasses[object] = HandlerClasses()
    plain: Any = grpc.unary_unary_rpc_method_handler(answer)
    other: Any = grpc.unary_unary_rpc_method_handler(answer, response_serializer=bytes.upper)
    assert classes.of(plain, "unary_unary", lambda *_: object()) is not classes.of(other, "unary_unary", lambda *_: object())


def test_the_classes_of_functions_made_for_each_call_are_bounded() -> None:
    classes: HandlerClasses[object] = HandlerClasses()
    for _ in range(CLASSES_MAX + 10):
        classes.of(grpc.unary_unary_rpc_method_handler(lambda request, _: request), "unary_unary", lambda *_: object())
    assert len(classes.known) == 10
    assert len(classes._alike) == 10
