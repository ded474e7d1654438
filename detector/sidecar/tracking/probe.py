"""Tests the declared size of the program's pool: while the pool counts as full, a health check must not be answered.

The rules:

1. While the pool counts as full and calls are queued behind it, a health check (``grpc.health.v1.Health/Check``) is in
   progress over a separate connection.
2. It needs a worker like any other call. As long as it is unanswered, the declared size is confirmed.
3. If it is answered, and the same calls are still being served a moment later, the declared size is wrong.
4. If the program does not implement the health service, the size is untested, and no verdict may rely on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

import grpc
import grpc.aio

from detector.ops.address import Address
from detector.sidecar.tracking.pool import GRACE_SECONDS, ProgramPool

METHOD = "/grpc.health.v1.Health/Check"
LOOK_SECONDS = 0.1
PENDING_SECONDS_MIN = 0.5
"""A check that is unanswered for this long counts as waiting for a worker."""
RETRY_SECONDS = 5.0
"""Pause after a health check that proved nothing."""
_NO_ANSWER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED})


class Answer(Enum):
    """The outcome of a health check."""

    SERVED = "a worker answered it"
    UNIMPLEMENTED = "the program does not implement the health service (grpc.health.v1.Health), whose check would test it"
    NONE = "the program could not be reached"


Check = Callable[[], Awaitable[Answer]]


class PoolProbe:
    """Keeps a health check in progress while ``pool`` counts as full."""

    def __init__(self, pool: ProgramPool, check: Check, clock: Callable[[], float]) -> None:
        """``check`` sends a health check and waits for its answer; ``clock`` returns seconds."""
        self._pool = pool
        self._check = check
        self._clock = clock
        self._sent_at: float | None = None
        self._why = "no health check has stayed unanswered long enough"

    def doubt(self) -> str:
        """Return why no verdict may rely on the pool being full; empty if that is tested or not claimed. Thread-safe."""
        if not self._pool.claimed_full:
            return ""
        sent_at = self._sent_at
        if sent_at is not None and self._clock() - sent_at >= PENDING_SECONDS_MIN:
            return ""  # rule 2
        return f"--workers {self._pool.size} is not tested: {self._why}"

    async def run(self) -> None:
        """Test the pool until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._pool.claimed_full:
                await self._probe()

    async def _probe(self) -> None:
        served = self._pool.served
        self._sent_at = self._clock()
        check = asyncio.ensure_future(self._check())
        try:
            while not check.done() and self._pool.claimed_full:
                await asyncio.wait({check}, timeout=LOOK_SECONDS)
        finally:
            self._sent_at = None
            check.cancel()
        if not check.done() or check.cancelled():
            return  # the pool is no longer full
        answer = check.result()
        self._why = answer.value
        if answer is Answer.SERVED:
            await asyncio.sleep(GRACE_SECONDS)
            self._pool.answered_beside(served)  # rule 3
        else:
            await asyncio.sleep(RETRY_SECONDS)


def health_check(address: Address) -> Check:
    """Return a check of the program at ``address``, on a new connection each time: a queued one must not block the next."""

    async def check() -> Answer:
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
        async with grpc.aio.insecure_channel(str(address), options=options) as channel:
            call: Any = channel.unary_unary(METHOD, request_serializer=None, response_deserializer=None)
            try:
                await call(b"")
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return Answer.UNIMPLEMENTED
                return Answer.NONE if error.code() in _NO_ANSWER else Answer.SERVED
        return Answer.SERVED

    return check
