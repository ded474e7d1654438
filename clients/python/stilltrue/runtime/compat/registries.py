"""Reads where Python keeps objects to be found or called later: modules, finalizers, queued executor items."""

from __future__ import annotations

import functools
import gc
import os
import sys
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import thread
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.own_packages import file_of, is_installed_library

_C_CALLBACKS = frozenset({"<class '_ctypes.CThunkObject'>", "<class '_cffi_backend.__CDataOwnGC'>"})
_MADE_BY_CTYPES = 5
"""The number of classes of functions that ctypes makes for itself when it is imported; ``CFUNCTYPE`` makes further ones."""
_STDLIB = str(Path(weakref.__file__).parent) + os.sep
_OURS = str(Path(__file__).parents[2]) + os.sep


def modules_of_application() -> Iterator[tuple[str, dict[str, Any]]]:
    """The application's modules (not Python's, a library's or the agent's) and their globals."""
    for name, module in items_of(sys.modules):
        if not issubclass(type(module), ModuleType):
            continue
        names = ModuleType.__getattribute__(module, "__dict__")
        file = file_of(name)
        if file is None or file.startswith(_OURS) or is_installed_library(file):
            continue
        if not file.startswith(_STDLIB):
            yield name, names


def finalizers() -> Iterator[tuple[Any, Any]]:
    """The objects that have a ``weakref.finalize``, each with its function and arguments."""
    registry = getattr(weakref.finalize, "_registry", {})
    for info in list(registry.values()):
        weak = getattr(info, "weakref", None)
        if isinstance(weak, weakref.ref) and (thing := weak()) is not None:
            yield thing, info


def weakref_callbacks(thing: Any) -> Iterator[Any]:
    """The functions that weak references to an object and its proxies call when the object is released."""
    if not type(thing).__weakrefoffset__:
        return
    for weak in weakref.getweakrefs(thing):
        # a proxy hides its callback, but the callback is all that the collector sees
        is_ref = issubclass(type(weak), weakref.ref)
        for callback in (weakref.ref.__dict__["__callback__"].__get__(weak),) if is_ref else gc.get_referents(weak):
            if type(callback) in (FunctionType, MethodType, functools.partial):
                yield callback


def with_proxies(things: Iterable[Any]) -> Iterator[Any]:
    """Some objects, each with its weak proxies, which do not show what they stand for: each use of one is a use of that."""
    for thing in things:
        yield thing
        if type(thing).__weakrefoffset__:
            yield from (one for one in weakref.getweakrefs(thing) if type(one) in weakref.ProxyTypes)


def kinds_of_c_callbacks() -> frozenset[type]:
    """The classes of the objects by which code in C calls Python: those of ctypes and cffi, if they may be in use."""
    function = getattr(sys.modules.get("_ctypes"), "CFuncPtr", None)
    made = [one for one in type.__subclasses__(function) if one.__name__ != "_FuncPtr"] if isinstance(function, type) else []
    every: list[Any] = type.__subclasses__(object) if len(made) > _MADE_BY_CTYPES else []
    base = getattr(sys.modules.get("_cffi_backend"), "_CDataBase", None)
    every += [each for one in base.__subclasses__() for each in one.__subclasses__()] if isinstance(base, type) else []
    return frozenset(one for one in every if type.__repr__(one) in _C_CALLBACKS)


def called_by_c(callback: Any) -> Iterator[Any]:
    """The functions that an object of one of these classes calls."""
    held = gc.get_referents(callback)
    for one in (*held, *(each for some in held if type(some) is tuple for each in some)):
        if type(one) in (FunctionType, MethodType, functools.partial, BuiltinFunctionType):
            yield one


def executor_queues() -> tuple[Any, ...]:
    """The queues of items that executors have not run yet."""
    by_thread = getattr(thread, "_threads_queues", {})
    queues = list(getattr(by_thread, "data", by_thread).values())
    return tuple(queues)
