"""How many copies of a call a channel's options allow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stilltrue.runtime.retry_policy import ONE, RetryPolicy, retry_policy_of


def config(*methods: dict[str, Any]) -> tuple[str, str]:
    return "grpc.service_config", json.dumps({"methodConfig": list(methods)})


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (None, ONE),
        ([("grpc.max_receive_message_length", -1)], ONE),
        ([config({"timeout": "1s"})], ONE),
        ([config({"retryPolicy": {"maxAttempts": 4}})], RetryPolicy(4, hedged=False)),
        ([config({"retryPolicy": {"maxAttempts": 2}}, {"retryPolicy": {"maxAttempts": 9}})], RetryPolicy(5, hedged=False)),
        ([config({"hedgingPolicy": {"maxAttempts": 3}})], RetryPolicy(3, hedged=True)),
        ([config({"retryPolicy": {"maxAttempts": 4}}), ("grpc.enable_retries", 0)], ONE),
        ([("grpc.service_config", "{")], ONE),
        ([("grpc.service_config", '{"methodConfig": 1}')], ONE),
    ],
)
def test_the_options_tell_how_often_a_call_may_be_sent(options: Any, policy: RetryPolicy) -> None:
    assert retry_policy_of(options) == policy
