"""Code that may call ``stop`` of an event loop. Nearly every task can reach its loop, and much code names some ``stop``.

Rules:

1. The code shows on which object ``stop`` is called. It counts if that is the loop, or is unknown and the code can reach the
   loop.
2. The same applies to the functions and methods the code names: ``self.loop`` means that attribute of any nearby object.
3. A callback counts if it is the loop's own ``stop``, or by its code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from types import CodeType, FunctionType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.called_code.call_graph import named_ahead, named_by_callback
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of, attributes_of, named_values, value_of
from stilltrue.runtime.look.code.instructions_ahead import ahead_of
from stilltrue.runtime.look.code.names import Receiver, mentioned_in
from stilltrue.runtime.look.progress.stack_ahead import Stretch
from stilltrue.runtime.look.ways_out.kinds.wakers import Callback
from stilltrue.runtime.look.ways_out.reach import Reach, named_by

_STOP = "stop"
_LOOPS = frozenset({"get_running_loop", "get_event_loop", "_get_running_loop", "new_event_loop"})
"""Functions by which code gets a loop it was not given."""
_ANY_LOOP = object()
_NEAR_MAX = 300
_CALLED_MAX = 20


def may_stop(stretch: Stretch, loop: Any, reach: Reach) -> bool:
    """Whether the code ahead may stop ``loop``; ``reach`` searches for it."""
    ahead, frame = stretch.ahead, stretch.frame
    names = variables_of(frame)
    if not ahead.known:
        return bool(reach.held(names.values(), ends=True))
    called = [names[name] for name in ahead.variables if name in names and callable(names[name])]
    if any(callback_may_stop((one, ()), loop, reach) for one in called):
        return True
    receivers = ahead.closed if _STOP in ahead.mentioned else ahead.closed & {()}
    found = {id(value_of(receiver, names, frame.f_globals)) for receiver in receivers}
    roots = (*names.values(), *named_values(ahead.names, frame.f_globals))
    named = named_ahead(ahead, frame)
    if id(UNKNOWN) in found and not _LOOPS.isdisjoint(ahead.names):
        return True
    return _may_be_loop(found | _stop_targets(named, roots), loop, reach, roots)


def _may_be_loop(meant: set[int], loop: Any, reach: Reach, roots: Iterable[Any]) -> bool:
    """Whether the loop is among ``meant``, or may be an unknown one that ``roots`` reach."""
    if id(_ANY_LOOP) in meant:
        return True
    return id(loop) in meant or (id(UNKNOWN) in meant and bool(reach.held(roots, ends=True)))


def callback_may_stop(callback: Callback, loop: Any, reach: Reach) -> bool:
    """Whether a callback may stop ``loop`` (rule 3)."""
    function, arguments = callback
    todo: list[Any] = [function, *arguments]
    seen: set[int] = set()
    while todo and len(seen) < _CALLED_MAX:
        one = todo.pop()
        if id(one) in seen or not callable(one):
            continue
        seen.add(id(one))
        code, names, owner = compat.code_behind(one)
        carried = tuple(named_by(one) or ())
        if any(held is loop for held in carried) and compat.name_of(one).rsplit(".", 1)[-1] == _STOP:
            return True
        if (
            code is not None
            and is_application(code)
            and _code_may_stop(one, code, names, (owner, *carried, *arguments), loop, reach)
        ):
            return True
        todo += [held for held in carried if compat.is_function(held)]
    return bool(todo)


def _code_may_stop(
    callback: Any, code: CodeType, names: dict[str, Any], near: tuple[Any, ...], loop: Any, reach: Reach
) -> bool:
    ahead = ahead_of(code, -1)
    named = named_by_callback(callback, near, ahead.variables, ahead.attributes)
    roots = (*near, *named_values(code.co_names, names))
    return _may_be_loop(_stop_targets([(code, names), *named], roots), loop, reach, roots)


def _stop_targets(codes: Iterable[tuple[CodeType, dict[str, Any]]], roots: tuple[Any, ...]) -> set[int]:
    """The identities of the objects on which the code may call ``stop`` (rule 2)."""
    every = (
        (inner, names) for code, names in codes for inner in (code, *(one for one in code.co_consts if type(one) is CodeType))
    )
    speaking = [(code, names) for code, names in every if _STOP in mentioned_in(code)]
    near = _near(roots) if speaking else []
    meant = {id(one) for code, names in speaking for receiver in _receivers(code) for one in _values(receiver, names, near)}
    given = all(_LOOPS.isdisjoint(code.co_names) for code, _ in speaking)
    return meant if given or id(UNKNOWN) not in meant else meant | {id(_ANY_LOOP)}


def _receivers(code: CodeType) -> Iterable[Receiver]:
    ahead = ahead_of(code, -1)
    return ahead.closed if ahead.known else ((),)


def _values(receiver: Receiver, names: dict[str, Any], near: Iterable[Any]) -> Iterator[Any]:
    if not receiver:
        yield UNKNOWN
        return
    if receiver[0] in names:
        yield value_of(receiver, {}, names)
        return
    values = list(near) if len(receiver) > 1 else [UNKNOWN]
    for name in receiver[1:]:
        values = [one for value in values if (one := attribute_of(value, name)) is not UNKNOWN]
    yield from values or [UNKNOWN]


def _near(things: Iterable[Any]) -> list[Any]:
    """Some objects and those they hold, nearest first."""
    found: dict[int, Any] = {}
    todo = deque(things)
    while todo and len(found) < _NEAR_MAX:
        one = todo.popleft()
        if id(one) not in found:
            found[id(one)] = one
            todo += islice(named_by(one) or (() if type(one) is FunctionType else attributes_of(one)), _NEAR_MAX)
    return list(found.values())
