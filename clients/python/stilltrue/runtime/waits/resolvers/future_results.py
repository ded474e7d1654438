"""Waits for futures and threads: ``Future.result()``, ``concurrent.futures.wait`` and ``as_completed``, ``Thread.join()``.

They wait for the thread, or for the party that completes each future: the executor's thread that runs its item, the task that
``run_coroutine_threadsafe`` made, or the threads that must finish before a queued item begins. A wait for all of several
futures is a wait for the running ones, as the queued ones begin only afterwards. With a timeout the thread counts as active. A
running future cannot be cancelled, but any party that has it may complete it.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.waits.ending_operations import COMPLETING
from stilltrue.runtime.waits.futures.resolver import is_plain, wait_for_completers
from stilltrue.runtime.waits.resolvers.executors import behind
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait


def _read(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    awaited = None if stack.task is not None else compat.awaited_at(stack.frames[0])
    if awaited is None:
        return None
    on, things, needs_all = awaited
    return wait_for_results(on, things, stack, view, needs_all=needs_all)


def wait_for_results(on: Any, things: tuple[Any, ...], stack: CallStack, view: ProcessView, *, needs_all: bool) -> SeenWait:
    """The wait of the party with this stack for one or all of these futures or threads; ``on``: the object of the wait."""
    if needs_all and len(things) > 1:
        things = tuple(one for one in things if isinstance(one, threading.Thread) or view.queued(one) is None) or things[:1]
    found = None if needs_all and len(things) > 1 else behind(on, things, view)
    if found is None and isinstance(on, Future) and is_plain(on) and view.thread_running(on) is None:
        found = wait_for_completers(on, stack, view)
    if found is not None:
        return found
    what = "the end of {}" if isinstance(things[0], threading.Thread) else "the result of a future that {} works on"
    run = tuple(one for one in things if isinstance(one, Future) and compat.is_running_future(one))
    return SeenWait(
        on=on, enders=things, needs=None if needs_all else 1, what=what, once=True, ended_through=run, ending_names=COMPLETING
    )


RESOLVERS = (Resolver((), _read),)
