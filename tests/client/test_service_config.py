"""How many copies of a call a channel's options allow, and after how long gRPC ends it, method by method."""

from __future__ import annotations

import json
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.runtime.service_config import PLAIN, MethodPolicy, service_config_of

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
        ([config({"hedgingPolicy": {"maxAttempts": 3}}), HEDGING], MethodPolicy(3, hedged=True)),
        ([config({"hedgingPolicy": {"maxAttempts": 3}})], PLAIN),
        ([config({"retryPolicy": {"maxAttempts": 4}}), ("grpc.enable_retries", 0)], PLAIN),
        ([("grpc.service_config", "{")], PLAIN),
        ([("grpc.service_config", '{"methodConfig": 1}')], PLAIN),
        ([("grpc.service_config", "[]")], PLAIN),
    ],
)
def test_the_options_tell_how_gRPC_treats_a_call(options: Any, policy: MethodPolicy) -> None:  # noqa: N802 - its name
    assert service_config_of(options).of("/t.T/Do") == policy


def test_the_most_special_name_counts() -> None:
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
            deadlines = [made.deadline for made in agent.live.recorder._made.values()]
            assert [deadline is not None and 50 < deadline - now <= 60 for deadline in deadlines] == [True] * 3
            for call in calls:
                call.cancel()
