"""A channel's service config: how often gRPC may send each call, and after what time it ends the call.

Sources: https://github.com/grpc/proposal/blob/master/A6-client-retries.md (``retryPolicy`` and ``hedgingPolicy``; gRPC caps
``maxAttempts`` at 5) and the ``MethodConfig`` of ``grpc.service_config`` (names, ``timeout``). The hedging flag only makes
gRPC's core respect ``perAttemptRecvTimeout``: with or without it, a ``hedgingPolicy`` sends one copy in every known version
(measured with 1.66, 1.76 and 1.85). A service config that a name resolver returns cannot be read from outside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import grpc

CONFIG_OPTION = "grpc.service_config"
RETRIES_OPTION = "grpc.enable_retries"
HEDGING_OPTION = "grpc.experimental.enable_hedging"
HEDGING_SINCE = (1, 86)
"""The first version of gRPC that may hedge, as it was not measured."""
COPIES_MAX = 5
Options = Iterable[tuple[str, Any]]
"""The type of ``options`` in ``grpc.insecure_channel(options=)``."""


class MethodPolicy(NamedTuple):
    """How gRPC treats the calls of one method.

    ``copies_max``: how many times a request may be sent; ``hedged``: even while another copy is in transit.
    ``timeout``: seconds after which gRPC ends the call, or its first attempt, unless the call has an earlier deadline.
    """

    copies_max: int = 1
    hedged: bool = False
    timeout: float | None = None


PLAIN = MethodPolicy()
_Name = tuple[str, str]
"""A service and a method. An empty method stands for all methods of the service; if both are empty, for every other call."""


class ServiceConfig:
    """The policies of a channel, by method."""

    def __init__(self, policies: Mapping[_Name, MethodPolicy], *, known: bool = True) -> None:
        """``policies`` by the names in the config; ``known``: the channel has no others."""
        self._policies = policies
        self.known = known

    def of(self, method: str | bytes) -> MethodPolicy:
        """The policy of ``/service/method``: the most specific one applies."""
        path = method.decode("utf-8", "replace") if isinstance(method, bytes) else method
        service, _, name = path.lstrip("/").rpartition("/")
        found = (self._policies.get(key) for key in ((service, name), (service, ""), ("", "")))
        return next((policy for policy in found if policy is not None), PLAIN)


NO_CONFIG = ServiceConfig({}, known=False)


def service_config_of(options: Options | None) -> ServiceConfig:
    """The service config in a channel's ``options`` (None: unknown). A malformed one has no effect, as in gRPC."""
    if options is None:
        return NO_CONFIG
    known = dict(options)
    try:
        methods = json.loads(known.get(CONFIG_OPTION) or "{}").get("methodConfig", ())
        retries, hedging = bool(known.get(RETRIES_OPTION, 1)), bool(known.get(HEDGING_OPTION, 0))
        return ServiceConfig(
            {
                (name.get("service", ""), name.get("method", "")): _policy(config, retries, hedging)
                for config in methods
                for name in config.get("name", ())
            }
        )
    except (ValueError, TypeError, AttributeError):
        return NO_CONFIG


def _policy(config: Mapping[str, Any], retries: bool, hedging: bool) -> MethodPolicy:
    """The policy of one entry; ``hedging``: whether the flag for hedging is set."""
    retry = config.get("retryPolicy") if retries else None
    hedge = config.get("hedgingPolicy") if retries and hedging and _may_hedge(grpc.__version__) else None
    copies = max((min(int(one.get("maxAttempts", COPIES_MAX)), COPIES_MAX) for one in (retry, hedge) if one), default=1)
    timeouts = [_seconds(config.get("timeout")), _seconds(retry.get("perAttemptRecvTimeout")) if retry and hedging else None]
    return MethodPolicy(copies, bool(hedge), min((timeout for timeout in timeouts if timeout is not None), default=None))


def _may_hedge(version: str) -> bool:
    """Whether this version of gRPC may hedge."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= HEDGING_SINCE


def _seconds(duration: Any) -> float | None:
    """The seconds in a protobuf JSON duration such as ``1.5s``."""
    return float(duration[:-1]) if isinstance(duration, str) and duration.endswith("s") else None
