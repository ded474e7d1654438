"""Whether code ends the run of its event loop: ``SystemExit`` and ``KeyboardInterrupt`` leave a task or a callback.

The loop stops, and ``asyncio.run`` cancels every other task of it. In any other thread than the main one such an exception ends
that thread alone, and the main thread ends its program when that is done: neither counts.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterable
from itertools import pairwise
from types import BuiltinFunctionType, CodeType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.by_code import kept_by_code
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.look.code.names import VARIABLES

_LEAVING = frozenset({"exit", "quit"})
_RAISED = frozenset({"SystemExit", "KeyboardInterrupt"})


def leaves_its_loop(code: CodeType, names: frozenset[str], named: Iterable[CodeType]) -> bool:
    """Whether a function of the application's own does so, in whose code these names are ahead, or one of ``named``."""
    if not is_own_code(code):
        return False
    here = not _LEAVING.isdisjoint(names) or (not _RAISED.isdisjoint(names) and _raises(code))
    return here or any(is_own_code(one) and (not _LEAVING.isdisjoint(one.co_names) or _raises(one)) for one in named)


def is_exit(callback: Any) -> bool:
    """Whether a callback is ``sys.exit`` itself, given some of its arguments or not."""
    return builtin_in(callback) in _LEAVING


def builtin_in(callback: Any) -> str:
    """The name of the builtin function that a callback is, or a partial of it; empty for anything else."""
    function = callback.func if type(callback) is functools.partial else callback
    return compat.name_of(function) if type(function) is BuiltinFunctionType else ""


@kept_by_code
def _raises(code: CodeType) -> bool:
    """Whether it raises one of these exceptions: the class, or what the class is called for."""
    named = ((one, after.opname) for one, after in pairwise(dis.get_instructions(code)) if one.opname in VARIABLES)
    return any(one.argval in _RAISED and (after == "RAISE_VARARGS" or "NULL" in one.argrepr) for one, after in named)
