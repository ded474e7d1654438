"""The clients of the transparency matrix: each story makes one call in one way, and records all that a program can see."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from tests.transparency.server import PATIENCE_SECONDS, RELEASED, SEEN, STARTED
from tests.transparency.words import failed, in_words, shown, shown_later

OUTCOMES = (
    "ok", "status", "abort", "raise", "deadline", "cancel", "never read",
    "unknown method", "bad request", "bad reply", "bad metadata", "unreachable",
)  # fmt: skip
WAYS = {
    "unary_unary": ("call", "with_call", "future"),
    "unary_stream": ("stream",),
    "stream_unary": ("call", "with_call", "future"),
    "stream_stream": ("stream",),
}
"""How a program on threads makes a call of each arity."""
DEADLINE_SECONDS = 0.08
REFUSED_SECONDS = 0.2


def _refuse(_: Any) -> Any:
    raise ValueError("not of this kind")


def make_callable(channel: Any, arity: str, outcome: str) -> Any:
    """The multi-callable for one story."""
    serializers: dict[str, Any] = {}
    if outcome == "bad request":
        serializers["request_serializer"] = _refuse
    if outcome == "bad reply":
        serializers["response_deserializer"] = _refuse
    method = "Unknown" if outcome == "unknown method" else arity
    return getattr(channel, arity)(f"/t.T/{method}", **serializers)


def _options(outcome: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "metadata": [("Bad Key", "x")] if outcome == "bad metadata" else (("from", "me"), ("from-bin", b"\x01"))
    }
    if outcome == "deadline":
        options["timeout"] = DEADLINE_SECONDS
    return options


def _is_held(outcome: str) -> bool:
    return outcome in ("cancel", "never read")


# -- on threads --------------------------------------------------------------------------------------------------------


def story(callable_: Any, arity: str, outcome: str, way: str, key: str) -> list[Any]:
    """One call from a thread."""
    first = f"{outcome}|{key}".encode()
    request: Any = first if arity.startswith("unary") else iter([first, b"more"])
    told: list[Any] = []
    try:
        _tell(callable_, request, outcome, way, key, told)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        told.append(failed(error))
    RELEASED[key].set()
    if outcome == "never read":
        gc.collect()  # the error that the program caught may keep the call alive in a cycle
    return [*told, SEEN.pop(key, None)]


def _tell(callable_: Any, request: Any, outcome: str, way: str, key: str, told: list[Any]) -> None:
    options = _options(outcome)
    if way in ("call", "with_call"):
        if _is_held(outcome):  # a blocking call cannot be cancelled or dropped
            return
        result = (callable_ if way == "call" else callable_.with_call)(request, **options)
        told.append(in_words(result))
        if way == "with_call":
            told.append(_ended(result[1]))
        return
    call = callable_(request, **options) if way == "stream" else callable_.future(request, **options)
    told.append(_kind(call))
    if outcome == "never read":
        _has_started(key, way, call)
        del call
        return
    over, known = threading.Event(), list[bool]()
    if hasattr(call, "add_done_callback"):
        call.add_done_callback(functools.partial(_over, call, known, over))
    elif hasattr(call, "add_callback"):
        call.add_callback(over.set)
    else:  # an interceptor's own object
        over.set()
    if outcome == "cancel":
        _has_started(key, way, call)
        told.append(shown(functools.partial(_cancel, call)))
    if way == "stream":
        told.append(_items(call, lambda: next(call)))
    else:
        told.append(_result(call))
    told += [
        over.wait(_patience(outcome)),
        known,
        _ended(call),
        [shown(lambda: call.add_callback(over.set)), shown(functools.partial(_cancel, call))],
    ]


def _cancel(call: Any) -> Any:
    return call.cancel()


def _patience(outcome: str) -> float:
    """How long the end may take: gRPC does not call back for a call that it refuses to start."""
    return REFUSED_SECONDS if outcome.startswith("bad") else PATIENCE_SECONDS


def _over(call: Any, known: list[bool], over: threading.Event | asyncio.Event, one: Any) -> None:
    known.append(one is call)
    over.set()


def _has_started(key: str, way: str, call: Any) -> None:
    """Wait until the handler runs; a stream's first item has come by then."""
    if way == "stream":
        next(call)
    assert STARTED[key].wait(PATIENCE_SECONDS)


