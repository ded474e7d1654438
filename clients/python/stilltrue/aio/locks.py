"""Locks, semaphores and queues for tasks whose waits are recorded; each works like its asyncio counterpart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from stilltrue.runtime.declared.resources import QueueEnd, ResourceRecord
from stilltrue.runtime.declared.with_blocks import is_entered_by_block


class _Lockable:
    """Base of locks and semaphores."""

    def __init__(self, record: ResourceRecord, inner: asyncio.Lock | asyncio.Semaphore) -> None:
        self._shares = record
        self._inner = inner

    async def acquire(self) -> bool:
        """As ``asyncio.Lock.acquire``."""
        await self._acquire(bound=False)
        return True

    async def _acquire(self, *, bound: bool) -> None:
        """Acquire a share; ``bound``: the task that acquires it will release it."""
        wait = self._shares.begin_wait() if self._inner.locked() else None
        try:
            await self._inner.acquire()
        except BaseException:
            self._shares.end_wait(wait)
            raise
        self._shares.acquired(wait, bound=bound)

    def release(self) -> None:
        """As ``asyncio.Lock.release``."""
        self._shares.releases()
        self._inner.release()

    def locked(self) -> bool:
        """As ``asyncio.Lock.locked``."""
        return self._inner.locked()

    def __aenter__(self) -> Awaitable[None]:
        return self._acquire(bound=is_entered_by_block())

    async def __aexit__(self, *exception: object) -> None:
        self._shares.releases(bound=True)
        self._inner.release()


class Lock(_Lockable):
    """A recorded ``asyncio.Lock``. Made by ``agent.aio.Lock``."""


class Semaphore(_Lockable):
    """A recorded ``asyncio.Semaphore``. Made by ``agent.aio.Semaphore``."""


class Queue:
    """A recorded ``asyncio.Queue``. A wait to get is recorded if producers were declared, a wait to put if consumers were."""

    def __init__(self, maxsize: int, getters: QueueEnd, putters: QueueEnd) -> None:
        """Made by ``agent.aio.Queue``."""
        self._inner: asyncio.Queue[Any] = asyncio.Queue(maxsize)
        self._getters = getters
        self._putters = putters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(self, item: Any) -> None:
        """As ``asyncio.Queue.put``."""
        wait = self._putters.begin_wait() if self._inner.full() else None
        try:
            await self._inner.put(item)
        finally:
            self._putters.end_wait(wait)
        self._getters.end_all_waits()

    async def get(self) -> Any:
        """As ``asyncio.Queue.get``."""
        wait = self._getters.begin_wait() if self._inner.empty() else None
        try:
            item = await self._inner.get()
        finally:
            self._getters.end_wait(wait)
        self._putters.end_all_waits()
        return item

    def put_nowait(self, item: Any) -> None:
        """As ``asyncio.Queue.put_nowait``."""
        self._inner.put_nowait(item)
        self._getters.end_all_waits()

    def get_nowait(self) -> Any:
        """As ``asyncio.Queue.get_nowait``."""
        item = self._inner.get_nowait()
        self._putters.end_all_waits()
        return item
