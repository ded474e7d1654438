"""What the end of a ``with`` block closes: by itself, or by the generator function behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.calls.outgoing_call import RecordedMethod
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.ahead import CLOSING
from stilltrue.runtime.look.code.attributes import attribute_of, attributes_of
from stilltrue.runtime.look.code.names import mentioned_in

_SHELLS = ("stilltrue.sync.channel", "stilltrue.aio.channel")
_OWNED = re.compile(r"channel|server|stub|grpc|client|connect", re.I)
_CLOSING_NAMED = CLOSING - {"terminate"}
"""In functions that are named only: whatever ends a child process names ``terminate``, too."""


def entered(value: Any) -> Iterator[Any]:
    """What may be closed at the end of a block that has ``value``: by itself, or by the generator function that it names.

    A block that has a stub (``with connected() as stub``) closes its channel.
    """
    yield value
    inner = value if type(value) is FunctionType else None
    for function in (inner, *(compat.bound_to(inner) if inner is not None else ())):  # behind ``contextmanager``
        if type(function) is FunctionType and closes(function.__code__):
            yield function
            yield from (function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__)
    for one in (value, *attributes_of(value)):
        method = getattr(one, "_method", None) if type(one).__module__ in _SHELLS else None
        if isinstance(method, RecordedMethod):
            yield method.dialled()


def may_own(value: Any) -> bool:
    """Whether the generator behind a block may have made the channel or the server that it closes."""
    functions = (value, *compat.bound_to(value)) if type(value) is FunctionType else ()
    codes = [one.__code__ for one in functions if type(one) is FunctionType and closes(one.__code__)]
    return any(_OWNED.search(name) for code in codes for name in (*code.co_names, *code.co_varnames, *code.co_freevars))


def blocks_of(task: Task) -> dict[CodeType, list[Any]]:
    """By the code of each of its frames, the generators behind the blocks that a task is in."""
    found: dict[CodeType, list[Any]] = {}
    for one in compat.chain_of(task.get_coro()):
        code = compat.code_of(one)
        if code is not None:
            exits = (getattr(held, "__self__", None) for held in compat.names_in(one) if type(held) is MethodType)
            inner = (attribute_of(manager, "gen") for manager in exits)
            found.setdefault(code, []).extend(gen for gen in inner if compat.code_of(gen) is not None)
    return found


def closes(code: CodeType) -> bool:
    """Whether a function speaks of closing or stopping something."""
    if not _CLOSING_NAMED.isdisjoint((*mentioned_in(code), *(one for one in code.co_consts if isinstance(one, str)))):
        return True
    return any(closes(one) for one in code.co_consts if isinstance(one, CodeType))
