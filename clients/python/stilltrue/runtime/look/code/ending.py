"""Whether code speaks of ending things: its own, that of what it calls by name, and what a callback or finalizer will end.

Rules:

1. What is called is found by its name (:mod:`~stilltrue.runtime.look.code.called`). Far down only what cancels counts: nearly
   everything closes something.
2. What is called by those who do not name it (a handler in a registry, what a ``with`` block's exit, a finalizer or a weak
   reference runs) ends what it carries, or will be given (:mod:`~stilltrue.runtime.look.code.jobs`), where its code speaks of
   ending things. What it names of its module does not count: nearly every program has a list of functions that requests from
   outside may call.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code import called as calling
from stilltrue.runtime.look.code import reachable_names as reached
from stilltrue.runtime.look.code.called import CODES_MAX, KINDS_WALKS_MAX, NAMED_DEPTH, called, kinds_of, names_in
from stilltrue.runtime.look.code.jobs import job_in
from stilltrue.runtime.look.code.names import stored_in
from stilltrue.runtime.look.code.reachable_names import ReachableNames, reachable_names
from stilltrue.runtime.look.enders import reach
from stilltrue.runtime.look.enders.reach import Leads

_ENDS = re.compile(
    r"cancel(?!lederror)|abort|close|kill|terminat|shutdown|stop|throw|set_exception|expire|evict|reap|interrupt"
    r"|reschedule|^shift$|^set_result$",  # what gives a timeout or scope that has none an end
    re.I,
)
_ENDS_FAR = re.compile(r"^(cancel|abort|throw|set_exception|cancel_all)$")
_CALLED = (FunctionType, MethodType, functools.partial)
_Key = tuple[CodeType, type, frozenset[str] | None]
_speaks: dict[_Key, bool] = {}
_by_near: dict[_Key, tuple[int, bool]] = {}
"""In this look: how often objects near a code were walked, and whether the methods that it names speak of ending things."""
_of_called: dict[int, tuple[Any, ReachableNames]] = {}
"""In this look, by the identity of what may be called: what it speaks of."""


def forget() -> None:
    """Forget what was near the actors of a look."""
    _by_near.clear()
    _of_called.clear()
    reached.forget()
    reach.forget()
    calling.forget()


def is_ending(name: str) -> bool:
    """Whether a name speaks of ending things."""
    return _ENDS.search(name) is not None


def speaks_of_ending(
    code: CodeType, names: dict[str, Any], owner: Any = None, held: Iterable[Any] = (), begin: frozenset[str] | None = None
) -> bool:
    """Whether ``code`` or what it calls by name ends things.

    Its globals are ``names``, its object ``owner``; it has ``held`` besides. ``begin``: the names that are still ahead of it.
    """
    key = (code, type(owner), begin)
    known = _speaks.get(key)
    if known is None:
        if len(_speaks) >= CODES_MAX:
            _speaks.clear()
        _speaks[key] = known = _any_speaks(code, names, (type(owner),), begin)
    if known or not code.co_names:
        return known
    walks, known = _by_near.get(key, (0, False))
    if not known and walks < KINDS_WALKS_MAX:
        near = (owner, *held, *(names[name] for name in code.co_names if name in names))
        known = _any_speaks(code, names, kinds_of(near), begin)
        _by_near[key] = walks + 1, known
    return known


def ended_by(thing: Any, leads: Leads, by: frozenset[str] = frozenset(), *, named: bool = False) -> tuple[Any, ...]:
    """What a thing has that it ends when it is called, or forgotten (rule 2); nothing for any other.

    ``by``: by naming one of these; otherwise, by speaking of ending things. ``named``: also what it names of its module.
    What does not lead to anything that is searched for is left out where that spares reading code.
    """
    kind = type(thing)
    if kind in _CALLED or (kind is BuiltinFunctionType and type(thing.__self__) is not ModuleType):
        return _ended_by_call(thing, leads, by, named=named)
    if kind is GeneratorType and (frame := frame_of(thing)) is not None and is_application(frame.f_code):
        said = reachable_names(frame.f_code, frame.f_globals, compat.names_in(thing)) if by else ReachableNames()
        return () if by.isdisjoint(said.names) else (*compat.names_in(thing), *said.named)
    finalizer = _finalizer_of(kind)
    if finalizer is not None and leads((thing,)) and _speaks_so(finalizer.__code__, finalizer.__globals__, thing, (), by):
        return (thing,)
    told = tuple(one for callback in compat.told_when_let_go(thing) for one in _ended_by_call(callback, leads, by, named=named))
    functions, given = job_in(thing)
    return (*told, *given) if functions and leads(given) and any(_ends_given(one, given, by) for one in functions) else told


def _ends_given(function: Any, given: tuple[Any, ...], by: frozenset[str]) -> bool:
    """Whether a function speaks of ending what it will be given."""
    code, names, owner = compat.called_in(function)
    return code is not None and is_application(code) and _speaks_so(code, names, owner, given, by)


def _ended_by_call(called: Any, leads: Leads, by: frozenset[str], *, named: bool) -> tuple[Any, ...]:
    carried = _carried(called)
    if not named and not leads(carried):
        return ()
    code, names, owner = compat.called_in(called)
    if code is None or not is_application(code):
        name = compat.name_of(called).rsplit(".", 1)[-1]
        return carried if name in by or (not by and is_ending(name)) else ()
    if not by:
        return carried if speaks_of_ending(code, names, owner, carried) else ()
    said = _said_by(called, code, names, (owner, *carried))
    return () if by.isdisjoint(said.names) else (*carried, *(said.named if named else ()))


def _said_by(called: Any, code: CodeType, names: dict[str, Any], near: Iterable[Any]) -> ReachableNames:
    known = _of_called.get(id(called))
    if known is None:
        known = _of_called[id(called)] = called, reachable_names(code, names, near)
    return known[1]


def _speaks_so(code: CodeType, names: dict[str, Any], owner: Any, held: Iterable[Any], by: frozenset[str]) -> bool:
    if not by:
        return speaks_of_ending(code, names, owner, held)
    return not by.isdisjoint(reachable_names(code, names, (owner, *held)).names)


def _carried(called: Any) -> tuple[Any, ...]:
    if type(called) is functools.partial:
        return (*_carried(called.func), *called.args, *called.keywords.values())
    return compat.bound_to(called)


def _finalizer_of(kind: type) -> FunctionType | None:
    found = next((base.__dict__["__del__"] for base in kind.__mro__ if "__del__" in base.__dict__), None)
    return found if type(found) is FunctionType and is_application(found.__code__) else None


def _any_speaks(code: CodeType, names: dict[str, Any], kinds: Iterable[type], begin: frozenset[str] | None) -> bool:
    every = called(code, names, kinds, begin)
    if begin is not None:
        next(every)  # itself
        if any(map(_ENDS.search, begin)):
            return True
    return any(_speaks_itself(one) if depth <= NAMED_DEPTH else _cancels(one) for one, _, depth in every)


def _cancels(code: CodeType) -> bool:
    """Rule 1."""
    return any(map(_ENDS_FAR.match, names_in(code)))


def _speaks_itself(code: CodeType) -> bool:
    sets_deadline = "deadline" in code.co_names and "deadline" in stored_in(code)
    return sets_deadline or any(map(_ENDS.search, code.co_names)) or any(map(_const_speaks, code.co_consts))


def _const_speaks(const: object) -> bool:
    """Whether it is code that speaks of ending things, or a name to be looked up, as by ``methodcaller``."""
    if isinstance(const, CodeType):
        return _speaks_itself(const)
    return isinstance(const, str) and const.isidentifier() and is_ending(const)
