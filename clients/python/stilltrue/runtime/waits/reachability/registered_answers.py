"""Whether a thread or task waits for an answer: an object that it has registered for others to find, under a key.

``answer = self.pending[number] = loop.create_future()``, then ``await answer``. Who waits so depends on others, even if these
have ended: unlike a service that waits for its stop, or an idle worker. So does one whose request is an event or a queue.

Rules:

1. A function that waits, or one that has called it, names a dictionary that has what is awaited among its values.
2. The function stores items, and the key is none of its constants: a service may keep its stop under a name.
3. The main thread, or the main task of a loop, waits for an item that it uses. ``Queue().get()`` as a statement blocks for
   good, while others serve.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.control_flow import ControlFlow
from stilltrue.runtime.look.code.names import ATTRIBUTES, VARIABLES
from stilltrue.runtime.waits.holders.try_finally import dropped_after
from stilltrue.runtime.waits.holders.with_blocks import Expression, expression_before, instructions_of, value_of
from stilltrue.runtime.waits.resolvers.polling_loops import awaited_call

_DICTIONARIES = (dict, OrderedDict, defaultdict)
_ITEMS_MAX = 500
"""Size of a dictionary that is searched, which each of its waiters does at each cut."""


def is_registered(thing: Any, frames: Iterable[FrameType]) -> bool:
    """Whether a function with one of these frames has registered what it waits for."""
    return thing is not None and any(_registers(frame, thing) for frame in frames if is_application(frame.f_code))


def uses_item(frames: Iterable[FrameType]) -> bool:
    """Whether the innermost function of the application uses what it waits for (rule 3)."""
    frame = next((one for one in frames if is_application(one.f_code)), None)
    return frame is not None and _uses_result(frame.f_code, frame.f_lasti)


@cached_by_code
def _uses_result(code: CodeType, at: int) -> bool:
    every = instructions_of(code)
    return dropped_after(every, awaited_call(every, ControlFlow(code, every).at(at))) is None


def _registers(frame: FrameType, thing: Any) -> bool:
    code = frame.f_code
    named = _named(code)
    names = variables_of(frame) if named else {}
    return any(_has(value_of(one, names, frame.f_globals), thing, code) for one in named)


def _has(value: Any, thing: Any, code: CodeType) -> bool:
    if type(value) not in _DICTIONARIES or len(value) > _ITEMS_MAX or id(thing) not in map(id, list(dict.values(value))):
        return False
    return any(one is thing and not _is_constant(key, code) for key, one in items_of(value))


def _is_constant(key: Any, code: CodeType) -> bool:
    return any(type(one) is type(key) and one == key for one in code.co_consts if type(one) in (str, int, bytes))


@cached_by_code
def _named(code: CodeType) -> tuple[Expression, ...]:
    """The variables and attributes that a function names, if it stores items."""
    every = instructions_of(code)
    if all(one.opname != "STORE_SUBSCR" for one in every):
        return ()
    loads = (index for index, one in enumerate(every[:-1]) if one.opname.startswith("LOAD_"))
    found = (expression_before(every, index + 1) for index in loads if every[index].opname in ATTRIBUTES | VARIABLES)
    return tuple(dict.fromkeys(one for one in found if one))
