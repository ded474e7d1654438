"""Whether a thread or task that runs only looks at what it can reach: to print a status, say. Then it ends no other's wait.

Rules:

1. Its frames are the application's own, apart from waits of ``threading`` and ``queue`` and from ``asyncio.sleep()``, and all
   code that it may still run is known: its own, and that of functions of the application's own whose names it uses, wherever
   these are. It neither looks up names by text, nor imports anything, nor calls what is in a variable, nor passes a ``key``.
2. Of other code it calls only what runs nothing of the application's: builtins, functions of some modules, and methods of
   strings, numbers and collections, by names that the application gives to no attribute of its own. What it prints or logs to
   may be the application's own, which counts as called. It waits only at events and conditions that are globals. A method of
   the application's own may be a library's in truth, if there is an object with such a method (``scheduler.run()``).
3. None of that code mentions what ends the wait. Nor does any method of the application's own that runs without being named
   (``__repr__``, ``__del__``, a property; ``__exit__`` if that code has blocks), nor any lambda, nor any function that wraps
   another. The blocks that its frames are in are those of locks, or of objects of the application's own classes. If a task
   awaits what others may complete, that code awaits nothing that others may await, too: to be cancelled would cancel it.

Anything else may end the wait.
"""

from __future__ import annotations

import asyncio
import builtins
import queue
import sys
import threading
from abc import ABCMeta
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import EnumMeta
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.collector import objects_of
from stilltrue.runtime.introspection.frames import no_collection
from stilltrue.runtime.introspection.origins import is_of_own_module, is_own_code, is_own_file
from stilltrue.runtime.look.called_code.indirect_calls import called_in_places
from stilltrue.runtime.look.code.instructions_ahead import ahead_of, reached_from
from stilltrue.runtime.look.code.lookups import LOOKUPS, calls_values, calls_values_at, may_run_any_code, may_see_any_object
from stilltrue.runtime.look.code.names import ATTRIBUTES, IMPORT, VARIABLES, WITH, words_in
from stilltrue.runtime.waits.futures.own_futures import completes_only_own
from stilltrue.runtime.waits.holders.with_blocks import depth_of, exits_of, expression_before, instructions_of, value_of
from stilltrue.runtime.waits.reachability.loops.waking import WITH_ITS_WAITER
from stilltrue.runtime.waits.reachability.names.code_names import properties

CODES_MAX = 200
_WAITS = frozenset({threading.__file__, queue.__file__})
_MODULES = frozenset({"collections", "datetime", "logging", "math", "random", "statistics", "string", "sys", "time"})
_PLAIN = (bool, bytes, Counter, datetime, deque, dict, float, frozenset, int, list, set, str, timedelta, tuple)
_OF_WAITS = ("builtins", "threading", "queue", "_thread", "_queue")
_BASES = (*_OF_WAITS, "abc", "enum", "typing", "collections")
METACLASSES = (type, ABCMeta, EnumMeta)
_CALLING_BACK = frozenset(
    {"map", "filter", "iter", "reduce", "__import__", "eval", "exec", "compile", "input", "breakpoint", "type"}
)
"""Builtins that may call what they are given, or what the program has replaced."""
_HARMLESS = frozenset(
    {
        # but for format(), which gets attributes by text
        *(name for kind in _PLAIN for name in vars(kind) if not name.startswith(("_", "format"))),
        *("is_set", "is_alive", "locked", "qsize", "empty", "full"),
        *("sleep", "time", "monotonic", "perf_counter", "strftime"),
        *("debug", "info", "warning", "error", "exception", "critical", "log", "flush", "write"),
    }
)
"""Methods and functions of modules that run nothing of the application's, apart from rule 2."""
_OF_BLOCKS = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__"})
_MAKING = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__", "__call__"})


def only_looks(
    frames: Sequence[FrameType], waking: frozenset[str], functions: Iterable[FunctionType], kept: frozenset[str] = frozenset()
) -> bool:
    """Whether who has these frames ends no wait.

    ``waking``: what ends it; ``functions``: all of the process; ``kept``: the names of attributes that are functions which may
    end it.
    """
    own = [one for one in frames if one.f_code.co_filename not in _WAITS and one.f_code is not asyncio.sleep.__code__]
    if not own or not all(is_own_code(one.f_code) for one in own):
        return False
    if not all(map(_leaves_known_blocks, own)):
        return False
    program = _Program(functions, own)
    codes = program.reached_by(own)
    if codes is None or any(not (waking | kept).isdisjoint(names) for _, names in codes):
        return False
    if WITH_ITS_WAITER in waking and not completes_only_own([code for code, _ in codes]):
        return False
    blocks = any(WITH in names for _, names in codes) or any(map(depth_of, own))
    return not any(_mentions(one, waking, program) for one in program.unnamed(blocks=blocks))


