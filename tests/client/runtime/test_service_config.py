"""How many copies of a call a channel's options allow, and after what time gRPC ends it, by method."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.runtime.calls.service_config import PLAIN, MethodPolicy, service_config_of

HEDGING = ("grpc.experimental.enable_hedging", 1)


def config(*methods: dict[str, Any]) -> tuple[str, str]:
    return "grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], **method} for method in methods]})


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (None, PLAIN),
        ([("grpc.max_receive_message_length", -1)], PLAIN),
        ([config({"timeout": "1.5s"})], MethodPolicy(timeout=1.5)),
        ([config({"retryPolicy": {"maxAttempts": 4}})], MethodPolicy(4)),
        ([config({"retryPolicy": {"maxAttempts": 9}})], MethodPolicy(5)),
        ([config({"hedgingPolicy": {"maxAttempts": 3}}), HEDGING], PLAIN),
        ([config({"retryPolicy": {"maxAttempts": 4, "perAttemptRecvTimeout": "2s"}}), HEDGING], MethodPolicy(4, timeout=2.0)),
        (
            [config({"timeout": "1s", "retryPolicy": {"maxAttempts": 4, "perAttemptRecvTimeout": "2s"}}), HEDGING],
            MethodPolicy(4, timeout=1.0),
        ),
        ([config({"retryPolicy": {"maxAttempts": 4, "perAttemptRecvTimeout": "2s"}})], MethodPolicy(4)),
        (
            [config({"retryPolicy": {"maxAttempts": 4, "perAttemptRecvTimeout": "2s"}}), HEDGING, ("grpc.enable_retries", 0)],
            PLAIN,
        ),
        ([config({"hedgingPolicy": {"maxAttempts": 3}})], PLAIN),
        ([config({"retryPolicy": {"maxAttempts": 4}}), ("grpc.enable_retries", 0)], PLAIN),
        ([("grpc.service_config", "{")], PLAIN),
        ([("grpc.service_config", '{"methodConfig": 1}')], PLAIN),
        ([("grpc.service_config", "[]")], PLAIN),
    ],
)
def test_the_options_show_how_gRPC_treats_a_call(options: Any, policy: MethodPolicy) -> None:  # noqa: N802 - its name
    assert service_config_of(options).of("/t.T/Do") == policy


@pytest.mark.parametrize(
    ("version", "hedges"), [("1.66.2", False), ("1.85.1", False), ("1.86.0", True), ("2.0", True), ("?", True)]
)
def test_an_untested_version_of_gRPC_may_hedge(  # noqa: N802 - its name
    version: str, hedges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc, "__version__", version)
    found = service_config_of([config({"hedgingPolicy": {"maxAttempts": 3}}), HEDGING]).of("/t.T/Do")
    assert found == (MethodPolicy(3, hedged=True) if hedges else PLAIN)


class Counting(grpc.GenericRpcHandler):
    """Counts the requests for Do, which wait for ``go``; Ping answers at once."""

    def __init__(self) -> None:
        self.arrived = queue.SimpleQueue[float]()
        self.goes_on = threading.Event()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(self.do if details.method == "/t.T/Do" else lambda request, _: request)

    def do(self, request: bytes, _: Any) -> bytes:
        self.arrived.put(time.monotonic())
        self.goes_on.wait(10)
        return request


@pytest.fixture
def counting() -> Iterator[tuple[Counting, str]]:
    handler = Counting()
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, handlers=[handler])
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        yield handler, address
        handler.goes_on.set()
        server.stop(None)


def test_gRPC_sends_one_copy_even_with_the_hedging_flag(counting: tuple[Counting, str]) -> None:  # noqa: N802
    handler, address = counting
    options = [config({"hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0s"}}), HEDGING]
    with grpc.insecure_channel(address, options) as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        answer = call.future(b"x")
        handler.arrived.get(timeout=10)
        ping: Any = channel.unary_unary("/t.T/Ping")
        for _ in range(100):  # every copy sent with the request has arrived by then
            ping(b"x")
        handler.goes_on.set()
        assert answer.result(10) == b"x"
    assert handler.arrived.empty()


def test_gRPC_honours_the_timeout_per_attempt_with_the_flag(counting: tuple[Counting, str]) -> None:  # noqa: N802
    _, address = counting
    again = {
        "maxAttempts": 2, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"], "perAttemptRecvTimeout": "0.05s",
    }  # fmt: skip
    with grpc.insecure_channel(address, [config({"retryPolicy": again}), HEDGING]) as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        with pytest.raises(grpc.RpcError) as ended:
            call(b"x", timeout=10)
        assert ended.value.code() is grpc.StatusCode.CANCELLED


def test_the_most_specific_name_wins() -> None:
    methods = [
        {"name": [{"service": "t.T", "method": "Do"}], "timeout": "1s"},
        {"name": [{"service": "t.T"}, {"service": "t.U", "method": "Do"}], "timeout": "2s"},
    ]
    known = service_config_of([("grpc.service_config", json.dumps({"methodConfig": methods}))])
    found = [known.of(method).timeout for method in ("/t.T/Do", b"/t.T/Do", "/t.T/Other", "/t.U/Do", "/t.U/Other", "bare")]
    assert found == [1.0, 1.0, 2.0, 2.0, None, None]


async def test_a_timeout_of_the_config_is_a_deadline_of_the_call(alone: Any) -> None:
    agent: Agent = alone("client")
    options = [config({"timeout": "60s"})]
    with agent.channel(grpc.insecure_channel("127.0.0.1:1", options), options=options) as channel:
        threads: Any = channel.unary_unary("/t.T/Do")
        calls = [threads.future(b"x", wait_for_ready=True), threads.future(b"x", timeout=1000, wait_for_ready=True)]
        async with agent.channel(grpc.aio.insecure_channel("127.0.0.1:1", options), options=options) as on_loop:
            loop: Any = on_loop.unary_unary("/t.T/Do")
            calls.append(loop(b"x", wait_for_ready=True))
            now = agent.live.clock()
            deadlines = [made.deadline for made in agent.live.recorder.calls_made.values()]
            assert [deadline is not None and 50 < deadline - now <= 60 for deadline in deadlines] == [True] * 3
            for call in calls:
                call.cancel()
