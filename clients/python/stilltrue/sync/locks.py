"""Locks, semaphores and queues for threads whose waits are recorded; each works like its standard library counterpart."""

from __future__ import annotations

import queue
import threading
from typing import Any

from stilltrue.runtime.declared.resources import QueueEnd, ResourceRecord
from stilltrue.runtime.declared.with_blocks import is_entered_by_block


class Lock:
    """A recorded ``threading.Lock``."""

    def __init__(self, record: ResourceRecord) -> None:
        """Made by :meth:`stilltrue.Agent.Lock`."""
        self._shares = record
        self._inner = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As ``threading.Lock.acquire``; ``timeout`` in seconds."""
        return _acquire(self._inner, self._shares, blocking, timeout)

    def release(self) -> None:
        """As ``threading.Lock.release``."""
        self._release(bound=False)

    def locked(self) -> bool:
        """As ``threading.Lock.locked``."""
        return self._inner.locked()

    def __enter__(self) -> bool:
        return _acquire(self._inner, self._shares, bound=is_entered_by_block())

    def __exit__(self, *exception: object) -> None:
        self._release(bound=True)

    def _release(self, *, bound: bool) -> bool:
        own = self._shares.releases(bound=bound) if self._inner.locked() else False
        self._inner.release()
        return own

    # used by threading.Condition

    def _release_save(self) -> bool:
        return self._release(bound=True)

    def _acquire_restore(self, bound: bool) -> None:
        _acquire(self._inner, self._shares, bound=bound)

    def _is_owned(self) -> bool:
        return self._inner.locked()


class RLock:
    """A recorded ``threading.RLock``: only its holder can release it."""

    def __init__(self, record: ResourceRecord) -> None:
        """Made by :meth:`stilltrue.Agent.RLock`."""
        self._shares = record
        self._inner = threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As ``threading.RLock.acquire``; ``timeout`` in seconds."""
        me = threading.get_ident()
        if self._owner == me:
            self._depth += 1
            return True
        taken = _acquire(self._inner, self._shares, blocking, timeout, bound=True)
        if taken:
            self._owner, self._depth = me, 1
        return taken

    def release(self) -> None:
        """As ``threading.RLock.release``."""
        if self._owner != threading.get_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self._depth -= 1
        if not self._depth:
            self._free()

    def locked(self) -> bool:
        """As ``threading.RLock.locked`` of Python 3.14, which its ``threading.Condition`` needs."""
        return self._inner.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _free(self) -> None:
        self._owner = None
        self._shares.releases(bound=True)
        self._inner.release()

    # used by threading.Condition

    def _release_save(self) -> int:
        depth, self._depth = self._depth, 0
        self._free()
        return depth

    def _acquire_restore(self, depth: int) -> None:
        self.acquire()
        self._depth = depth

    def _is_owned(self) -> bool:
        return self._owner == threading.get_ident()


class Semaphore:
    """A recorded ``threading.Semaphore``. Once a thread without a share releases it, it is a signal: its waits do not count."""

    def __init__(self, record: ResourceRecord, value: int) -> None:
        """Made by :meth:`stilltrue.Agent.Semaphore`."""
        self._shares = record
        self._inner = threading.Semaphore(value)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """As ``threading.Semaphore.acquire``; ``timeout`` in seconds."""
        return _acquire(self._inner, self._shares, blocking, timeout)

    def release(self, n: int = 1) -> None:
        """As ``threading.Semaphore.release``."""
        for _ in range(n):
            self._shares.releases()
        self._inner.release(n)

    def __enter__(self) -> bool:
        return _acquire(self._inner, self._shares, bound=is_entered_by_block())

    def __exit__(self, *exception: object) -> None:
        self._shares.releases(bound=True)
        self._inner.release()


class Queue:
    """A recorded ``queue.Queue``. A wait to get is recorded if producers were declared, a wait to put if consumers were."""

    def __init__(self, maxsize: int, getters: QueueEnd, putters: QueueEnd) -> None:
        """Made by :meth:`stilltrue.Agent.Queue`."""
        self._inner: queue.Queue[Any] = queue.Queue(maxsize)
        self._getters = getters
        self._putters = putters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """As ``queue.Queue.put``; ``timeout`` in seconds."""
        try:
            self._inner.put_nowait(item)
        except queue.Full:
            if not block:
                raise
            wait = self._putters.begin_wait(timeout)
            try:
                self._inner.put(item, True, timeout)
            finally:
                self._putters.end_wait(wait)
        self._getters.end_all_waits()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """As ``queue.Queue.get``; ``timeout`` in seconds."""
        try:
            item = self._inner.get_nowait()
        except queue.Empty:
            if not block:
                raise
            wait = self._getters.begin_wait(timeout)
            try:
                item = self._inner.get(True, timeout)
            finally:
                self._getters.end_wait(wait)
        self._putters.end_all_waits()
        return item

    def put_nowait(self, item: Any) -> None:
        """As ``queue.Queue.put_nowait``."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """As ``queue.Queue.get_nowait``."""
        return self.get(block=False)


def _acquire(
    inner: Any, record: ResourceRecord, blocking: bool = True, timeout: float | None = None, *, bound: bool = False
) -> bool:
    """Take a share of ``inner``; ``bound``: the thread that takes it will give it back."""
    if not blocking and timeout not in (None, -1):
        raise ValueError("can't specify a timeout for a non-blocking call")
    if inner.acquire(blocking=False):
        record.acquired(bound=bound)
        return True
    if not blocking:
        return False
    seconds = None if timeout is None or timeout < 0 else timeout
    wait = record.begin_wait(seconds)
    try:
        taken = bool(inner.acquire() if seconds is None else inner.acquire(True, seconds))
    except BaseException:
        record.end_wait(wait)
        raise
    if taken:
        record.acquired(wait, bound=bound)
    else:
        record.end_wait(wait)
    return taken
