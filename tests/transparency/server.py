"""The server of the transparency matrix: one behaviour for each arity in every handler style, controlled by its request.

A request is ``outcome|key``; a handler's view of its context is kept by key, for the story to compare.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import grpc.aio

from tests.transparency.words import shown

SEEN: dict[str, list[Any]] = defaultdict(list)
"""By key, what its handler saw of its context."""
STARTED: dict[str, threading.Event] = defaultdict(threading.Event)
RELEASED: dict[str, threading.Event] = defaultdict(threading.Event)
WAITING = frozenset({"deadline", "cancel", "never read"})
"""The outcomes for which a handler waits until its story is over."""
PATIENCE_SECONDS = 3.0
"""How long a story waits for what never comes beside some neighbours, plain or attached."""
TRAILING = (("last", "word"), ("last-bin", b"\x00"))


def _parse(request: bytes) -> tuple[str, str]:
    outcome, _, key = request.decode().partition("|")
    return outcome, key


def _look(context: Any, key: str) -> None:
    """Keep the values that the contexts of all shells have."""
    seen = SEEN[key]
    for name in ("invocation_metadata", "peer_identities", "peer_identity_key", "auth_context", "time_remaining"):
        method = getattr(context, name, None)
        seen.append((name, None if method is None else shown(method)))
    seen.append(isinstance(context, grpc.ServicerContext | grpc.aio.ServicerContext))
    seen.append(
        [hasattr(context, name) for name in ("code", "details", "trailing_metadata", "is_active", "cancel", "read", "write")]
    )


def _settle(context: Any, outcome: str) -> None:
    context.set_trailing_metadata(TRAILING)
    if outcome == "status":
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details("not here")


# -- on threads, and sync handlers on a loop ---------------------------------------------------------------------------


def _begin(request: bytes, context: Any, *, initial: bool = True) -> str:
    outcome, key = _parse(request)
    _look(context, key)
    if initial:
        context.send_initial_metadata((("first", "word"),))
    STARTED[key].set()
    if outcome in WAITING:
        RELEASED[key].wait(PATIENCE_SECONDS)
    _settle(context, outcome)
    if outcome == "abort":
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
    if outcome == "raise":
        raise ValueError("a fault of the application")
    return outcome


def one(request: bytes, context: Any) -> bytes:
    _begin(request, context)
    return request


def many(request: bytes, context: Any) -> Iterator[bytes]:
    yield request
    _begin(request, context, initial=False)
    yield request + b"!"


def collect(requests: Iterator[bytes], context: Any) -> bytes:
    first = next(requests)
    _begin(first, context)
    return b"+".join((first, *requests))


def chat(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    first = next(requests)
    yield first
    _begin(first, context, initial=False)
    yield from requests


# -- on a loop ---------------------------------------------------------------------------------------------------------


async def _aio_begin(request: bytes, context: Any, *, initial: bool = True) -> None:
    outcome, key = _parse(request)
    _look(context, key)
    SEEN[key].append([shown(context.done), shown(context.cancelled)])
    if initial:
        await context.send_initial_metadata((("first", "word"),))
    STARTED[key].set()
    end = time.monotonic() + PATIENCE_SECONDS
    while outcome in WAITING and not RELEASED[key].is_set() and time.monotonic() < end:
        await asyncio.sleep(0.005)
    _settle(context, outcome)
    SEEN[key].append([shown(context.code), shown(context.details), shown(context.trailing_metadata)])
    if outcome == "abort":
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
    if outcome == "raise":
        raise ValueError("a fault of the application")


async def aio_one(request: bytes, context: Any) -> bytes:
    await _aio_begin(request, context)
    return request


async def aio_many(request: bytes, context: Any) -> AsyncIterator[bytes]:
    yield request
    await _aio_begin(request, context, initial=False)
    yield request + b"!"


async def aio_collect(requests: AsyncIterator[bytes], context: Any) -> bytes:
    first = await anext(requests)
    await _aio_begin(first, context)
    return b"+".join([first, *[request async for request in requests]])


async def aio_chat(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    first = await anext(requests)
    yield first
    await _aio_begin(first, context, initial=False)
    async for request in requests:
        yield request


async def written_many(request: bytes, context: Any) -> None:
    await context.write(request)
    await _aio_begin(request, context, initial=False)
    await context.write(request + b"!")


async def read_collect(_: Any, context: Any) -> bytes:
    requests = [await context.read()]
    await _aio_begin(requests[0], context)
    while (request := await context.read()) is not grpc.aio.EOF:
        requests.append(request)
    return b"+".join(requests)


async def written_chat(_: Any, context: Any) -> None:
    first = await context.read()
    await context.write(first)
    await _aio_begin(first, context, initial=False)
    while (request := await context.read()) is not grpc.aio.EOF:
        await context.write(request)


STYLES: dict[str, tuple[Callable[..., Any], ...]] = {
    "threads": (one, many, collect, chat),
    "loop": (aio_one, aio_many, aio_collect, aio_chat),
    "loop, read and write": (aio_one, written_many, read_collect, written_chat),
    "loop, sync handlers": (one, many, collect, chat),
}
"""The handler styles, with their behaviours for the four arities."""
ARITIES = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def handlers(style: str) -> list[grpc.GenericRpcHandler]:
    """The service with handlers of this style."""
    methods: dict[str, Any] = {
        arity: getattr(grpc, f"{arity}_rpc_method_handler")(behaviour)
        for arity, behaviour in zip(ARITIES, STYLES[style], strict=True)
    }
    return [grpc.method_handlers_generic_handler("t.T", methods)]
