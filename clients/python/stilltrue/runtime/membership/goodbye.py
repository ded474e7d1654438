"""A goodbye from processes that ``multiprocessing`` has started: it ends them without what ``atexit`` knows.

Without it each worker of a pool would stay a missing member until it is forgotten.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

LAST = -1
"""After the application's own finalizers, which may still call."""


def say_goodbye_in_children(close: Callable[[], None]) -> None:
    """Call ``close`` at the end of this process, if ``multiprocessing`` has started it. Nothing is imported for that."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, close, exitpriority=LAST)
