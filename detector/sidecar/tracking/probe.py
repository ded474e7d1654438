"""Tests the declared size of the program's pool: a health check sent to a pool that counts as full must not be answered.

The rules:

1. While the pool counts as full and calls are queued behind it, one health check (``grpc.health.v1.Health/Check``) is under
   way, over a separate connection.
2. It needs a worker as every call does. While it is unanswered, the configured size holds.
3. Answered while the same calls are still being served a moment later, it disproves the size.
4. A program that does not implement the health service leaves the size untested: no verdict may rest on it.
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
"""An answer that takes longer than this waits for a worker."""
RETRY_SECONDS = 5.0
"""Between health checks that test nothing."""
_NO_ANSWER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED})


class Answer(Enum):
    """What came of a health check."""

    SERVED = "a worker answered it"
    UNIMPLEMENTED = "the program does not implement the health service"
    NONE = "the program could not be reached"


Check = Callable[[], Awaitable[Answer]]


class PoolProbe:
    """Keeps a health check in progress while ``pool`` counts as full."""

    def __init__(self, pool: ProgramPool, check: Check, clock: Callable[[], float]) -> None:
        """``check`` sends one health check and waits for its answer; ``clock`` gives seconds."""
        self._pool = pool
        self._check = check
        self._clock = clock
        self._sent_at: float | None = None
        self._why = "no health check has been unanswered long enough"

    def doubt(self) -> str:
        """Why nothing may rest on the pool's being full; empty when that is tested, or not claimed. From any thread."""
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
            return  # the pool is full no more
        answer = check.result()
        self._why = answer.value
        if answer is Answer.SERVED:
            await asyncio.sleep(GRACE_SECONDS)
            self._pool.answered_beside(served)  # rule 3
        else:
            await asyncio.sleep(RETRY_SECONDS)


def health_check(address: Address) -> Check:
    """A check of the program at ``address``, with a connection for each: a queued one must not hold up the next."""

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