def _kind(call: Any) -> list[bool]:
    return [isinstance(call, kind) for kind in (grpc.Call, grpc.Future, grpc.RpcError, Exception, grpc.RpcContext)] + [
        call == call,
        call in {call},
        hasattr(call, "result"),
        hasattr(call, "__next__"),
    ]


def _items(call: Any, take: Callable[[], Any]) -> list[Any]:
    found: list[Any] = []
    for _ in range(5):
        try:
            found.append(in_words(take()))
        except StopIteration:
            return [*found, "the end"]
        except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
            return [*found, error is call, failed(error)]
    return found


def _result(call: Any) -> list[Any]:
    told = []
    for name in ("result", "exception", "traceback"):
        try:
            got = getattr(call, name)(PATIENCE_SECONDS)
            told.append([got is call, "a traceback" if type(got).__name__ == "traceback" else in_words(got)])
        except Exception as error:  # noqa: BLE001 - as above
            told.append([error is call, failed(error)])
    return told


def _ended(call: Any) -> list[Any]:
    names = ("code", "details", "initial_metadata", "trailing_metadata", "done", "running", "cancelled", "is_active")
    told = [shown(getattr(call, name)) if hasattr(call, name) else None for name in (*names, "time_remaining")]
    return [*told, in_words(repr(call)), in_words(str(call))]


# -- on a loop ---------------------------------------------------------------------------------------------------------


async def aio_story(callable_: Any, arity: str, outcome: str, key: str) -> list[Any]:
    """One call from a task."""
    told: list[Any] = []
    told_by = _aio_tell(callable_, arity, outcome, key, told)
    try:
        # grpc.aio never ends a stream whose metadata it refuses, and does not call back
        await (asyncio.wait_for(told_by, REFUSED_SECONDS) if outcome == "bad metadata" else told_by)
    except asyncio.CancelledError:
        told.append("cancelled")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        told.append(failed(error))
    RELEASED[key].set()
    if outcome == "never read":
        gc.collect()  # the error that the program caught may keep the call alive in a cycle
    return [*told, SEEN.pop(key, None)]


async def _items_of(first: bytes) -> AsyncIterator[bytes]:
    yield first
    yield b"more"


async def _aio_tell(callable_: Any, arity: str, outcome: str, key: str, told: list[Any]) -> None:
    first = f"{outcome}|{key}".encode()
    call = callable_(first if arity.startswith("unary") else _items_of(first), **_options(outcome))
    kinds = (
        grpc.aio.Call,
        grpc.aio.UnaryUnaryCall,
        grpc.aio.UnaryStreamCall,
        grpc.aio.StreamUnaryCall,
        grpc.aio.StreamStreamCall,
    )
    told.append([isinstance(call, kind) for kind in (*kinds, grpc.RpcError)] + [call == call, call in {call}])
    streams = arity.endswith("stream")
    if _is_held(outcome):
        if streams:
            told.append(await shown_later(call.read))
        while not STARTED[key].is_set():
            await asyncio.sleep(0.002)
        if outcome == "never read":
            call.cancel()  # grpc.aio itself keeps running a dropped one
            return
        told.append(shown(call.cancel))
    over, known = asyncio.Event(), list[bool]()
    call.add_done_callback(functools.partial(_over, call, known, over))
    if streams:
        told.append([await shown_later(call.read)] if outcome == "cancel" else await _aio_items(call))
    else:
        told.append(await shown_later(lambda: call))
        told.append(await shown_later(lambda: call))
    await asyncio.wait_for(over.wait(), PATIENCE_SECONDS)
    told.append(known)
    names = ("code", "details", "initial_metadata", "trailing_metadata", "wait_for_connection")
    told.extend([await shown_later(getattr(call, name)) for name in names])
    told.extend([shown(getattr(call, name)) for name in ("done", "cancelled", "time_remaining", "cancel")])
    told.append(in_words(repr(call)))


async def _aio_items(call: Any) -> list[Any]:
    found: list[Any] = []
    try:
        async for item in call:
            found.append(in_words(item))  # noqa: PERF401 - items before a failure count
    except asyncio.CancelledError:
        return [*found, "cancelled"]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return [*found, failed(error)]
    return found