def _leaves_known_blocks(frame: FrameType) -> bool:
    """Whether the exits of the blocks that a frame is in are known (rule 3)."""
    for left in exits_of(frame):
        kind = None if left is None else type(left.__self__)
        own = type(left) is MethodType and type(left.__func__) is FunctionType and is_own_code(left.__func__.__code__)
        if kind is None or not (own or compat.module_of(kind) in ("_thread", "threading")):
            return False
    return True


def _mentions(function: FunctionType, waking: frozenset[str], program: _Program) -> bool:
    """Whether a function, or code that it may call, mentions what ends the wait."""
    codes = program.reached_from(function)
    return codes is None or any(not waking.isdisjoint(names) for _, names in codes)


_Code = tuple[CodeType, dict[str, Any], frozenset[str], tuple[int, ...]]
"""A code with its globals, the names that it uses, and its instructions, by index, both those ahead."""


class _Program:
    """The functions of the application's own."""

    def __init__(self, functions: Iterable[FunctionType], frames: Iterable[FrameType]) -> None:
        self._functions = [one for one in functions if is_own_code(one.__code__)]
        self._codes = [*(one.__code__ for one in self._functions), *(one.f_code for one in frames)]
        self._by_name: dict[str, list[FunctionType]] = {}
        for one in self._functions:
            for name in {one.__name__, one.__code__.co_name}:
                self._by_name.setdefault(name, []).append(one)

    def unnamed(self, *, blocks: bool) -> Iterator[FunctionType]:
        """Those that may run without being named (rule 3)."""
        for one in self._functions:
            code = one.__code__
            name = code.co_name
            dunder = name.startswith("__") and name.endswith("__") and name not in _MAKING
            wraps = bool(code.co_freevars) and calls_values(code)
            if name == "<lambda>" or wraps or (dunder and (blocks or name not in _OF_BLOCKS)):
                yield one
        for thing in properties():
            every = (thing.fget, thing.fset, thing.fdel)
            yield from (one for one in every if type(one) is FunctionType and is_own_code(one.__code__))

    def reached_by(self, frames: Iterable[FrameType]) -> list[tuple[CodeType, frozenset[str]]] | None:
        """All code that the rest of these frames may run, with the names that it uses; None if that is not known."""
        todo: list[_Code] = []
        for frame in frames:
            code, ahead = frame.f_code, ahead_of(frame.f_code, frame.f_lasti)
            if not ahead.known:
                return None
            names = ahead.names | ahead.stored | ahead.markers
            todo.append((code, frame.f_globals, names, tuple(sorted(reached_from(code, frame.f_lasti)))))
        return self._reached(todo)

    def reached_from(self, function: FunctionType) -> list[tuple[CodeType, frozenset[str]]] | None:
        """All code that a function may run, likewise."""
        return self._reached([_whole(function.__code__, function.__globals__)])

    def _knows(self, methods: frozenset[str]) -> bool:
        """Whether methods with these names run nothing but what is known."""
        own = methods - _HARMLESS
        return all(name in self._by_name for name in own) and not self._sets_any(methods) and not _are_of_library(own)

    def _sets_any(self, names: frozenset[str]) -> bool:
        """Whether the program sets an attribute with one of these names, perhaps to a function with another name."""
        codes = (code for code in self._codes if not names.isdisjoint(code.co_names))
        return any(not names.isdisjoint(_attributes_set(code)) for code in codes)

    def _reached(self, todo: list[_Code]) -> list[tuple[CodeType, frozenset[str]]] | None:
        found: list[tuple[CodeType, frozenset[str]]] = []
        seen = set[tuple[int, int, tuple[int, ...]]]()
        while todo:
            code, space, names, ahead = todo.pop()
            if (key := (id(code), id(space), ahead)) in seen:
                continue
            called = self._called(code, space, names, ahead)
            if called is None or len(found) >= CODES_MAX:
                return None
            seen.add(key)
            builtin = {name for name in _globals_named(code, ahead) if name not in space and hasattr(builtins, name)}
            found.append((code, names - (builtin - _attributes_named(code))))
            todo += called
        return found

    def _called(self, code: CodeType, space: dict[str, Any], names: frozenset[str], ahead: Sequence[int]) -> list[_Code] | None:
        """The code that one code calls (rules 1 and 2); None if that is not known."""
        if calls_values_at(code, frozenset(ahead)) or may_run_any_code(code, names) or may_see_any_object(code, names):
            return None
        if not LOOKUPS.isdisjoint(names) or any(one.startswith(IMPORT) for one in names) or _passes_key(code):
            return None
        if not (_waits_at_events(code, space, ahead) and self._knows(_methods_called(code, ahead) - {"wait"})):
            return None
        functions = [one for name in names for one in self._by_name.get(name, ())]
        for value in (_global(name, space) for name in _globals_named(code, ahead)):
            if type(value) is FunctionType and is_own_code(value.__code__):
                functions.append(value)
            elif issubclass(type(value), type) and is_of_own_module(value):
                made = _made_by(value)
                if made is None:
                    return None
                functions += made
            elif not (_is_harmless(value) or (value is asyncio and _only_sleeps(names))):
                return None
        functions += called_in_places(code, names)
        every = instructions_of(code)
        within = [_whole(every[index].argval, space) for index in ahead if type(every[index].argval) is CodeType]
        return [*within, *(_whole(one.__code__, one.__globals__) for one in functions)]


