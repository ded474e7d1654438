"""What code may call without naming a function: what operators call, and the functions kept in tables and attributes.

Rules:

1. Code that has an object may run the methods of its class that have double underscores: rule 2 of
   :mod:`~stilltrue.runtime.look.called_code.methods`.
2. Code that names a collection, or an attribute of an object, may call the functions in it: ``ACTIONS[what](call)``,
   ``settings.policy(call)``.
3. A library calls what it was given. Code of the program's own that has one of its objects (a signal, a logger, a selector, a
   queue) or functions may run the program's own functions kept behind it, and the methods of the program's own objects there.
   What a web framework was given runs only for a request, so it does not count. Code that has a suspended generator, or an
   iterator over one, may run the rest of the generator's code. A channel of gRPC, or one of its methods, runs its
   interceptors, and what serializes its messages.
4. ``print`` writes to ``sys.stdout``, ``warnings.warn`` calls ``warnings.showwarning``, and the functions of :mod:`logging` log
   by the root logger, or by any that ``getLogger()`` returns: what stands in these places counts like an object of a library.
"""

from __future__ import annotations

import enum
import functools
import gc
import logging
import sys
import threading
import warnings
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from types import AsyncGeneratorType, CellType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.called_code.class_cache import cached_by_class
from stilltrue.runtime.look.called_code.jobs import FUNCTIONS
from stilltrue.runtime.look.called_code.methods import functions_of, is_program_class, methods_of
from stilltrue.runtime.look.code.attributes import (
    attribute_dictionary,
    attribute_of,
    attributes_of,
    named_values,
    slots_of,
)
from stilltrue.runtime.look.code.names import mentioned_in
from stilltrue.runtime.look.ways_out.reach import SKIPPED_CLASSES, is_open, named_by

TAKING = frozenset({"get", "pop", "popitem", "popleft", "setdefault", "values", "items", "__getitem__", "__iter__"})
"""Methods of collections that return what is in them."""
_TABLE_MAX = 500
"""Maximum number of items read per collection."""
_OTHERS = sys.stdlib_module_names | {"grpc", "stilltrue"}
_COLLECTIONS: tuple[Any, ...] = (list, tuple, set, frozenset)
_WITH_ITEMS: tuple[Any, ...] = (dict, enum.EnumMeta, *_COLLECTIONS)
"""Classes of which :func:`items_in` reads the items."""
_FACTORY: Any = defaultdict.__dict__["default_factory"]
_UNNAMED = frozenset({"__call__", "__enter__", "__exit__", "__getattr__", "__getitem__", "__iter__", "__next__"})
"""Methods that run without being named, and may call a function kept in an attribute."""
GENERATORS = frozenset({AsyncGeneratorType, GeneratorType})
_ITERATORS = GENERATORS | {enumerate, filter, map, zip}
_METHODS_DEPTH = 3
"""Maximum number of methods of one object that call each other, up to the one that reads a collection."""
_GIVEN_MAX = 150
"""Maximum number of objects walked behind one object of a library, nearest first."""
_CALLING_NOTHING = frozenset(
    {
        "_asyncio",
        "_thread",
        "asyncio",
        "concurrent",
        "contextvars",
        "multiprocessing",
        "socket",
        "ssl",
        "subprocess",
        "threading",
    }
) | frozenset({"_contextvars", "_io", "_socket", "builtins", "grpc", "io", "re", "stilltrue", "types"})
"""Modules whose objects call nothing by themselves, or are read elsewhere."""
_SERVING = frozenset(
    {"aiohttp", "asgiref", "bottle", "cheroot", "cherrypy", "django", "falcon", "fastapi", "flask", "grpclib", "gunicorn"}
) | frozenset({"hypercorn", "quart", "sanic", "starlette", "tornado", "uvicorn", "waitress", "werkzeug"})
"""Web frameworks: what they were given runs for requests (rule 3)."""
_CALLING_ALL_THE_SAME = ("django.dispatch", "werkzeug.local")
"""Modules of these that are called without a request. A ``LocalProxy`` calls a function for what it stands for."""
_PRINTING = frozenset({"print", "stdout", "stderr"})
LOGGING = frozenset({"critical", "debug", "error", "exception", "info", "log", "warn", "warning"})
"""Functions and methods that log."""
_given: dict[int, tuple[Any, tuple[FunctionType, ...]]] = {}
"""Cache of this look, by object identity: the functions that a library's object or function may call."""
_method_names: dict[tuple[int, frozenset[str]], tuple[type, frozenset[str]]] = {}
"""Cache of this look, by the identity of a class and some words: the names read by its methods that these name."""


def clear_caches() -> None:
    """Clear the caches after a look."""
    _given.clear()
    _method_names.clear()


