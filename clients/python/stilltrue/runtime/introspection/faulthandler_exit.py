"""Whether ``faulthandler.dump_traceback_later(exit=True)`` is pending, a timer that Python does not expose.

Known if the agent was attached before the call; then these functions replace those of ``faulthandler``.
"""

from __future__ import annotations

import faulthandler
import inspect
import os
import time
from collections.abc import Callable
from typing import Any

_ARGUMENTS = inspect.Signature(
    [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for name, default in (("timeout", inspect.Parameter.empty), ("repeat", False), ("file", None), ("exit", False))
    ]
)


class _Pending:
    """The time (steady clock) of the exit and the process id: a forked child has no such timer."""

    at: float | None = None
    process: int = 0


_PENDING = _Pending()


def dump_traceback_later(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Replaces ``faulthandler.dump_traceback_later``; a later call overrides an earlier one."""
    done = original(*args, **kwargs)
    given = _ARGUMENTS.bind(*args, **kwargs).arguments
    _PENDING.at = time.monotonic() + given["timeout"] if given.get("exit") else None
    _PENDING.process = os.getpid()
    return done


def cancel_dump_traceback_later(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Replaces ``faulthandler.cancel_dump_traceback_later``."""
    _PENDING.at = None
    return original(*args, **kwargs)


STAND_INS = (("dump_traceback_later", dump_traceback_later), ("cancel_dump_traceback_later", cancel_dump_traceback_later))
MODULE = faulthandler


def seconds_to_exit() -> float | None:
    """Seconds until faulthandler ends the process, or None."""
    if _PENDING.at is None or _PENDING.process != os.getpid():
        return None
    return max(0.0, _PENDING.at - time.monotonic())
