"""What requests to come can do with an object that the methods of a gRPC server can reach.

Rules:

1. A method may run at any time while its server has a free worker; one on an event loop needs none. If its code, or code that
   it calls, mentions what ends the wait for the object (:mod:`~stilltrue.runtime.waits.reachability.names.mentions`), nothing
   is proved. Interceptors need no worker.
2. If all workers of the server are busy, a request begins once one of them continues: so these reach the object in its stead.
   Nothing is proved if the application can give the pool more workers, or a method has a pool of its own.
3. Any other method can only hand the object to a party that then ends the wait: a thread whose remaining code mentions what
   does so. These threads count as able to reach the object. So do a timer whose function mentions it, an executor's thread for
   the items in its queue, and any other thread that runs neither the application's own code nor gRPC's and is no idle worker:
   what it is to call is unknown. So do a task of an event loop, and the loop's thread for the loop's callbacks
   (:mod:`~stilltrue.runtime.waits.reachability.loops.on_loops`).
4. If a suspended generator of the application mentions what ends the wait, nothing is proved. Nor is it if the wait ends in
   another way: a wait for a child process.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, thread
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_ours, is_own_code
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.called_code.call_graph import names_in
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within
from stilltrue.runtime.waits.reachability.loops.loop_contents import LoopContents
from stilltrue.runtime.waits.reachability.loops.on_loops import handed_to, loops_of, others_mention, servers_on
from stilltrue.runtime.waits.reachability.names.code_names import census
from stilltrue.runtime.waits.reachability.names.mentions import may_end, may_end_ahead
from stilltrue.runtime.waits.resolvers.executors import GROWING, executor_of, items_behind

SECONDS_MAX = 0.1
"""Processor time to read the methods."""
_IDLE = frozenset({threading.__file__, queue.__file__, thread.__file__})
_OWN_POOL = ("experimental_thread_pool", "experimental_non_blocking")
"""Attributes by which gRPC runs a method outside the server's pool."""
_Frames = Mapping[int, Sequence[FrameType]]


def begun_by_requests(waking: frozenset[str], running: _Frames, contents: LoopContents) -> frozenset[int | Task] | None:
    """The threads and tasks that stand for the requests to come (rules 2 and 3); None: nothing is proved.

    ``waking``: the names of the operations that end the wait; ``running``: all threads' frames; ``contents``: of their loops.
    """
    if not waking:
        return None
    functions, paused = census()
    until = time.thread_time() + SECONDS_MAX
    loops = loops_of(running)
    found: set[int | Task] = set()
    for server in (*_servers(running), *servers_on(loops.values())):
        workers = None if compat.is_aio_server(server) else _busy_workers(server, running)
        if workers is not None and any(may_grow_pools(one.__code__) for one in functions):
            return None
        found.update(workers or ())
        for method, behaviour in compat.methods_of_server(server):
            if time.thread_time() > until or (_is_at_once(method, workers) and may_end(behaviour, waking)):
                return None
            if workers is not None and _may_have_own_pool(behaviour):
                return None
    handed = (
        None if others_mention(paused, running, waking) else handed_to(loops, contents, waking, partial(may_end, waking=waking))
    )
    if handed is None or time.thread_time() > until:
        return None
    return frozenset(found.union(handed, (ident for ident, frames in running.items() if _may_end(frames, waking))))


@cached_by_code
def may_grow_pools(code: CodeType) -> bool:
    """Whether it is the application's own code that may give an executor more threads; to measure its queue does not."""
    if not is_own_code(code):
        return False
    texts = (text for one in codes_within(code) for text in one.co_consts if type(text) is str)
    return not GROWING.isdisjoint(names_in(code)) or not GROWING.isdisjoint(texts)


def _servers(running: _Frames) -> Iterator[Any]:
    """The servers (threads) that run, as gRPC keeps them."""
    serving = (frame for frames in running.values() for frame in frames if compat.is_serving(frame))
    yield from {id(server): server for frame in serving if (server := variables_of(frame).get("state")) is not None}.values()


def _busy_workers(server: Any, running: _Frames) -> list[int] | None:
    """The threads of a server's pool, if all of them are busy and there will be no further one; else None."""
    pool = getattr(server, "thread_pool", None)
    if type(pool) is not ThreadPoolExecutor:
        return None
    every = [ident for ident, frames in running.items() if executor_of(frames) is pool]
    busy = [ident for ident in every if compat.running_item(list(running[ident])) is not None]
    return busy if len(busy) == len(every) and len(busy) >= pool._max_workers else None  # noqa: SLF001 - there is no public API


def _is_at_once(method: str, workers: list[int] | None) -> bool:
    """Whether a request for a method begins at once. ``method``: its name, one for people if it is an interceptor's."""
    return workers is None or not method.startswith("/")


def _may_have_own_pool(behaviour: Any) -> bool:
    return type(behaviour) not in (FunctionType, MethodType) or any(hasattr(behaviour, name) for name in _OWN_POOL)


def _is_of_grpc(function: Any) -> bool:
    """Whether it is what gRPC runs for a request: rules 1 and 2 are about that."""
    code, _, _ = compat.code_behind(function)
    return code is not None and compat.is_grpc(code.co_filename)


def _may_end(frames: Sequence[FrameType], waking: frozenset[str]) -> bool:
    """Rule 3, for a thread with these frames, and for the items that are queued behind it."""
    if any(may_end(item.fn, waking) for item in items_behind(frames) if not _is_of_grpc(item.fn)):
        return True
    if any(is_own_code(frame.f_code) for frame in frames):
        return any(may_end_ahead(frame, waking) for frame in frames)
    timer = next((variables_of(one).get("self") for one in frames if one.f_code is threading.Timer.run.__code__), None)
    if timer is not None:
        return may_end(attribute_of(timer, "function"), waking)
    files = {one.f_code.co_filename for one in frames if not (is_ours(one.f_code) or compat.is_running_loop(one.f_code))}
    return not all(file in _IDLE or compat.is_grpc(file) for file in files)
