"""What the process calls for an agent when it forks and when it ends, without keeping the agent alive."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from weakref import WeakMethod


def register(
    *,
    at_exit: Callable[[], None],
    before_fork: Callable[[], None],
    after_fork_in_parent: Callable[[], None],
    after_fork_in_child: Callable[[], None],
) -> None:
    """Have these methods of one object called, for as long as it is there."""
    atexit.register(_weakly(at_exit))
    os.register_at_fork(
        before=_weakly(before_fork),
        after_in_parent=_weakly(after_fork_in_parent),
        after_in_child=_weakly(after_fork_in_child),
    )


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Calls ``method`` if its object is still there."""
    weak = WeakMethod(method)

    def call() -> None:
        known = weak()
        if known is not None:
            known()

    return call
