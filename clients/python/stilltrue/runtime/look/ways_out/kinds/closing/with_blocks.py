"""Objects that the end of a ``with`` block closes, directly or through the generator function behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

import grpc
import grpc.aio

from stilltrue.runtime import compat
from stilltrue.runtime.calls.outgoing_call import RecordedMethod
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.called_code.methods import methods_of
from stilltrue.runtime.look.code.attributes import attribute_of, attributes_of, inherited, named_values
from stilltrue.runtime.look.code.instructions_ahead import CLOSING
from stilltrue.runtime.look.code.names import mentioned_in
from stilltrue.runtime.look.ways_out.reach import named_by
from stilltrue.runtime.waits.futures.own_futures import closes_only_own

_COLLECTIONS = (dict, list, tuple, set)
_SHELLS = ("stilltrue.sync.channel", "stilltrue.aio.channel")
_OWNED = re.compile(r"channel|server|stub|grpc|client|connect", re.I)
_CLOSING_NAMED = CLOSING - {"terminate"}
"""For functions that are only named: code that ends a child process names ``terminate``, too."""


def closed_at_exit(value: Any) -> Iterator[Any]:
    """The objects that may be closed at the end of a block with ``value``, directly or by the generator function behind it.

    A block with a stub (``with connected() as stub``) closes its channel.
    """
    yield value
    inner = value if type(value) is FunctionType else None
    for function in (inner, *(compat.bound_to(inner) if inner is not None else ())):  # behind ``contextmanager``
        if type(function) is FunctionType and mentions_closing(function.__code__):
            yield function
            yield from named_values(function.__code__.co_names, function.__globals__)
    for one in (value, *attributes_of(value)):
        method = getattr(one, "_method", None) if type(one).__module__ in _SHELLS else None
        if isinstance(method, RecordedMethod):
            yield method.dialled()


def entered_and_closed(value: Any) -> Iterator[Any]:
    """Of ``value`` and the items of such a collection, the objects that the end of a block with them would close."""
    for one in (value, *(named_by(value) or () if issubclass(type(value), _COLLECTIONS) else ())):
        found = (inherited(type(one), name) for name in ("__exit__", "__aexit__"))
        if isinstance(one, grpc.Channel | grpc.aio.Channel) or any(
            type(exit_) is FunctionType and is_own_code(exit_.__code__) and mentions_closing(exit_.__code__) for exit_ in found
        ):
            yield one


def closed_by_own_exit(thing: Any) -> Iterator[Any]:
    """What the exit of an object's class of the program's own may close: the object, and what its code names."""
    for name in ("__exit__", "__aexit__"):
        left = inherited(type(thing), name)
        if type(left) is FunctionType and is_own_code(left.__code__):
            called = (one for word in left.__code__.co_names for one in methods_of((type(thing),)).get(word, ()))
            for function in (left, *called):
                if mentions_closing(function.__code__):
                    yield from (thing, *compat.bound_to(function))
                    yield from named_values(function.__code__.co_names, function.__globals__)


def may_own_channel(value: Any) -> bool:
    """Whether the generator behind a block may have created the channel or server it closes."""
    functions = (value, *compat.bound_to(value)) if type(value) is FunctionType else ()
    codes = [one.__code__ for one in functions if type(one) is FunctionType and mentions_closing(one.__code__)]
    return any(_OWNED.search(name) for code in codes for name in (*code.co_names, *code.co_varnames, *code.co_freevars))


def block_generators(task: Task) -> dict[CodeType, list[Any]]:
    """The generators behind a task's open blocks, by the code of its frames."""
    found: dict[CodeType, list[Any]] = {}
    for one in compat.await_chain(task.get_coro()):
        code = compat.code_of(one)
        if code is not None:
            exits = (getattr(held, "__self__", None) for held in compat.held_by_coroutine(one) if type(held) is MethodType)
            inner = (attribute_of(manager, "gen") for manager in exits)
            found.setdefault(code, []).extend(gen for gen in inner if compat.code_of(gen) is not None)
    return found


def may_close(callback: Any) -> bool:
    """Whether a callback is named like a closing operation, or its code mentions one."""
    code, _, _ = compat.code_behind(callback)
    return code is not None and (code.co_name in CLOSING or closes_others(code))


@cached_by_code
def mentions_closing(code: CodeType) -> bool:
    """Whether a function mentions closing or stopping something."""
    if not _CLOSING_NAMED.isdisjoint((*mentioned_in(code), *(one for one in code.co_consts if isinstance(one, str)))):
        return True
    return any(mentions_closing(one) for one in code.co_consts if isinstance(one, CodeType))


@cached_by_code
def closes_others(code: CodeType) -> bool:
    """Whether a function that is called anew mentions closing something that it has not opened or made itself by then."""
    if not mentions_closing(code):
        return False
    within = [one for one in code.co_consts if isinstance(one, CodeType)]
    return not closes_only_own(code, _CLOSING_NAMED) or any(map(closes_others, within))