@cached_by_class
def _own_values(kind: type) -> dict[str, Any]:
    """The attributes that a class itself defines, without its bases; None for one that is a function."""
    return {name: None if type(one) is FunctionType else one for name, one in kind.__dict__.copy().items()}


@cached_by_class
def _values_of(kind: type) -> dict[str, Any]:
    """The attributes of a class and its bases that are not functions."""
    table: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        table.update(_own_values(base))
    return {name: one for name, one in table.items() if one is not None}


@cached_by_class
def _collections_of(kind: type) -> dict[str, Any]:
    """The collections among the attributes of a class and its bases."""
    return {name: one for name, one in _values_of(kind).items() if issubclass(type(one), (dict, *_COLLECTIONS))}


@cached_by_class
def _codes_of(kind: type) -> dict[str, CodeType]:
    """The code of the methods that the application defines in a class and its bases."""
    table: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        table.update(base.__dict__)
    methods = ((name, _plain_function(one)) for name, one in table.items())
    return {name: one.__code__ for name, one in methods if type(one) is FunctionType and is_application(one.__code__)}


def attributes_named(thing: Any, words: frozenset[str]) -> Iterator[Any]:
    """The attributes of an object that some words name: its own, and those of its class that are not functions."""
    return (held for name, held in _attributes_by_name(thing) if name in words)


