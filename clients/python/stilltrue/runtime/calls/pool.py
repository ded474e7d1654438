"""Thread pools whose size the recorder knows, and which tell behind which pool a request is queued."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Any
from weakref import WeakKeyDictionary, ref

from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.runtime.compat import seconds_left
from stilltrue.runtime.recorder import LockedRecorder


class _Arriving(threading.local):
    """The call that gRPC's own thread has just let in, and will hand to a pool next."""

    served: ServerCall | None = None


arriving = _Arriving()
_STARTS_THREADS: Any = ThreadPoolExecutor._adjust_thread_count  # noqa: SLF001


class PoolTask:
    """A callable that is handed to a pool to serve a call."""

    __slots__ = ("served",)

    def __init__(self, served: ServerCall) -> None:
        """``served`` has arrived."""
        self.served = served


_KNOWN: WeakKeyDictionary[ThreadPoolExecutor, tuple[ref[LockedRecorder], PoolRecord]] = WeakKeyDictionary()


class PoolRecord:
    """A pool by name."""

    __slots__ = ("executor", "name")

    def __init__(self, name: str, executor: ThreadPoolExecutor) -> None:
        """``executor`` is not kept alive."""
        self.name = name
        self.executor = ref(executor)

    def size(self) -> int | None:
        """How many workers it has or may have by now; None: unknown."""
        executor = self.executor()
        return None if executor is None else _size_of(executor)


def _size_of(executor: ThreadPoolExecutor) -> int | None:
    """The size of an executor whose own class does not say how its threads are started."""
    kind: Any = type(executor)
    if not issubclass(kind, ThreadPoolExecutor) or kind._adjust_thread_count is not _STARTS_THREADS:  # noqa: SLF001
        return None
    return max(executor._max_workers, len(executor._threads))  # noqa: SLF001 - it is told nowhere else


def record_pool(executor: ThreadPoolExecutor, live: LockedRecorder, name: str) -> PoolRecord:
    """Have ``executor`` tell which calls are queued behind it: its ``submit`` is wrapped, and nothing else changes. Once."""
    known = _KNOWN.get(executor)
    if known is not None and known[0]() is live:
        return known[1]
    record = PoolRecord(name, executor)
    _KNOWN[executor] = (ref(live), record)
    live.pool_opened(name, record.size)
    submit = executor.submit

    def recorded(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        served = fn.served if isinstance(fn, PoolTask) else arriving.served
        if served is not None:
            arriving.served = None
            try:
                left = seconds_left(args)
                if left is None or left == inf:
                    live.recorder.queued(served, name, None, left is not None)
                else:
                    live.queued(served, name, left, True)
            except Exception:  # noqa: BLE001 - fail open
                live.report_failure("a request is queued")
        return submit(fn, *args, **kwargs)

    executor.submit = recorded  # type: ignore[method-assign]
    return record
