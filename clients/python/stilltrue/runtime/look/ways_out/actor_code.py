"""The names that an actor's code uses, and the objects it can get: for frames only the code still ahead, for callbacks all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_http_library, is_ours, is_own_code
from stilltrue.runtime.look.called_code.call_graph import makes_functions, names_within
from stilltrue.runtime.look.called_code.ending import cancels, globals_ended, is_ending, mentions_ending
from stilltrue.runtime.look.called_code.jobs import FUNCTIONS
from stilltrue.runtime.look.called_code.methods import class_attributes
from stilltrue.runtime.look.called_code.reachable_names import ReachableNames, own_reachable_names, reachable_names
from stilltrue.runtime.look.code.attributes import attribute_of, named_values, value_of
from stilltrue.runtime.look.code.instructions_ahead import Ahead, ahead_of
from stilltrue.runtime.look.code.lookups import LOOKUPS
from stilltrue.runtime.look.code.names import (
    RUNS_TEXT,
    names_of_own_timers,
    names_stored_in,
    only_measured_names,
    still_named,
    still_named_outside_call,
)
from stilltrue.runtime.look.code.system_operations import OPERATIONS
from stilltrue.runtime.look.ways_out.reach import named_by
from stilltrue.runtime.waits.ending_operations import PUTTING
from stilltrue.runtime.waits.holders.queues.queue_operations import depended_on
from stilltrue.runtime.waits.holders.queues.queue_pools import GIVES_ITEMS, has_taken_nothing
from stilltrue.runtime.waits.holders.try_finally import has_released_nothing_else
from stilltrue.runtime.waits.holders.with_blocks import depth_of
from stilltrue.runtime.waits.orphaned_locks.balance import holds_nothing

_FINALIZING = frozenset({"finalize"})
_RUNNING = frozenset({"run", "run_until_complete"})
_AT_EXIT = frozenset({"atexit"}) | _FINALIZING
_CARRIED_MAX = 20
"""Maximum number of functions that a callback carries."""
_DYNAMIC = LOOKUPS | {"eval", "exec", "globals", "vars", "deadline"}
"""Names of code that may end things without naming them."""


def no_names(far: bool) -> ReachableNames:
    """The names reached by actors whose code does not count: none."""
    del far
    return ReachableNames()


def frame_may_end(frame: FrameType, *, exits: bool = True, left: tuple[Any, ...] = ()) -> bool:
    """Whether the code ahead of a frame mentions ending things, or a function that it may still read does.

    ``exits``: or one that may be an exit handler, which runs once the main thread has ended. ``left``: the objects of its open
    blocks.
    """
    code, owner = frame.f_code, _owner_of(frame)
    ahead, used = _names_still_ahead(frame, exits=exits), _names_still_used(frame)
    held = (*variables_of(frame).values(), *left)
    return mentions_ending(code, frame.f_globals, owner, held, ahead, used) or _has_ending_function(frame)


def named_in_consoles(held: Iterable[Any]) -> tuple[Any, ...]:
    """The variables of the consoles among these objects: those of ``code``, which run the text that they are given."""
    kind = getattr(sys.modules.get("code"), "InteractiveInterpreter", None)  # the agent does not import it
    consoles = [one for one in held if issubclass(type(one), kind)] if isinstance(kind, type) else []
    spaces = [space for one in consoles if type(space := attribute_of(one, "locals")) is dict]
    return tuple(value for space in spaces for value in list(space.values()))


def callback_may_end(callback: Any, arguments: Iterable[Any] = ()) -> bool:
    """Whether the code of a callback, of a function that it carries, or of a callback inside ours, mentions ending things."""
    arguments = tuple(arguments)
    return any(_may_end(one, arguments) for one in _with_carried(callback))


def _may_end(callback: Any, arguments: tuple[Any, ...]) -> bool:
    code, names, owner = compat.code_behind(callback)
    if code is None:
        return False
    if is_ours(code):
        return cancels(code.co_name) or any(_may_end(one, ()) for one in compat.bound_to(callback) if callable(one))
    return is_ending(code.co_name) or mentions_ending(code, names, owner, (*compat.bound_to(callback), *arguments))


def _with_carried(callback: Any) -> list[Any]:
    """A callback and the functions that it carries, in its closure for example: a wrapper calls what it has wrapped."""
    found = [callback]
    for one in found:
        carried = named_by(one) or () if type(one) in FUNCTIONS and len(found) < _CARRIED_MAX else ()
        found += [each for each in carried if type(each) in FUNCTIONS and not any(each is known for known in found)]
    return found


def names_ahead(frame: FrameType, far: bool) -> ReachableNames:
    """The names that a frame, and the functions within it, may still use.

    A function in one of its variables counts by what it does to files and processes, whichever they are.
    """
    ahead = ahead_of(frame.f_code, frame.f_lasti)
    within = ahead.known and not depth_of(frame)  # leaving a block may use any name
    named = (ahead.names | ahead.stored) - only_measured_names(frame.f_code) - names_of_own_timers(frame.f_code)
    begin = named | ahead.markers | names_within(frame.f_code, ahead.functions) if within else None
    if begin is not None and (has_released_nothing_else(frame) or holds_nothing(frame)):
        begin -= {"release"}  # rule 2 of reachable_names
    reachable = reachable_names(frame.f_code, frame.f_globals, variables_of(frame).values(), begin, far=far)
    operations = (names_by(one, (), far).names & OPERATIONS for one in _functions_ahead(frame, ahead))
    reachable = replace(reachable, names=reachable.names.union(*operations))
    if depended_on.is_set() and not PUTTING.isdisjoint(reachable.names) and not has_taken_nothing(frame):
        reachable = replace(reachable, names=reachable.names | {GIVES_ITEMS})
    if is_http_library(frame.f_code):  # it re-raises a signal only after an outsider has ended it
        return replace(reachable, names=reachable.names - {"raise_signal"})
    return reachable


def own_reached(frame: FrameType) -> ReachableNames:
    """The names and globals in the program's own code that a frame of it may still use, or a function its variables name."""
    code = frame.f_code
    ahead = ahead_of(code, frame.f_lasti)
    return own_reached_from(frame, ahead, names_within(code, ahead.functions))


