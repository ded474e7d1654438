"""What servers other than gRPC's call for connections to come: a handler of ``http.server``, of ``asyncio.start_server()``.

Rules:

1. A thread in ``serve_forever()`` or ``handle_request()`` of a server of the standard library, or of one derived from it, calls
   the methods of its class of handlers, its own ones, and its application: a WSGI function, or the views of Flask.
2. An event loop calls what it was given for connections to a listening socket: the function of a server of streams, or the
   methods of a protocol; of each protocol's class that a factory names, with what the factory may give it.
3. Only the program's own functions count. Those of other web frameworks are not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.code.attributes import named_values

_CARRIED_DEPTH_MAX = 4


def handlers_of_threads(place: Place) -> Iterator[Any]:
    """The functions that the server calls which runs in a thread (rule 1)."""
    for frame in place.frames:
        yield from filter(_is_own, compat.handlers_of_server(frame))


def handlers_of_loops(places: Places) -> Iterator[tuple[Any, Any]]:
    """The functions that event loops call (rule 2), each with its loop."""
    for loop in places.loops():
        for factory in compat.factories_of(loop) or ():
            yield from ((loop, one) for one in _carried_by(factory) if _is_own(one))


def _is_own(function: Any) -> bool:
    code, _, _ = compat.code_behind(function)
    return code is not None and is_own_code(code)


def _carried_by(thing: Any, depth: int = 0) -> Iterator[Any]:
    """A function, those that it carries, or the methods of a class."""
    kind = type(thing)
    if issubclass(kind, type):
        yield from compat.methods_of_class(thing)
    elif kind in (FunctionType, MethodType):
        yield thing
    carried = (thing.func, *thing.args, *thing.keywords.values()) if kind is partial else compat.bound_to(thing)
    if kind is FunctionType and is_own_code(thing.__code__):
        yield from _methods_of_made(thing)
    if depth < _CARRIED_DEPTH_MAX and (kind is partial or kind in (FunctionType, MethodType)):
        for one in carried:
            yield from _carried_by(one, depth + 1)


def _methods_of_made(factory: FunctionType) -> Iterator[MethodType]:
    """The methods of the protocols that a function may make, each bound to all that this may give them (rule 2)."""
    named = named_values(factory.__code__.co_names, factory.__globals__)
    carried = compat.bound_to(factory)
    kinds = [one for one in (*named, *carried) if issubclass(type(one), type) and issubclass(one, asyncio.BaseProtocol)]
    given = tuple(one for one in (*carried, *named) if not issubclass(type(one), (type, FunctionType, ModuleType)))
    for kind in kinds:
        yield from (MethodType(one, given) for one in compat.methods_of_class(kind))
