"""Where a server's handlers can be looked up in gRPC's place, and where they must not be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest
from grpc import _utilities

from stilltrue import Agent
from tests.client.shells import handlers

Do = Callable[[str], bytes]


class Later(grpc.ServerInterceptor):
    """Passes on what it is asked, and counts it."""

    asked = 0

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        self.asked += 1
        return continuation(handler_call_details)


class Decides(grpc.GenericRpcHandler):
    """The application's own look-up, which answers every method."""

    def __init__(self, reply: bytes) -> None:
        self.handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, _: reply)

    def service(self, handler_call_details: Any) -> Any:
        return self.handler


def table(reply: bytes) -> list[Any]:
    """gRPC's own handler, with one method."""
    return handlers(Do=lambda request, _: reply)


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent("a", instance="a", detector="127.0.0.1:1")
    yield agent
    agent.close()
    assert agent.live.faults == 0


@contextmanager
def served(interceptors: list[Any], generic: list[Any]) -> Iterator[Do]:
    """Calls a method of a server with these handlers."""
    server = grpc.server(ThreadPoolExecutor(2), handlers=generic, interceptors=interceptors)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            methods: dict[str, Any] = {name: channel.unary_unary(f"/t.T/{name}") for name in ("Do", "Other")}
            yield lambda name: methods[name](b"x")
    finally:
        server.stop(None).wait()


def test_a_method_of_grpcs_own_table_is_looked_up_in_its_place(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    with served([agent.server_interceptor()], table(b"the table's")) as do:
        assert do("Do") == b"the table's"
        monkeypatch.setattr(_utilities.DictionaryGenericHandler, "service", lambda _, details: asked.append(details.method))
        assert do("Do") == b"the table's"
    assert asked == []


def test_methods_in_no_table_are_left_to_the_application(agent: Agent) -> None:
    with served([agent.server_interceptor()], [*table(b"the table's"), Decides(b"its own")]) as do:
        assert [do(name) for name in ("Do", "Other") * 2] == [b"the table's", b"its own"] * 2


def test_the_application_decides_before_a_table(agent: Agent) -> None:
    with served([agent.server_interceptor()], [Decides(b"its own"), *table(b"the table's")]) as do:
        assert [do(name) for name in ("Do", "Other") * 2] == [b"its own"] * 4


def test_later_interceptors_are_asked(agent: Agent) -> None:
    later = Later()
    with served([agent.server_interceptor(), later], table(b"the table's")) as do:
        assert [do("Do"), do("Do")] == [b"the table's"] * 2
    assert later.asked == 2


def test_a_table_whose_look_up_was_replaced_is_left_to_it(agent: Agent) -> None:
    (replaced,) = table(b"the table's")
    handler = Decides(b"replaced").handler
    setattr(replaced, "service", lambda details: handler)  # noqa: B010
    with served([agent.server_interceptor()], [replaced]) as do:
        assert [do("Do"), do("Do")] == [b"replaced"] * 2


def test_servers_that_share_an_interceptor_keep_their_own_handlers(agent: Agent) -> None:
    shared = agent.server_interceptor()
    with ExitStack() as stack:
        one, other = (stack.enter_context(served([shared], table(reply))) for reply in (b"one", b"other"))
        assert [one("Do"), other("Do"), one("Do"), other("Do")] == [b"one", b"other"] * 2