def own_reached_from(frame: FrameType, ahead: Ahead, within: frozenset[str]) -> ReachableNames:
    """The same for the code ``ahead`` of it, and the names ``within`` its inner functions."""
    code = frame.f_code
    if not is_own_code(code):
        return ReachableNames()
    begin = ahead.names | ahead.stored | within | (ahead.markers & {RUNS_TEXT}) if ahead.known else None
    called = [own_reached_by(one) for one in _functions_ahead(frame, ahead)]
    return _together([own_reachable_names(code, frame.f_globals, variables_of(frame).values(), begin), *called])


def own_reached_by(callback: Any, arguments: Iterable[Any] = ()) -> ReachableNames:
    """The names and globals in the program's own code that a callback of it may use."""
    arguments = tuple(arguments)
    every = ((one, *compat.code_behind(one)) for one in _with_carried(callback))
    return _together(
        [
            own_reachable_names(code, names, (owner, *compat.bound_to(one), *arguments))
            for one, code, names, owner in every
            if code is not None and is_own_code(code)
        ]
    )


def _together(every: list[ReachableNames]) -> ReachableNames:
    return ReachableNames(
        names=frozenset().union(*(one.names for one in every)),
        global_values=tuple(held for one in every for held in one.global_values),
        handed_on=tuple(held for one in every for held in one.handed_on),
    )


def own_reached_by_all(callbacks: Iterable[Any], arguments: Iterable[Any] = ()) -> ReachableNames:
    """The same for some callbacks together."""
    arguments = tuple(arguments)
    return _together([own_reached_by(one, arguments) for one in callbacks])


def names_by(callback: Any, arguments: Iterable[Any], far: bool) -> ReachableNames:
    """The names that a callback may use."""
    return names_by_all(_with_carried(callback), arguments)(far)


def _names_by(callback: Any, arguments: Iterable[Any], far: bool) -> ReachableNames:
    code, names, owner = compat.code_behind(callback)
    if code is None:
        return ReachableNames(frozenset({compat.name_of(callback).rsplit(".", 1)[-1]}))
    if not is_application(code):
        return ReachableNames(frozenset({code.co_name}))
    return reachable_names(code, names, (owner, *compat.bound_to(callback), *arguments), far=far)


def names_by_all(callbacks: Iterable[Any], arguments: Iterable[Any] = ()) -> Callable[[bool], ReachableNames]:
    """The names that some callbacks may use together, computed on request."""
    arguments = tuple(arguments)

    def names_reached(far: bool) -> ReachableNames:
        every = [_names_by(each, arguments, far) for one in callbacks for each in _with_carried(one)]
        return ReachableNames(
            names=frozenset().union(*(one.names for one in every)),
            global_values=tuple(held for one in every for held in one.global_values),
            any_code=any(one.any_code for one in every),
            any_object=any(one.any_object for one in every),
            any_name=any(one.any_name for one in every),
        )

    return names_reached


