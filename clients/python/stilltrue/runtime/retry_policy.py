"""How many copies of one call gRPC may send: what the options of a channel say of retries and hedging.

Sources: https://github.com/grpc/proposal/blob/master/A6-client-retries.md (``retryPolicy`` and ``hedgingPolicy`` of a service
config; gRPC caps ``maxAttempts`` at 5). What a name resolver says, nobody can read from outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

CONFIG_OPTION = "grpc.service_config"
RETRIES_OPTION = "grpc.enable_retries"
COPIES_MAX = 5
Options = Iterable[tuple[str, Any]]
"""What ``grpc.insecure_channel(options=)`` takes."""


class RetryPolicy(NamedTuple):
    """``most``: so many times one request may be sent; ``hedged``: also while another copy is under way."""

    most: int = 1
    hedged: bool = False


ONE = RetryPolicy()


def retry_policy_of(options: Options | None) -> RetryPolicy:
    """The most that any method's policy allows, in a channel's ``options``; what cannot be read allows one copy, as in gRPC."""
    known = dict(options or ())
    if not known.get(RETRIES_OPTION, 1):
        return ONE
    try:
        policies = list(_policies(json.loads(known.get(CONFIG_OPTION) or "{}")))
    except (ValueError, TypeError, AttributeError):
        return ONE
    most = max((attempts for attempts, _ in policies), default=1)
    return RetryPolicy(min(most, COPIES_MAX), any(hedged for _, hedged in policies))


def _policies(config: dict[str, Any]) -> Iterator[tuple[int, bool]]:
    """Of each policy, how many attempts it allows and whether it hedges."""
    for method in config.get("methodConfig", ()):
        for name, hedged in (("retryPolicy", False), ("hedgingPolicy", True)):
            if name in method:
                yield int(method[name]["maxAttempts"]) if "maxAttempts" in method[name] else COPIES_MAX, hedged
