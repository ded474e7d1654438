"""What the agent does last as the interpreter exits: exit handlers that the program registers may make calls, too.

``atexit`` runs its functions in reverse order, so this module is imported with the package, before the program's modules.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable

_functions: list[Callable[[], None]] = []


def at_exit(function: Callable[[], None]) -> None:
    """Call ``function`` after all exit handlers registered since the package was imported."""
    _functions.append(function)


def _exit() -> None:
    try:
        while _functions:
            _functions.pop()()
    finally:
        if _functions:
            _exit()


atexit.register(_exit)