def callback_roots(*callbacks: Any) -> tuple[Any, ...]:
    """Callbacks and their arguments, plus the globals of those whose code mentions ending things."""
    roots = list(callbacks)
    for one in (each for callback in callbacks for each in _with_carried(callback)):
        code, names, owner = compat.code_behind(one) if callable(one) else (None, {}, None)
        if code is not None and is_application(code) and _may_end(one, ()):
            roots += (*_globals_in(code, names), *globals_ended(code, names, owner, compat.bound_to(one)))
    return tuple(roots)


def globals_of(frame: FrameType) -> tuple[Any, ...]:
    """The globals named by a frame's code, and those that the functions it calls, also by its variables, may end."""
    code = frame.f_code
    held, ahead, used = variables_of(frame).values(), _names_still_ahead(frame), _names_still_used(frame)
    far = globals_ended(code, frame.f_globals, _owner_of(frame), held, ahead, used)
    called = _functions_ahead(frame, ahead_of(code, frame.f_lasti))
    return (*_globals_in(code, frame.f_globals), *far, *(held for one in called for held in _globals_ended_by(one)))


def _globals_ended_by(function: Any) -> tuple[Any, ...]:
    code, names, owner = compat.code_behind(function)
    if code is None or not is_application(code):
        return ()
    return globals_ended(code, names, owner, compat.bound_to(function))


def _owner_of(frame: FrameType) -> Any:
    code = frame.f_code
    return variables_of(frame).get("self") if code.co_varnames[:1] == ("self",) and is_application(code) else None


def _globals_in(code: CodeType, names: dict[str, Any]) -> tuple[Any, ...]:
    named = named_values(code.co_names, names)
    return (*named, *class_attributes(named))


def context_values(handle_or_task: Any) -> tuple[Any, ...]:
    """The values of the context variables that a task's or callback's code can read."""
    context = compat.context_of(handle_or_task)
    return () if context is None else tuple(context.values())


def _has_ending_function(frame: FrameType) -> bool:
    """Whether a variable that the frame may still read is a function that ends things, whatever arguments it gets."""
    code, names = frame.f_code, variables_of(frame)
    functions = {name: one for name, one in names.items() if type(one) in FUNCTIONS}
    if not functions or code.co_name == "<module>" or not is_application(code):
        return False
    ahead = ahead_of(code, frame.f_lasti)
    others = [one for name, one in names.items() if name not in functions]
    return any(callback_may_end(one, others) for name, one in functions.items() if name in ahead.variables or not ahead.known)


def _functions_ahead(frame: FrameType, ahead: Ahead) -> list[Any]:
    """The functions among the variables that a frame of the application may still read."""
    names = variables_of(frame) if frame.f_code.co_name != "<module>" and is_application(frame.f_code) else {}
    return [one for name, one in names.items() if type(one) in FUNCTIONS and (name in ahead.variables or not ahead.known)]


def _names_still_ahead(frame: FrameType, *, exits: bool = True) -> frozenset[str] | None:
    """The names that a running frame may still use, with those of its exit handlers if ``exits``; None: all of them.

    It may call a function it has already made under any name, and what it sets may be a property.
    """
    code = frame.f_code
    if not (_AT_EXIT if exits else _FINALIZING).isdisjoint(code.co_names):
        return None
    if code.co_name != "<module>" and (makes_functions(code) or names_stored_in(code)):
        return None
    outside = _names_outside_call(frame)
    begin = still_named(code, frame.f_lasti) if outside is None else outside
    return None if begin is None or not _DYNAMIC.isdisjoint(begin) else begin - names_of_own_timers(code)


def _names_still_used(frame: FrameType) -> frozenset[str] | None:
    """The globals and attributes that a running frame may still read or set; None: all of them."""
    code = frame.f_code
    if code.co_name == "<module>" or makes_functions(code):
        return None
    read = still_named(code, frame.f_lasti)
    return None if read is None else (read | ahead_of(code, frame.f_lasti).stored).intersection(code.co_names)


def _names_outside_call(frame: FrameType) -> frozenset[str] | None:
    """The names a frame may still use outside its current call, if that is a call of an application function or of a loop.

    The function's own frame has the arguments and is a separate actor; so is the task of a coroutine that a loop runs.
    """
    found = still_named_outside_call(frame.f_code, frame.f_lasti)
    callee = None if found is None else value_of(found[0], variables_of(frame), frame.f_globals)
    is_function = type(callee) is FunctionType and is_application(callee.__code__)
    return found[1] if found and (is_function or _runs_loop(callee)) else None


def _runs_loop(callee: Any) -> bool:
    """Whether this runs an event loop until a coroutine is over: ``asyncio.run`` or a method of a loop or runner."""
    function = callee.__func__ if type(callee) is MethodType else callee
    return type(function) is FunctionType and compat.is_loop_code(function.__code__) and function.__name__ in _RUNNING
