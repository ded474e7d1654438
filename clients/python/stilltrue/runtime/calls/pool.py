"""Thread pools that report their size and queued requests to the recorder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from inspect import unwrap
from itertools import chain, count
from math import inf
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary, ref

from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.runtime.compat import seconds_left
from stilltrue.runtime.locked_recorder import LockedRecorder


class _Arriving(threading.local):
    """The call that gRPC's own thread has just accepted and will hand to a pool next."""

    served: ServerCall | None = None


arriving = _Arriving()
_SUPER = frozenset({"super", ThreadPoolExecutor.__name__})
_STARTS_THREADS: Any = ThreadPoolExecutor._adjust_thread_count  # noqa: SLF001


class PoolTask:
    """A callable handed to a pool to serve a call."""

    __slots__ = ("served",)

    def __init__(self, served: ServerCall) -> None:
        """``served`` is the call's entry in the recorder."""
        self.served = served


_KNOWN: WeakKeyDictionary[ThreadPoolExecutor, tuple[ref[LockedRecorder], PoolRecord]] = WeakKeyDictionary()


class PoolRecord:
    """A named pool."""

    __slots__ = ("executor", "name", "runs_elsewhere")

    def __init__(self, name: str, executor: ThreadPoolExecutor) -> None:
        """``executor`` is referenced weakly."""
        self.name = name
        self.executor = ref(executor)
        self.runs_elsewhere = any(map(_runs_elsewhere, type(executor).__mro__))

    def size(self) -> int | None:
        """The largest number of workers it may have now; None if unknown, 0 if it is gone."""
        executor = self.executor()
        if executor is None:
            return 0
        return None if self.runs_elsewhere else _size_of(executor)


def record_pool_of_server(pool: Executor | None, live: LockedRecorder) -> None:
    """Record the pool of a server that was perhaps not recorded. If it is no ``ThreadPoolExecutor``, its size is unknown."""
    if isinstance(pool, ThreadPoolExecutor):
        record_pool(pool, live)
    else:
        live.pool_opened("of a server" if pool is None else f"{type(pool).__name__} of a server", None)


def _size_of(executor: ThreadPoolExecutor) -> int | None:
    """The size of an executor whose class does not override how threads are started; None for others."""
    kind: Any = type(executor)
    if not issubclass(kind, ThreadPoolExecutor) or kind._adjust_thread_count is not _STARTS_THREADS:  # noqa: SLF001
        return None
    return max(executor._max_workers, len(executor._threads))  # noqa: SLF001 - there is no public API


def _runs_elsewhere(kind: type) -> bool:
    """Whether the ``submit`` that a class derived from ``ThreadPoolExecutor`` defines does not hand its items on to that."""
    submit = vars(kind).get("submit") if issubclass(kind, ThreadPoolExecutor) and kind is not ThreadPoolExecutor else None
    if type(submit) is not FunctionType:
        return False
    names: set[str] = set()
    todo = [unwrap(submit).__code__]
    while todo:
        code = todo.pop()
        names.update(code.co_names)
        todo += [one for one in code.co_consts if type(one) is CodeType]
    return "submit" not in names or names.isdisjoint(_SUPER)


def record_pool(executor: ThreadPoolExecutor, live: LockedRecorder, name: str = "") -> PoolRecord:
    """Record the calls queued behind ``executor`` by wrapping its ``submit``. Idempotent.

    A number makes its name unique among the pools of ``live``: two with one name would count as one, with the size of the last.
    """
    known = _KNOWN.get(executor)
    if known is not None and known[0]() is live:
        return known[1]
    record = PoolRecord(name, executor)
    size = record.size
    numbered = (f"{name or 'pool'}-{number}" for number in count(2 if name else 1))
    names = chain((name,) if name else (), numbered)
    name = record.name = next(one for one in names if live.pools.setdefault(one, size) is size)
    _KNOWN[executor] = (ref(live), record)
    live.pool_opened(name, size)
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
                live.report_failure("queueing a request")
        return submit(fn, *args, **kwargs)

    executor.submit = recorded  # type: ignore[method-assign]
    return record
