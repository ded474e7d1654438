"""What an actor's code speaks of, and what it comes by: of frames what is still ahead of them, of callbacks all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_of_http, is_ours
from stilltrue.runtime.look.code.ahead import ahead_of
from stilltrue.runtime.look.code.attributes import value_of
from stilltrue.runtime.look.code.called import makes_functions, names_within
from stilltrue.runtime.look.code.ending import is_ending, speaks_of_ending
from stilltrue.runtime.look.code.jobs import FUNCTIONS
from stilltrue.runtime.look.code.lookups import LOOKUPS
from stilltrue.runtime.look.code.methods import kept_by_classes
from stilltrue.runtime.look.code.names import only_measured_in, still_named, still_named_beside, stored_in
from stilltrue.runtime.look.code.reachable_names import ReachableNames, reachable_names
from stilltrue.runtime.seen.holders.blocks import depth_of
from stilltrue.runtime.seen.holders.brackets import gives_back_nothing_yet

_AT_EXIT = frozenset({"atexit", "finalize"})
_DYNAMIC = LOOKUPS | {"eval", "exec", "globals", "vars", "deadline"}
"""Code that may end things by other names than those that it reads."""


def nothing(far: bool) -> ReachableNames:
    """The names that those reach who do not count: none."""
    del far
    return ReachableNames()


def frame_speaks(frame: FrameType) -> bool:
    """Whether what is still ahead of a frame speaks of ending things, or a function does that it may still read."""
    code = frame.f_code
    owner = variables_of(frame).get("self") if code.co_varnames[:1] == ("self",) and is_application(code) else None
    return speaks_of_ending(code, frame.f_globals, owner, variables_of(frame).values(), _begin(frame)) or _has_job(frame)


def speaks(callback: Any, arguments: Iterable[Any] = ()) -> bool:
    """Whether a callback's code speaks of ending things, or that of the application's callback that one of ours carries."""
    code, names, owner = compat.called_in(callback)
    if code is None:
        return False
    if is_ours(code):
        return any(speaks(one) for one in compat.bound_to(callback) if callable(one))
    return is_ending(code.co_name) or speaks_of_ending(code, names, owner, (*compat.bound_to(callback), *arguments))


def names_ahead(frame: FrameType, far: bool) -> ReachableNames:
    """What a frame may still come to name, and the functions within it."""
    ahead = ahead_of(frame.f_code, frame.f_lasti)
    within = ahead.known and not depth_of(frame)  # what a block is for may be left by any name
    named = (ahead.names | ahead.stored) - only_measured_in(frame.f_code)
    begin = named | ahead.markers | names_within(frame.f_code, ahead.functions) if within else None
    if begin is not None and gives_back_nothing_yet(frame):
        begin -= {"release"}  # rule 2 of reachable_names
    said = reachable_names(frame.f_code, frame.f_globals, variables_of(frame).values(), begin, far=far)
    if is_of_http(frame.f_code):  # it raises the signals anew that ended it, when somebody outside has ended it
        return replace(said, names=said.names - {"raise_signal"})
    return said


def names_by(callback: Any, arguments: Iterable[Any], far: bool) -> ReachableNames:
    """What a callback may come to name."""
    code, names, owner = compat.called_in(callback)
    if code is None:
        return ReachableNames(frozenset({compat.name_of(callback).rsplit(".", 1)[-1]}))
    if not is_application(code):
        return ReachableNames(frozenset({code.co_name}))
    return reachable_names(code, names, (owner, *compat.bound_to(callback), *arguments), far=far)


def names_by_all(callbacks: Iterable[Any], arguments: Iterable[Any] = ()) -> Callable[[bool], ReachableNames]:
    """What callbacks may come to name, all together; found when it is asked for."""

    def names_reached(far: bool) -> ReachableNames:
        every = [names_by(one, arguments, far) for one in callbacks]
        return ReachableNames(
            names=frozenset().union(*(one.names for one in every)),
            named=tuple(held for one in every for held in one.named),
            anything=any(one.anything for one in every),
            everywhere=any(one.everywhere for one in every),
            unread=any(one.unread for one in every),
        )

    return names_reached


def roots_from(*callbacks: Any) -> tuple[Any, ...]:
    """Callbacks and what comes with them, and the globals that the code of those that end things speaks of."""
    roots = list(callbacks)
    for one in callbacks:
        code, names, _ = compat.called_in(one) if callable(one) else (None, {}, None)
        if code is not None and is_application(code) and speaks(one):
            roots += _globals_in(code, names)
    return tuple(roots)


def globals_of(frame: FrameType) -> tuple[Any, ...]:
    """The globals that a frame's code speaks of."""
    return _globals_in(frame.f_code, frame.f_globals)


def _globals_in(code: CodeType, names: dict[str, Any]) -> tuple[Any, ...]:
    named = [names[name] for name in code.co_names if name in names]
    return (*named, *kept_by_classes(named))


def in_context(handle_or_task: Any) -> tuple[Any, ...]:
    """What the context variables are for a task or callback: its code finds it there."""
    context = compat.context_of(handle_or_task)
    return () if context is None else tuple(context.values())


def _has_job(frame: FrameType) -> bool:
    """Whether a variable that a frame may still read is a function that ends something, whatever the frame will give it."""
    code, names = frame.f_code, variables_of(frame)
    functions = {name: one for name, one in names.items() if type(one) in FUNCTIONS}
    if not functions or code.co_name == "<module>" or not is_application(code):
        return False
    ahead = ahead_of(code, frame.f_lasti)
    others = [one for name, one in names.items() if name not in functions]
    return any(speaks(one, others) for name, one in functions.items() if name in ahead.variables or not ahead.known)


def _begin(frame: FrameType) -> frozenset[str] | None:
    """What code that is being run may still name; None: all.

    It may call a function that it has made before by any name, and what it sets may be a property.
    """
    code = frame.f_code
    if not _AT_EXIT.isdisjoint(code.co_names):
        return None
    if code.co_name != "<module>" and (makes_functions(code) or stored_in(code)):
        return None
    besides = _besides_its_call(frame)
    begin = still_named(code, frame.f_lasti) if besides is None else besides
    return None if begin is None or not _DYNAMIC.isdisjoint(begin) else begin


def _besides_its_call(frame: FrameType) -> frozenset[str] | None:
    """What a frame may still name besides the call in which it stands, if that is of a function of the application.

    The function's own frame has the arguments, and is another actor.
    """
    found = still_named_beside(frame.f_code, frame.f_lasti)
    callee = None if found is None else value_of(found[0], variables_of(frame), frame.f_globals)
    return found[1] if found and type(callee) is FunctionType and is_application(callee.__code__) else None
