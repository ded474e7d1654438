"""Reads the contents and names of callables, coroutines and their code."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, CellType, CodeType, CoroutineType, FrameType, FunctionType, MethodType
from typing import Any
from weakref import WeakMethod, ref

from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import awaited_by, frame_of, variables_of
from stilltrue.runtime.own_packages import is_installed_library

Task = asyncio.Task[Any]
Where = tuple[tuple[CodeType, int], ...]
"""Position of a thread or task: its code objects and the current instruction of each."""
_FRAMES_HOLD = sys.version_info < (3, 11)
"""Whether a coroutine's variables are held by its frame object."""
WRAPPERS = frozenset({"async_generator_asend", "async_generator_athrow", "coroutine_wrapper", "anext_awaitable"})
_WRAPPED_MAX = 4
_PASSING_ON = {
    "stilltrue.runtime.calls.callbacks": "callback",
    "stilltrue.sync.call": "recorded",
    "stilltrue.aio.call": "recorded",
}
"""By module of the shells, the closure variable with the function that they call when a call ends."""


COMPILED_FUNCTIONS = frozenset({BuiltinFunctionType, *BuiltinFunctionType.__subclasses__()})
"""The types of compiled functions and methods. From Python 3.12 on, most methods of asyncio's futures have one of their own."""


def bound_to(function: Any) -> tuple[Any, ...]:
    """The objects a callable carries: its instance, closure and defaults, but not its module."""
    kind = type(function)
    if kind is MethodType:
        return (function.__self__, function.__func__)
    if kind is FunctionType:
        cells = tuple(content_of(cell) for cell in function.__closure__ or ())
        return (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if kind is WeakMethod:  # whose reference is only to the instance
        return (function(),)
    if issubclass(kind, ref):  # includes the subclass that WeakValueDictionary uses
        return (ref.__call__(function),)
    if kind is CellType:
        return (content_of(function),)
    own = getattr(function, "__self__", None) if kind in COMPILED_FUNCTIONS or is_of_asyncio(kind) else None
    return () if own is None else (own,)


def closure_of(callback: Any) -> dict[str, Any]:
    """The closure variables of a plain, bound or partial function, by name."""
    while type(callback) in (MethodType, functools.partial):
        callback = callback.__func__ if type(callback) is MethodType else callback.func
    if type(callback) is not FunctionType:
        return {}
    return dict(zip(callback.__code__.co_freevars, map(content_of, callback.__closure__ or ()), strict=False))


def is_compiled_function(callback: Any) -> bool:
    """Whether a callback is a compiled function or method, or a ``functools.partial`` of one."""
    kind = type(callback.func if type(callback) is functools.partial else callback)
    return kind in COMPILED_FUNCTIONS or is_of_asyncio(kind)


def is_function(thing: Any) -> bool:
    """Whether ``thing`` is a Python function or method, or a ``functools.partial``."""
    return type(thing) in (FunctionType, MethodType, functools.partial)


def code_behind(callback: Any) -> tuple[CodeType | None, dict[str, Any], Any]:
    """The code that a callback runs, its globals and its instance; (None, {}, None) for compiled callables.

    For a shell's function that calls one of the application's when a call ends, that of the application's.
    """
    if type(callback) is functools.partial:
        callback = callback.func
    while type(callback) is FunctionType and callback.__module__ in _PASSING_ON:
        given = closure_of(callback).get(_PASSING_ON[callback.__module__])
        if given is None:
            break
        callback = given.func if type(given) is functools.partial else given
    owner = None
    if type(callback) is MethodType:
        owner, callback = callback.__self__, callback.__func__
    if type(callback) is not FunctionType:
        owner, callback = (
            callback,
            next((one.__dict__["__call__"] for one in type(callback).__mro__ if "__call__" in one.__dict__), None),
        )
    if type(callback) is not FunctionType:
        return None, {}, None
    return callback.__code__, callback.__globals__, owner


def coroutine_of(task: Task) -> Any:
    """The coroutine that a task was made to run, without the :func:`wrappers_of` it."""
    wrappers = wrappers_of(task)
    return awaited_by(wrappers[-1]) if wrappers else task.get_coro()


def wrappers_of(task: Task) -> list[Any]:
    """The coroutines of libraries in which a task's own is wrapped, outermost first; each has the next one in a variable.

    Tracers (Datadog's, Sentry's) make such coroutines, to pass their contexts on.
    """
    found: list[Any] = []
    coroutine = task.get_coro()
    while (
        len(found) < _WRAPPED_MAX and type(coroutine) is CoroutineType and is_installed_library(coroutine.cr_code.co_filename)
    ):
        within, frame = awaited_by(coroutine), frame_of(coroutine)
        is_coroutine = type(within) is CoroutineType or hasattr(type(within), "cr_await")
        if not is_coroutine or frame is None or not any(one is within for one in variables_of(frame).values()):
            break
        found.append(coroutine)
        coroutine = within
    return found


def name_of(callback: Any) -> str:
    """The display name of a callback."""
    code, _, _ = code_behind(callback)
    if code is not None:
        return qualname_of(code)
    plain = type(callback) in COMPILED_FUNCTIONS or is_of_asyncio(type(callback))
    return str(callback.__qualname__) if plain and hasattr(callback, "__qualname__") else type(callback).__qualname__


def module_of(kind: type) -> str:
    """The module of a class; empty if the class uses ``__module__`` for a per-instance attribute."""
    name: object = kind.__module__
    return name if isinstance(name, str) else ""


def is_of_asyncio(kind: type) -> bool:
    """Whether a class belongs to asyncio's compiled module."""
    return module_of(kind) == "_asyncio"


def items_of_array(thing: Any) -> Iterable[Any] | None:
    """The items of a NumPy array of objects, which the garbage collector cannot read; None for anything else."""
    kind = type(thing)
    if kind.__name__ != "ndarray" or module_of(kind) != "numpy":
        return None
    return thing.flat if thing.dtype.hasobject else None


def content_of(cell: Any) -> Any:
    """The content of a closure cell; None if the cell is empty."""
    try:
        return cell.cell_contents
    except ValueError:  # empty cell
        return None


def held_by_coroutine(coroutine: Any) -> list[Any]:
    """The objects a suspended coroutine or generator holds: its variables, and the exits of its open ``with`` blocks."""
    code = code_of(coroutine)
    return [one for one in referred_to_by_coroutine(coroutine) if not _is_own(one, code)]


def referred_to_by_coroutine(coroutine: Any) -> list[Any]:
    """As :func:`held_by_coroutine`, with the coroutine's own code, names and function."""
    held = gc.get_referents(coroutine)
    if _FRAMES_HOLD and (frame := frame_of(coroutine)) is not None:
        own = (frame.f_globals, frame.f_builtins)
        held += [one for one in gc.get_referents(frame) if not any(one is names for names in own)]
    return held


def _is_own(one: Any, code: CodeType | None) -> bool:
    """Whether ``one`` belongs to the coroutine itself rather than to its variables."""
    kind = type(one)
    return kind in (CodeType, str, FrameType) or (kind is FunctionType and one.__code__ is code)


def code_of(coroutine: Any) -> CodeType | None:
    """The code of a coroutine, generator or asynchronous generator; None for compiled ones."""
    if type(coroutine) is CoroutineType:
        return coroutine.cr_code
    for name in ("cr_code", "gi_code", "ag_code"):
        code = getattr(coroutine, name, None)
        if isinstance(code, CodeType):
            return code
    return None
