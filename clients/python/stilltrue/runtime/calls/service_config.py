"""What the options of a channel say of the calls on it: how often gRPC may send each, and after how long it ends them.

Sources: https://github.com/grpc/proposal/blob/master/A6-client-retries.md (``retryPolicy`` and ``hedgingPolicy``; gRPC caps
``maxAttempts`` at 5) and the ``MethodConfig`` of ``grpc.service_config`` (names, ``timeout``). The flag for hedging makes
gRPC's core heed ``perAttemptRecvTimeout`` alone; a ``hedgingPolicy`` sends one copy, whatever the flag says, in every version
known (measured with 1.66, 1.76 and 1.85). What a name resolver answers cannot be read from outside.
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
"""The first version of gRPC that may hedge: the first that was not measured."""
COPIES_MAX = 5
Options = Iterable[tuple[str, Any]]
"""What ``grpc.insecure_channel(options=)`` takes."""


class MethodPolicy(NamedTuple):
    """How gRPC treats the calls of one method.

    ``copies_max``: how many times one request may be sent; ``hedged``: also while another copy is in transit. ``timeout`` in
    seconds: gRPC ends the call then, or its first try, if it has no earlier deadline.
    """

    copies_max: int = 1
    hedged: bool = False
    timeout: float | None = None


PLAIN = MethodPolicy()
_Name = tuple[str, str]
"""A service and a method; the method is empty for all of a service, and both are for every other."""


class ServiceConfig:
    """The policies of a channel, by method."""

    def __init__(self, policies: Mapping[_Name, MethodPolicy], *, known: bool = True) -> None:
        """``policies`` by the names that the config gives them; ``known``: these are all of the channel's."""
        self._policies = policies
        self.known = known

    def of(self, method: str | bytes) -> MethodPolicy:
        """The policy of ``/service/method``: the most special one counts."""
        path = method.decode("utf-8", "replace") if isinstance(method, bytes) else method
        service, _, name = path.lstrip("/").rpartition("/")
        found = (self._policies.get(key) for key in ((service, name), (service, ""), ("", "")))
        return next((policy for policy in found if policy is not None), PLAIN)


NO_CONFIG = ServiceConfig({}, known=False)


def service_config_of(options: Options | None) -> ServiceConfig:
    """The service config in a channel's ``options`` (None: not known); one that cannot be read has no effect, as in gRPC."""
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
    """The policy of one entry; ``hedging``: whether its flag is set."""
    again = config.get("retryPolicy") if retries else None
    at_once = config.get("hedgingPolicy") if retries and hedging and _may_hedge(grpc.__version__) else None
    copies = max((min(int(one.get("maxAttempts", COPIES_MAX)), COPIES_MAX) for one in (again, at_once) if one), default=1)
    ends = [_seconds(config.get("timeout")), _seconds(again.get("perAttemptRecvTimeout")) if again and hedging else None]
    return MethodPolicy(copies, bool(at_once), min((end for end in ends if end is not None), default=None))


def _may_hedge(version: str) -> bool:
    """Whether a version of gRPC is, for all that is known, one that hedges."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= HEDGING_SINCE


def _seconds(duration: Any) -> float | None:
    """A duration as JSON has it in protobuf: ``1.5s``."""
    return float(duration[:-1]) if isinstance(duration, str) and duration.endswith("s") else None
