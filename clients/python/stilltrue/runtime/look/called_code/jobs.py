"""Jobs: functions stored with their future arguments, as schedulers and work queues do.

Rules:

1. In a tuple or short list, the objects beside a function are its arguments.
2. In a dictionary, an executor item, or an object of a non-library class, the arguments are the values with such a name:
   ``args``, ``kwargs``, ``data``.
3. Functions are not arguments: a table of handlers is not a job.
4. A function stored beside an empty place for arguments (rule 2) is a job without any.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from concurrent.futures import thread
from types import FunctionType, MethodType
from typing import Any

from stilltrue.runtime.compat.callables import module_of
from stilltrue.runtime.look.code.attributes import attribute_dictionary, attribute_of, slots_of

ITEMS_MAX = 12
"""A tuple, list or dictionary with more items is not a job."""
FUNCTIONS = (FunctionType, MethodType, functools.partial)
_ARGUMENTS = re.compile(r"_*(kw)?(args?|arguments?|params?|parameters?|payload|data)", re.I)
_ITEM = thread._WorkItem  # noqa: SLF001
_NOTHING: tuple[tuple[Any, ...], tuple[Any, ...]] = ((), ())


def job_in(thing: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The functions of a job and their arguments; both empty for any other object. Runs no code."""
    kind = type(thing)
    bare = False
    if issubclass(kind, tuple | list):
        if not 1 < kind.__len__(thing) <= ITEMS_MAX:
            return _NOTHING
        every = list(tuple.__iter__(thing) if issubclass(kind, tuple) else list.__iter__(thing))
        given = [one for one in every if type(one) not in FUNCTIONS]
    else:
        named = dict(_named_in(thing))
        bare = not issubclass(kind, dict) and any(map(_ARGUMENTS.fullmatch, named))
        every = list(named.values())
        given = [one for name, one in named.items() if _ARGUMENTS.fullmatch(name) and type(one) not in FUNCTIONS]
    functions = tuple(one for one in every if type(one) in FUNCTIONS) if given or bare else ()
    return (functions, tuple(given)) if functions else _NOTHING


def _named_in(thing: Any) -> Iterator[tuple[str, Any]]:
    """The values by name of a short dictionary, or of an object with an attribute named like arguments."""
    if issubclass(type(thing), dict):
        if 1 < dict.__len__(thing) <= ITEMS_MAX:
            yield from ((name, value) for name, value in list(dict.items(thing)) if type(name) is str)
        return
    kind = type(thing)
    if kind is not _ITEM and module_of(kind).partition(".")[0] in sys.stdlib_module_names:
        return
    own = attribute_dictionary(thing) if kind.__dictoffset__ else None
    slots: tuple[str, ...] = slots_of(kind)  # type: ignore[arg-type]  # a class is hashable
    names = (*(own or ()), *slots)
    if any(map(_ARGUMENTS.fullmatch, names)):
        yield from ((name, attribute_of(thing, name)) for name in names)
