"""Reads what callables, coroutines and their code hold and are called."""

from __future__ import annotations

import asyncio
import functools
import gc
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType
from typing import Any
from weakref import ref

Task = asyncio.Task[Any]
Where = tuple[tuple[CodeType, int], ...]
"""Where a thread or task stands: its codes and the instruction in each."""
WRAPPERS = frozenset({"async_generator_asend", "async_generator_athrow", "coroutine_wrapper", "anext_awaitable"})


def bound_to(function: Any) -> tuple[Any, ...]:
    """What a callable carries: its object, its closure, its defaults. Not its module."""
    kind = type(function)
    if kind is MethodType:
        return (function.__self__, function.__func__)
    if kind is FunctionType:
        cells = tuple(content_of(cell) for cell in function.__closure__ or ())
        return (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if issubclass(kind, ref):  # also those that WeakValueDictionary keeps
        return (ref.__call__(function),)
    if kind is CellType:
        return (content_of(function),)
    own = getattr(function, "__self__", None) if kind is BuiltinFunctionType or is_of_asyncio(kind) else None
    return () if own is None else (own,)


def closure_of(callback: Any) -> dict[str, Any]:
    """The variables of the closure of a function, a bound or a partial one, by name."""
    while type(callback) in (MethodType, functools.partial):
        callback = callback.__func__ if type(callback) is MethodType else callback.func
    if type(callback) is not FunctionType:
        return {}
    return dict(zip(callback.__code__.co_freevars, map(content_of, callback.__closure__ or ()), strict=False))


def is_function(thing: Any) -> bool:
    """Whether it is a function or method of Python's, or a partial one."""
    return type(thing) in (FunctionType, MethodType, functools.partial)


def called_in(callback: Any) -> tuple[CodeType | None, dict[str, Any], Any]:
    """The code that a callback runs, its globals and its object; (None, {}, None) for what is compiled."""
    if type(callback) is functools.partial:
        callback = callback.func
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


def name_of(callback: Any) -> str:
    """What to call a callback."""
    code, _, _ = called_in(callback)
    if code is not None:
        return code.co_qualname
    plain = type(callback) is BuiltinFunctionType or is_of_asyncio(type(callback))
    return str(callback.__qualname__) if plain and hasattr(callback, "__qualname__") else type(callback).__qualname__


def module_of(kind: type) -> str:
    """The module of a class; empty for a class whose ``__module__`` is no name but an attribute of its objects."""
    name: object = kind.__module__
    return name if isinstance(name, str) else ""


def is_of_asyncio(kind: type) -> bool:
    """Whether a class is of asyncio's compiled module."""
    return module_of(kind) == "_asyncio"


def content_of(cell: Any) -> Any:
    """What a closure's cell holds; None if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None


def names_in(coroutine: Any) -> list[Any]:
    """What a suspended coroutine or generator holds: its variables, and what it is in the middle of (``with`` blocks)."""
    code = code_of(coroutine)
    return [one for one in gc.get_referents(coroutine) if not _is_own(one, code)]


def _is_own(one: Any, code: CodeType | None) -> bool:
    """Whether it is part of what a coroutine is, not of what it holds."""
    kind = type(one)
    return kind in (CodeType, str, FrameType) or (kind is FunctionType and one.__code__ is code)


def code_of(coroutine: Any) -> CodeType | None:
    """The code of a coroutine, generator or asynchronous generator; None for compiled ones."""
    for name in ("cr_code", "gi_code", "ag_code"):
        code = getattr(coroutine, name, None)
        if isinstance(code, CodeType):
            return code
    return None
