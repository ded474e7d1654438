"""Hooks for the fork and the end of the process, which do not keep the agent alive."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from weakref import WeakMethod

LAST = -100
"""Priority of a finalizer that runs after the application's own, which may still make calls, and after that of a queue of
``multiprocessing`` (-5), which waits until all items are written."""


def register(
    *,
    at_exit: Callable[[], None],
    before_fork: Callable[[], None],
    after_fork_in_parent: Callable[[], None],
    after_fork_in_child: Callable[[], None],
) -> None:
    """Call these methods of one object for as long as the object lives."""
    atexit.register(_weakly(at_exit))
    os.register_at_fork(
        before=_weakly(before_fork), after_in_parent=_weakly(after_fork_in_parent), after_in_child=_weakly(after_fork_in_child)
    )


def say_goodbye_in_children(close: Callable[[], None]) -> None:
    """Call ``close`` when this process ends, if ``multiprocessing`` started it: such a process never runs ``atexit``.

    Otherwise each worker of a pool would stay a missing member until it is forgotten. Imports nothing.
    """
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, close, exitpriority=LAST)


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """A function that calls ``method`` if its object is alive."""
    weak = WeakMethod(method)

    def call() -> None:
        known = weak()
        if known is not None:
            known()

    return call