def _attributes_by_name(thing: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object and their names: its own and the collections of its class; all values of a class."""
    kind = type(thing)
    if issubclass(kind, type):
        yield from _values_of(thing).items()
        return
    if kind is not SimpleNamespace and compat.module_of(kind).partition(".")[0] in _OTHERS:
        return
    own = attribute_dictionary(thing) if kind.__dictoffset__ else None
    if own is not None:
        yield from list(dict.items(own))
    yield from ((name, attribute_of(thing, name)) for name in slots_of(kind))  # type: ignore[arg-type]
    if kind is not SimpleNamespace:
        yield from _collections_of(kind).items()


def used_by(code: CodeType, names: dict[str, Any], near: Iterable[Any], words: frozenset[str]) -> Iterable[Any]:
    """The objects that code with these ``words`` uses; of a module, whose variables are all its globals, only those named."""
    return named_values(words, names) if code.co_name == "<module>" else near


def functions_kept(code: CodeType, objects: Iterable[Any], words: frozenset[str]) -> tuple[FunctionType, ...]:
    """The application's functions that ``code`` with these ``words`` may call on some objects (rules 2 to 4)."""
    things = tuple(objects)
    kept = (each for one in callables_kept(things, words) for each in functions_of(_function_of(one)))
    found = dict.fromkeys(one for one in kept if is_application(one.__code__))
    if not is_own_code(code):
        return tuple(found)
    used = (*things, *(each for one in things for each in attributes_named(one, words)))
    for thing in (*used, *(each for one in used for each in items_in(one))):
        found.update(dict.fromkeys(_given_to_library(thing)))
    found.update(dict.fromkeys(called_in_places(code, words)))
    return tuple(found)


def called_in_places(code: CodeType, words: frozenset[str]) -> Iterator[FunctionType]:
    """The program's own functions that ``code`` with these ``words`` calls through the standard library (rule 4)."""
    if is_own_code(code):
        yield from (each for one in _in_places_of_library(words) for each in functions_behind(one))


def _in_places_of_library(words: frozenset[str]) -> Iterator[Any]:
    """What functions of the standard library with these names call (rule 4)."""
    if not _PRINTING.isdisjoint(words):
        yield from (one for one in (sys.stdout, sys.stderr) if is_program_class(type(one)))
    if "warn" in words:
        yield warnings.showwarning
    if not LOGGING.isdisjoint(words):
        every = tuple(logging.root.manager.loggerDict.values()) if "getLogger" in words else ()
        yield from (one for one in (logging.root, *every) if _may_run_own_code(one))
        yield logging.getLogRecordFactory()


def _may_run_own_code(logger: Any) -> bool:
    given = attribute_of(logger, "handlers") or attribute_of(logger, "filters")
    return bool(given) or is_program_class(type(logger))


def _given_to_library(thing: Any) -> tuple[FunctionType, ...]:
    """The program's own functions that a library's object, function or method may call (rules 3 and 4). Cached per look."""
    thing = _function_of(thing)
    if thing is print or thing is warnings.warn:
        return tuple(each for one in _in_places_of_library(frozenset({thing.__name__})) for each in functions_behind(one))
    if type(thing) is MethodType:
        thing = thing.__self__
    kind = type(thing)
    if not (_may_call(kind) or (kind is FunctionType and _is_function_of_library(thing))):
        return ()
    known = _given.get(id(thing))
    if known is None:
        known = _given[id(thing)] = thing, tuple(dict.fromkeys(functions_behind(thing)))
    return known[1]


@cached_by_class
def _may_call(kind: type) -> bool:
    """Whether objects of a class call what they were given, or go on with it."""
    return not issubclass(kind, SKIPPED_CLASSES) and (kind in _ITERATORS or _calls_what_it_is_given(kind))


def functions_behind(root: Any) -> Iterator[FunctionType]:
    """The program's own functions behind an object, and the methods of the program's own objects there, nearest first."""
    todo = deque(_attributes(root, type(root)) if _is_thread_of_library(type(root)) else [root])
    for thing in _each_once(todo):
        kind = type(thing)
        if kind in FUNCTIONS:
            own = [one for one in functions_of(_function_of(thing)) if is_own_code(one.__code__)]
            yield from own
            todo.extend(_behind_function(thing) if not own else ())
        elif kind in GENERATORS:
            yield from _function_of_generator(thing)
            todo.extend(one for one in gc.get_referents(thing) if type(one) in GENERATORS)
        elif is_program_class(kind):
            yield from (one for every in methods_of((kind,)).values() for one in every if is_own_code(one.__code__))
            todo.extend(one for one in _attributes(thing, kind) if type(one) in FUNCTIONS)
        else:
            todo.extend(_inside(thing))


def callables_behind(root: Any) -> Iterator[Any]:
    """The functions and methods that an object of a library's class, or of a subclass, may call, nearest first.

    These are bound to objects of the program's own classes only if these are subclasses of a library's (handlers), or given so.

    What a task runs is looked at as that task's: tasks written in Python would show it here, those written in C do not.
    """
    kind = type(root)
    opened = inherits_calls(kind) or _is_thread_of_library(kind)
    todo = deque(_attributes(root, kind) if opened else [root] if _calls_what_it_is_given(kind) else ())
    for thing in _each_once(todo):
        if type(thing) in FUNCTIONS:
            yield thing
        elif not is_program_class(type(thing)):
            todo.extend(() if compat.is_task(thing) else _inside(thing))
        elif thing is not root and inherits_calls(type(thing)):  # a handler
            every = (one for some in methods_of((type(thing),)).values() for one in some)
            yield from (MethodType(one, thing) for one in every if is_own_code(one.__code__))


def _each_once(todo: deque[Any]) -> Iterator[Any]:
    """The objects of ``todo``, to which more may be added meanwhile, without those that lead nowhere; a bounded number."""
    seen: dict[int, Any] = {}
    while todo and len(seen) < _GIVEN_MAX:
        thing = todo.popleft()
        if id(thing) not in seen and not issubclass(type(thing), SKIPPED_CLASSES):
            seen[id(thing)] = thing  # kept alive, or its identity may be reused
            yield thing


def _function_of_generator(generator: Any) -> Iterator[FunctionType]:
    """A function with the code that whoever asks a suspended generator for its next item runs."""
    frame = frame_of(generator)
    if frame is not None and is_own_code(frame.f_code):
        cells = tuple(CellType() for _ in frame.f_code.co_freevars)
        yield FunctionType(frame.f_code, frame.f_globals, frame.f_code.co_name, None, cells)


def _behind_function(function: Any) -> Iterator[Any]:
    """What a library's function carries, and the globals that it names."""
    yield from compat.bound_to(function)
    if type(function) is FunctionType:
        names = function.__globals__
        every = (names.get(name) for name in function.__code__.co_names)
        yield from (one for one in every if type(one) not in (FunctionType, ModuleType, *compat.COMPILED_FUNCTIONS))


def _inside(thing: Any) -> Iterable[Any]:
    """What an object of a library, or a collection, holds."""
    kind = type(thing)
    if issubclass(kind, logging.Logger):  # its manager has all others
        above = ("parent",) if attribute_of(thing, "propagate") else ()
        return [attribute_of(thing, name) for name in ("handlers", "filters", *above)]
    if compat.is_channel(kind):
        return compat.given_to_channel(thing)
    near = named_by(thing)
    if near is not None:
        return near
    return (
        gc.get_referents(thing) if is_open(thing) and (kind.__module__ == "builtins" or _calls_what_it_is_given(kind)) else ()
    )


def _attributes(thing: Any, kind: type) -> Iterator[Any]:
    yield from attributes_of(thing) if kind.__dictoffset__ else ()
    yield from (attribute_of(thing, name) for name in slots_of(kind))


def _calls_what_it_is_given(kind: type) -> bool:
    """Whether objects of a class may call what they were given (rule 3)."""
    module = compat.module_of(kind)
    if module.startswith(_CALLING_ALL_THE_SAME):
        return True
    calls = compat.is_channel(kind) or module.partition(".")[0] not in _CALLING_NOTHING | _SERVING
    return calls and not is_program_class(kind)


def _is_thread_of_library(kind: type) -> bool:
    """Whether it is a library's own class of threads, whose frames are its methods."""
    return issubclass(kind, threading.Thread) and _calls_what_it_is_given(kind)


def inherits_calls(kind: type) -> bool:
    """Whether a class of the program's own has a base whose objects may call what they were given."""
    return is_program_class(kind) and any(_calls_what_it_is_given(base) for base in kind.__mro__[1:-1])


def _is_function_of_library(thing: FunctionType) -> bool:
    """Whether it is a function of an installed package, or a library's wrapper around another function."""
    if is_own_code(thing.__code__):
        return False
    module = thing.__globals__.get("__name__")
    root = module.partition(".")[0] if type(module) is str else ""
    return bool(thing.__closure__ or is_application(thing.__code__)) and root not in _CALLING_NOTHING | _SERVING


def callables_kept(objects: Iterable[Any], words: frozenset[str], kinds: Collection[type] = FUNCTIONS) -> Iterator[Any]:
    """The callables of these ``kinds`` in collections among ``objects``, and in attributes that some words name (rule 2)."""
    for thing in objects:
        yield from _in_collection(thing, kinds)
        keeping = [(name, held) for name, held in _attributes_by_name(thing) if _may_keep_callables(type(held))]
        named = words | _names_of_methods(thing, words) if keeping else words
        for held in (one for name, one in keeping if name in named):
            yield from (held,) if type(held) in kinds else _in_collection(held, kinds)


def _may_keep_callables(kind: type) -> bool:
    return kind in FUNCTIONS or kind in compat.COMPILED_FUNCTIONS or issubclass(kind, _WITH_ITEMS)


def _names_of_methods(thing: Any, words: frozenset[str]) -> frozenset[str]:
    """The names read by the application's methods of an object or class which some words name, and by those that these name."""
    kind = thing if issubclass(type(thing), type) else type(thing)
    if compat.module_of(kind).partition(".")[0] in _OTHERS:
        return frozenset()
    known = _method_names.get((id(kind), words))
    if known is None:
        found = frozenset().union(*_read_by_methods(_codes_of(kind), words | _UNNAMED))
        known = _method_names[id(kind), words] = kind, found
    return known[1]


def _read_by_methods(methods: Mapping[str, CodeType], words: frozenset[str]) -> Iterator[frozenset[str]]:
    """What those of the ``methods`` read that some words name, and those that these name."""
    seen: frozenset[str] = frozenset()
    for _ in range(_METHODS_DEPTH):
        found = [_read_by(code) for name, code in methods.items() if name in words and name not in seen]
        if not found:
            return
        yield from found
        seen, words = seen | words, frozenset().union(*found)


@cached_by_code
def _read_by(code: CodeType) -> frozenset[str]:
    """The names that a method reads, also by text."""
    texts = (one for one in code.co_consts if type(one) is str and one.isidentifier())
    return mentioned_in(code).union(texts, ("_value_",) if "value" in code.co_names else ())


def _plain_function(method: Any) -> Any:
    return method.__func__ if type(method) in (classmethod, staticmethod) else method


def _function_of(called: Any) -> Any:
    while type(called) is functools.partial:
        called = called.func
    return called


def _in_collection(thing: Any, kinds: Collection[type], *, deep: bool = True) -> Iterator[Any]:
    """The functions of these ``kinds`` in a collection; ``deep``: and in the collections in it."""
    for one in items_in(thing):
        if type(one) in kinds:
            yield one
        elif deep and issubclass(type(one), (dict, *_COLLECTIONS)):
            yield from _in_collection(one, kinds, deep=False)


def items_in(thing: Any) -> list[Any]:
    """The first items of a collection, values of a dictionary or attributes of an enum's members; none of any other object.

    Those of a ``defaultdict`` include the function that makes a missing one.
    """
    kind = type(thing)
    items: Iterable[Any] = ()
    if kind in compat.COMPILED_FUNCTIONS and thing.__name__ in TAKING:
        return items_in(thing.__self__)
    if issubclass(kind, enum.EnumMeta):
        items = (one for member in dict.values(thing.__dict__["_member_map_"]) for one in attributes_of(member))
    elif issubclass(kind, dict):
        items = dict.values(thing)
    else:
        items = next((one.__iter__(thing) for one in _COLLECTIONS if issubclass(kind, one)), ())
    made_by = (_FACTORY.__get__(thing),) if issubclass(kind, defaultdict) else ()
    try:
        return [*made_by, *islice(items, _TABLE_MAX)]
    except RuntimeError:  # it changed during the read
        return []