def _are_of_library(names: frozenset[str]) -> bool:
    """Whether there is an object with a method of one of these names that a library has written, which may call anything."""
    kinds = (one for one in objects_of(frozenset(METACLASSES)) if issubclass(type(one), type)) if names else ()
    having = frozenset(one for one in kinds if any(_is_of_library(one, name) for name in names))
    with no_collection:
        return bool(having) and any(True for _ in objects_of(having))


def _is_of_library(kind: type, name: str) -> bool:
    bases = type.__getattribute__(kind, "__mro__")
    base = next((one for one in bases if name in type.__getattribute__(one, "__dict__")), None)
    if base is None or type(type.__getattribute__(base, "__dict__")[name]) is not FunctionType or is_of_own_module(base):
        return False
    module = compat.module_of(base)
    return module not in _OF_WAITS and module.partition(".")[0] != "stilltrue"


def _whole(code: CodeType, space: dict[str, Any]) -> _Code:
    return code, space, words_in(code).union(code.co_varnames), tuple(range(len(instructions_of(code))))


def _global(name: str, space: dict[str, Any]) -> Any:
    return space[name] if name in space else vars(builtins).get(name)


def _made_by(kind: type) -> list[FunctionType] | None:
    """What runs when an object of a class of the application's own is made; None if that is not known."""
    bases = type.__getattribute__(kind, "__mro__")
    if type(kind) not in METACLASSES or not all(is_of_own_module(one) or compat.module_of(one) in _BASES for one in bases):
        return None
    every = (type.__getattribute__(one, "__dict__").get(name) for one in bases for name in _MAKING)
    return [one for one in every if type(one) is FunctionType and is_own_code(one.__code__)]


def _is_harmless(value: Any) -> bool:
    """Whether a global that is neither the application's function nor its class runs nothing of the application's."""
    kind = type(value)
    if kind is ModuleType:
        return value.__name__ in _MODULES or is_own_file(getattr(value, "__file__", None))
    if kind is BuiltinFunctionType:
        return value.__name__ not in _CALLING_BACK and compat.module_of(value) in (*_MODULES, "builtins")
    if issubclass(kind, type):
        return value.__name__ not in _CALLING_BACK and compat.module_of(value) in (*_MODULES, "builtins")
    if callable(value):
        return value is asyncio.sleep
    return compat.module_of(kind) in (*_MODULES, *_OF_WAITS) or is_of_own_module(kind)


def _only_sleeps(names: Iterable[str]) -> bool:
    """Whether code that uses these names calls nothing of asyncio's but ``sleep()``."""
    used = [found for name in names if (found := vars(asyncio).get(name)) is not None and type(found) is not ModuleType]
    return all(one is asyncio.sleep or (type(one) is type and issubclass(one, BaseException)) for one in used)


@cached_by_code
def _passes_key(code: CodeType) -> bool:
    return any("key" in one for one in code.co_consts if type(one) is tuple)


def _methods_called(code: CodeType, ahead: Iterable[int]) -> frozenset[str]:
    """The attributes that a code calls at these instructions."""
    every = instructions_of(code)
    unpacks = any(one.opname == "CALL_FUNCTION_EX" for one in every)  # what that calls is loaded like any other attribute
    named = (every[index] for index in ahead if every[index].opname in ATTRIBUTES)
    return frozenset(str(one.argval) for one in named if unpacks or _is_method(one))


def _waits_at_events(code: CodeType, space: dict[str, Any], ahead: Iterable[int]) -> bool:
    """Whether all that a code waits at is an event or condition that a global names; a barrier has an action."""
    every = instructions_of(code)
    waiting = (index for index in ahead if every[index].opname in ATTRIBUTES and every[index].argval == "wait")
    kinds = (type(value_of(expression_before(every, index), {}, space)) for index in waiting)
    return all(kind in (threading.Event, threading.Condition) for kind in kinds)


@cached_by_code
def _attributes_set(code: CodeType) -> frozenset[str]:
    return frozenset(str(one.argval) for one in instructions_of(code) if one.opname == "STORE_ATTR")


@cached_by_code
def _attributes_named(code: CodeType) -> frozenset[str]:
    return frozenset(str(one.argval) for one in instructions_of(code) if one.opname in ATTRIBUTES)


def _is_method(one: Any) -> bool:
    """Whether an instruction loads an attribute only to call it."""
    plain = one.opname == "LOAD_ATTR" and not (sys.version_info >= (3, 12) and one.arg & 1)
    return not plain


def _globals_named(code: CodeType, ahead: Iterable[int]) -> frozenset[str]:
    """The globals that a code uses at these instructions."""
    every = instructions_of(code)
    named = (every[index] for index in ahead if every[index].opname in VARIABLES)
    return frozenset(str(one.argval) for one in named if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
