"""Other libraries between a program and gRPC, each added as a program would, before the agent or after it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import grpc
import grpc.aio


def _same(thing: Any) -> Any:
    return thing


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """How a neighbour is added: to the process (before or after the agent), a channel, a multi-callable, a server."""

    name: str
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None
    channel: Callable[[Any], Any] = _same
    callable_: Callable[[Any], Any] = _same
    aio_channel: Callable[[], list[Any]] = list
    aio_callable: Callable[[Any], Any] = _same
    server: Callable[[], list[Any]] = field(default=list)
    writers: bool = True
    """Whether streams can be written by ``context.write`` beside it; where not, plain programs fail, and no story is told."""


def _opentelemetry() -> None:
    module = import_module("opentelemetry.instrumentation.grpc")
    for name in ("GrpcInstrumentorServer", "GrpcAioInstrumentorServer", "GrpcInstrumentorClient", "GrpcAioInstrumentorClient"):
        getattr(module, name)().instrument()


def _sentry() -> None:
    sdk, grpc_integration = import_module("sentry_sdk"), import_module("sentry_sdk.integrations.grpc")
    os.environ.setdefault("SENTRY_DSN", "http://public@127.0.0.1:1/1")
    sdk.init(transport=lambda _: None, integrations=[grpc_integration.GRPCIntegration()], traces_sample_rate=1.0)


@functools.cache  # its metrics are registered once per process
def _prometheus_interceptor(side: str) -> Any:
    module = import_module(f"py_grpc_prometheus.prometheus_{side}_interceptor")
    return getattr(module, f"Prom{side.title()}Interceptor")()


def _prometheus(channel: grpc.Channel) -> grpc.Channel:
    return grpc.intercept_channel(channel, _prometheus_interceptor("client"))


def _prometheus_server() -> list[Any]:
    return [_prometheus_interceptor("server")]


def _api_core(callable_: Any) -> Any:
    return import_module("google.api_core.grpc_helpers").wrap_errors(callable_)


def _aio_api_core(callable_: Any) -> Any:
    return import_module("google.api_core.grpc_helpers_async").wrap_errors(callable_)


class Retrying(grpc.UnaryUnaryClientInterceptor, grpc.StreamUnaryClientInterceptor):
    """Retries an unavailable call once."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        call = continuation(details, request)
        return continuation(details, request) if call.code() is grpc.StatusCode.FAILED_PRECONDITION else call

    def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(details, iter(list(requests)))


class AioRetrying(grpc.aio.UnaryUnaryClientInterceptor):
    """As :class:`Retrying`, on a loop."""

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        call = await continuation(details, request)
        return await continuation(details, request) if await call.code() is grpc.StatusCode.FAILED_PRECONDITION else call


class Yielding(grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Returns a generator for a stream of replies, as some instrumentations do."""

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        yield from continuation(details, request)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        yield from continuation(details, requests)


NEIGHBOURS = {
    one.name: one
    for one in (
        Neighbour(name="none"),
        Neighbour(name="OpenTelemetry, then the agent", before=_opentelemetry),
        Neighbour(name="the agent, then OpenTelemetry", after=_opentelemetry),
        Neighbour(name="Sentry, then the agent", before=_sentry, writers=False),
        Neighbour(name="the agent, then Sentry", after=_sentry, writers=False),
        Neighbour(name="py-grpc-prometheus", channel=_prometheus, server=_prometheus_server),
        Neighbour(name="google-api-core", callable_=_api_core, aio_callable=_aio_api_core),
        Neighbour(
            name="a retry interceptor",
            channel=lambda channel: grpc.intercept_channel(channel, Retrying()),
            aio_channel=lambda: [AioRetrying()],
        ),
        Neighbour(name="an interceptor that yields", channel=lambda channel: grpc.intercept_channel(channel, Yielding())),
    )
}
