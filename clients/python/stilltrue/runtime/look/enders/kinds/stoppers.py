"""Who may stop an event loop by calling its own ``stop``: nearly everybody on a loop has it, and speaks of stopping something.

Rules:

1. On what ``stop`` is called is read from the code: it counts if that is the loop, or cannot be found by who has the loop.
2. So it is in the functions and methods that are named: ``self.loop`` means what the objects near by have there.
3. A callback stops the loop if it is the loop's own ``stop``, or by its code.
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
from stilltrue.runtime.look.code.ahead import ahead_of
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of, attributes_of, value_of
from stilltrue.runtime.look.code.called import named_ahead, named_by_callback
from stilltrue.runtime.look.code.names import Receiver, mentioned_in
from stilltrue.runtime.look.enders.kinds.wakers import Callback
from stilltrue.runtime.look.enders.reach import Reach, named_by
from stilltrue.runtime.look.progress.stretches import Stretch

_STOP = "stop"
_LOOPS = frozenset({"get_running_loop", "get_event_loop", "_get_running_loop", "new_event_loop"})
"""By these code has a loop that it was not given."""
_ANY_LOOP = object()
_NEAR_MAX = 300
_CALLED_MAX = 20


def stops(stretch: Stretch, loop: Any, reach: Reach) -> bool:
    """Whether what is ahead may stop ``loop``; ``reach`` searches for it."""
    ahead, frame = stretch.ahead, stretch.frame
    names = variables_of(frame)
    if not ahead.known:
        return bool(reach.held(names.values(), ends=True))
    called = [names[name] for name in ahead.variables if name in names and callable(names[name])]
    if any(callback_stops((one, ()), loop, reach) for one in called):
        return True
    receivers = ahead.closed if _STOP in ahead.mentioned else ahead.closed & {()}
    found = {id(value_of(receiver, names, frame.f_globals)) for receiver in receivers}
    roots = (*names.values(), *_globals(ahead.names, frame.f_globals))
    named = named_ahead(ahead, frame)
    if id(UNKNOWN) in found and not _LOOPS.isdisjoint(ahead.names):
        return True
    return _meet(found | _all_meant(named, roots), loop, reach, roots)


def _meet(meant: set[int], loop: Any, reach: Reach, roots: Iterable[Any]) -> bool:
    """Whether the loop is among what is ``meant``, or may be, for who has ``roots``."""
    if id(_ANY_LOOP) in meant:
        return True
    return id(loop) in meant or (id(UNKNOWN) in meant and bool(reach.held(roots, ends=True)))


def callback_stops(callback: Callback, loop: Any, reach: Reach) -> bool:
    """Whether a callback may stop ``loop`` (rule 3)."""
    function, arguments = callback
    todo: list[Any] = [function, *arguments]
    seen: set[int] = set()
    while todo and len(seen) < _CALLED_MAX:
        one = todo.pop()
        if id(one) in seen or not callable(one):
            continue
        seen.add(id(one))
        code, names, owner = compat.called_in(one)
        carried = tuple(named_by(one) or ())
        if any(held is loop for held in carried) and compat.name_of(one).rsplit(".", 1)[-1] == _STOP:
            return True
        if (
            code is not None
            and is_application(code)
            and _code_stops(one, code, names, (owner, *carried, *arguments), loop, reach)
        ):
            return True
        todo += [held for held in carried if compat.is_function(held)]
    return bool(todo)


def _code_stops(callback: Any, code: CodeType, names: dict[str, Any], near: tuple[Any, ...], loop: Any, reach: Reach) -> bool:
    ahead = ahead_of(code, -1)
    named = named_by_callback(callback, near, ahead.variables, ahead.attributes)
    roots = (*near, *_globals(code.co_names, names))
    return _meet(_all_meant([(code, names), *named], roots), loop, reach, roots)


def _all_meant(codes: Iterable[tuple[CodeType, dict[str, Any]]], roots: tuple[Any, ...]) -> set[int]:
    """The identities of what some codes may call ``stop`` on (rule 2)."""
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


def _globals(words: Iterable[str], names: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(names[word] for word in words if word in names)


def _near(things: Iterable[Any]) -> list[Any]:
    """Some objects, and those that they hold, nearest first."""
    found: dict[int, Any] = {}
    todo = deque(things)
    while todo and len(found) < _NEAR_MAX:
        one = todo.popleft()
        if id(one) not in found:
            found[id(one)] = one
            todo += islice(named_by(one) or (() if type(one) is FunctionType else attributes_of(one)), _NEAR_MAX)
    return list(found.values())
