"""Waits for what others work on: ``Future.result()``, ``concurrent.futures.wait`` and ``as_completed``, ``Thread.join()``.

They wait for the party that completes each future (the executor's thread that runs its item, the task that
``run_coroutine_threadsafe`` made, or the threads that must end before a queued item runs), or for the thread. Who waits for
all of several waits for those that run: the queued ones run only once these have ended. With a timeout of its own the thread
counts as active. A future that somebody works on cannot be cancelled, but whoever has it may complete it.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from stilltrue.runtime import compat
from stilltrue.runtime.seen.wait import CallStack, Resolver, Scene, SeenWait
from stilltrue.runtime.seen.waits.executors import behind

_COMPLETING = frozenset({"set_result", "set_exception"})


def _read(stack: CallStack, _: int, scene: Scene) -> SeenWait | None:
    awaited = None if stack.task is not None else compat.awaited_at(stack.frames[0])
    if awaited is None:
        return None
    on, things, needs_all = awaited
    if needs_all and len(things) > 1:
        things = tuple(one for one in things if isinstance(one, threading.Thread) or scene.queued(one) is None) or things[:1]
    found = None if needs_all and len(things) > 1 else behind(on, things, scene)
    if found is not None:
        return found
    what = "the end of {}" if isinstance(on, threading.Thread) else "the result of a future that {} works on"
    run = tuple(one for one in things if isinstance(one, Future) and compat.is_being_run(one))
    return SeenWait(on=on, enders=things, needs=None if needs_all else 1, what=what, once=True, undone=run, by=_COMPLETING)


RESOLVERS = (Resolver((), _read),)
