"""A sidecar in this process, and a program that behaves in every way a gRPC program can."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from detector.ops.address import Address
from detector.sidecar.app import Listening, Sidecar, running
from detector.sidecar.routing import Upstreams
from detector.sidecar.settings import SidecarSettings

NOBODY = "127.0.0.1:1"
CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
Context = grpc.ServicerContext


def _begin(context: Context) -> dict[str, str | bytes]:
    """Do what the request's metadata ask for: send headers early, compress, fail; what was asked."""
    asked = dict(context.invocation_metadata())
    if "early" in asked:
        context.send_initial_metadata((("early", str(asked["early"])), ("early-bin", b"\x00\x01\xfe")))
    if "squeeze" in asked:
        context.set_compression(grpc.Compression.Gzip)
    context.set_trailing_metadata((("seen", _seen(context)), ("trail-bin", bytes(range(256)))))
    return asked


def _seen(context: Context) -> str:
    """The metadata that the program got, but for what the sidecar is told to add."""
    pairs = [(key, value) for key, value in context.invocation_metadata() if key != "stilltrue-party"]
    return repr(sorted(pairs))[:4000].encode("ascii", "backslashreplace").decode()


def _end(asked: dict[str, str | bytes], context: Context) -> None:
    if "sleep" in asked:
        time.sleep(float(asked["sleep"]))
    if "fail" in asked:
        context.abort(CODES[int(asked["fail"])], "no: ünïcode % and\nlines")


def _unary(request: bytes, context: Context) -> bytes:
    _end(_begin(context), context)
    return request


def _many(request: bytes, context: Context) -> Iterator[bytes]:
    asked = _begin(context)
    for index in range(int(asked.get("items", 3))):
        yield bytes([index % 256]) + request
    _end(asked, context)


def _fold(requests: Iterator[bytes], context: Context) -> bytes:
    asked = _begin(context)
    reply = b"|".join(requests)
    _end(asked, context)
    return reply


def _chat(requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
    asked = _begin(context)
    for request in requests:
        yield request[::-1]
    _end(asked, context)


HANDLERS: dict[str, Any] = {
    "Unary": grpc.unary_unary_rpc_method_handler(_unary),
    "Many": grpc.unary_stream_rpc_method_handler(_many),
    "Fold": grpc.stream_unary_rpc_method_handler(_fold),
    "Chat": grpc.stream_stream_rpc_method_handler(_chat),
}


@pytest.fixture(scope="module")
def program() -> Iterator[str]:
    """Where a program listens that knows nothing of us."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_concurrent_streams", 64)]
    server = grpc.server(ThreadPoolExecutor(64), options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("mix.Mix", HANDLERS),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def _place(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host=host, port=int(port))


@contextlib.asynccontextmanager
async def beside(program: str, upstream: str = NOBODY, **more: Any) -> AsyncIterator[tuple[Sidecar, Listening]]:
    free = Address(host="127.0.0.1", port=0)
    values: dict[str, Any] = {
        "program": _place(program),
        "inbound": free,
        "outbound": free,
        "admin": free,
        "upstreams": Upstreams(named={"*": _place(upstream)}),
        "drain_seconds_max": 0.0,
        "agent": {"service": "program", "instance": f"program-{random.randrange(10**9)}", "detector": NOBODY},
    }
    async with running(SidecarSettings(**values | more)) as started:
        yield started


@pytest.fixture
def start_sidecar() -> Any:
    """A sidecar beside a program, whose outbound calls all go to ``upstream``."""
    return beside
