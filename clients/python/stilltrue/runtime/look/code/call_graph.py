"""The code that a code object may run: the functions and methods it names, and those that these name.

Rules:

1. A function is named by a variable (also of a closure), as an attribute of an application module, or behind a decorator. A
   method is named by its name, if an object nearby has it. Nearby are the objects of the code that calls all others, and the
   globals that called code of the program's own names, with what it finds along the attributes that it names.
2. A name passed to ``getattr`` and the like counts as named (:mod:`~stilltrue.runtime.look.code.lookups`). If that name is
   computed, all methods of the objects nearby count.
3. Only application code is followed far.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections import ChainMap, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_of_own_module, is_own_code
from stilltrue.runtime.look.code import indirect_calls, methods
from stilltrue.runtime.look.code.attributes import named_values, own_attributes_named
from stilltrue.runtime.look.code.indirect_calls import attributes_named, called_in_places, functions_kept, items_in
from stilltrue.runtime.look.code.instructions_ahead import Ahead
from stilltrue.runtime.look.code.jobs import FUNCTIONS
from stilltrue.runtime.look.code.lookups import COMPUTED, COMPUTED_SET, LOOKUPS, looked_up
from stilltrue.runtime.look.code.methods import (
    SETTERS,
    Methods,
    class_attributes,
    classes_named_by,
    constructors_of,
    functions_named_by,
    functions_of,
    functions_of_modules,
    implicit_methods,
    is_program_class,
    merge_methods,
    methods_of,
)
from stilltrue.runtime.look.code.names import WITH, markers_in, only_measured_names, words_in
from stilltrue.runtime.look.ways_out.reach import SKIPPED_CLASSES, is_open, named_by

KINDS_WALK_MAX = 150
"""Maximum number of objects walked from one actor to find the classes nearby, nearest first."""
_ALIKE_MAX = 5
"""Maximum number of objects of one class walked per collection: they mostly lead to the same classes."""
KINDS_WALKS_MAX = 4
"""Maximum number of such walks per look for the same code: a thousand similar tasks have objects of the same classes."""
NAMED_DEPTH = 2
"""Depth up to which every word of a function counts, and library code is followed (rule 3)."""
CODES_MAX = 10_000
"""Maximum number of code objects in a cache."""
_NAMED_MAX = 200
_UNNAMED_MAX = 100
_ALONG_MAX = 100
"""Maximum number of objects walked from the globals of one function, nearest first."""
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Functions before Python 3.12."""
_named_cache: dict[tuple[CodeType, int, tuple[type, ...]], tuple[tuple[CodeType, dict[str, Any], int], ...]] = {}
"""Cache of this look: the code that a function names, transitively, with its globals."""

_direct_cache: dict[tuple[int, int], tuple[CodeType, dict[str, Any], _NamesOfCode]] = {}
"""Cache of this look, by the identities of a code and its globals: what it names directly."""
_unnamed_cache: dict[tuple[int, int], tuple[CodeType, dict[str, Any], tuple[FunctionType, ...]]] = {}
"""Cache of this look, by the identities of a code and its globals: what it calls on these without naming it."""
_inside_cache: dict[int, tuple[Any, type | None, tuple[Any, ...]]] = {}
"""Cache of this look, by object identity: its class, if relevant, and the objects directly inside."""
_passed_by_cache: dict[int, tuple[type, bool]] = {}
"""Cache of this look: whether the walk skips objects of a class."""
_own_cache: dict[int, tuple[type, bool]] = {}
"""Cache of this look: whether a class is application code."""


def clear_caches() -> None:
    """Clear the caches after a look."""
    _named_cache.clear()
    _direct_cache.clear()
    _unnamed_cache.clear()
    _inside_cache.clear()
    _passed_by_cache.clear()
    _own_cache.clear()
    methods.clear_caches()
    indirect_calls.clear_caches()


def reachable_code(
    code: CodeType,
    names: dict[str, Any],
    kinds: Iterable[type],
    ahead: frozenset[str] | None = None,
    *,
    unnamed: tuple[type, ...] | None = None,
    kept: Iterable[FunctionType] = (),
) -> Iterator[tuple[CodeType, dict[str, Any], int]]:
    """Yield ``code`` and the functions and methods (of ``kinds``) it names, nearest first, with their globals and depth.

    ``ahead``: the names still ahead of ``code``. ``unnamed``: classes whose implicitly called methods count, too; so do those
    of the classes and globals named on the way. ``kept``: further functions that ``code`` may call without naming them.
    """
    near = methods_of(unnamed or ())
    along = _Along(methods_of(tuple(kinds)))
    seen = {id(code): code}
    todo = deque([(code, names, 0)])
    last: deque[FunctionType] = deque(kept)
    while todo or last or along.has_more(last):
        if not todo:  # implicit methods come last, so that they leave room for named functions
            implicit = last.popleft()
            if id(implicit.__code__) in seen or len(seen) >= _NAMED_MAX + _UNNAMED_MAX:
                continue
            seen[id(implicit.__code__)] = implicit.__code__
            todo.append((implicit.__code__, implicit.__globals__, 1))
        code, names, depth = todo.popleft()
        yield code, names, depth
        if len(seen) >= _NAMED_MAX or (depth >= NAMED_DEPTH and not is_application(code)):
            continue
        one = _cached_names_of_code(code, names) if depth or ahead is None else _names_of_code(code, ahead, names)
        made, late = along.go(one)
        near = merge_methods(near, methods_of(made))
        words, functions = _words_and_functions(one, code, names, along.known)
        if unnamed is not None:
            last.extend(along.take_given())
            if one.has_names and (made or not depth or one.leaves_blocks):
                last.extend(implicit_methods(near, blocks=one.leaves_blocks))
            if (depth or ahead is None) and is_application(code):
                last.extend(_called_on_globals(code, names, one.words))
        for function in (*functions, *functions_named_by(words, along.known), *late, *constructors_of(made)):
            within = function.__code__
            if id(within) not in seen:
                seen[id(within)] = within
                todo.append((within, function.__globals__, depth + 1))


class _Along:
    """The methods known so far, and what is found along the names of all code reached so far, from the globals that it names.

    A function may return an object, so the names of its callers lead on.
    """

    def __init__(self, known: Methods) -> None:
        self.known = known
        self._classes: set[type] = set()
        self._spoken: set[str] = set()
        self._used: list[Any] = []
        self._walked: dict[int, Any] = {}
        self._given: list[FunctionType] = []

    def go(self, one: _NamesOfCode) -> tuple[tuple[type, ...], tuple[FunctionType, ...]]:
        """Go on from code that was just reached: the classes that it makes, and methods that code before it has named."""
        made = tuple(kind for kind in one.classes if kind not in self._classes)
        if one.is_own:
            self._spoken |= one.words
            self._used += one.used
        used, given = _found_along(one.used, self._spoken, self._walked)
        self._given += given
        return made, self._learn((*made, *(kind for kind in used if kind not in made)))

    def has_more(self, last: deque[FunctionType]) -> bool:
        """Walk all once more, now that the names of all code are known, and add the functions found."""
        if self._used:
            used, given = _found_along(self._used, self._spoken, {})
            self._used = []
            last.extend((*given, *self._learn(used)))
        return bool(last)

    def take_given(self) -> list[FunctionType]:
        """The functions found in attributes since the last time."""
        given, self._given = self._given, []
        return given

    def _learn(self, kinds: tuple[type, ...]) -> tuple[FunctionType, ...]:
        fresh = methods_of(tuple(kind for kind in kinds if kind not in self._classes))
        self._classes.update(kinds)
        self.known = merge_methods(self.known, fresh)
        return tuple(functions_named_by(frozenset(self._spoken), fresh)) if fresh else ()


@dataclass(frozen=True, slots=True)
class _NamesOfCode:
    """What one code object names directly: words (for methods), functions of modules, and application classes.

    ``used``: the globals that code of the program's own (``is_own``) names. ``has_names``: whether it names anything;
    ``leaves_blocks``: whether it leaves ``with`` blocks.
    """

    words: frozenset[str]
    functions: tuple[FunctionType, ...]
    classes: tuple[type, ...]
    used: tuple[Any, ...]
    is_own: bool
    has_names: bool
    leaves_blocks: bool


def _names_of_code(code: CodeType, words: frozenset[str], names: dict[str, Any]) -> _NamesOfCode:
    """What code with these ``words`` names."""
    texts = frozenset() if LOOKUPS.isdisjoint(words) else looked_up(code)
    every = (words - {WITH}) | texts
    functions = functions_of_modules(every, names)
    own = is_own_code(code)
    used = named_values(words, names) if own else ()
    return _NamesOfCode(every, functions, classes_named_by(words, names), used, own, bool(words), WITH in words)


def _found_along(
    objects: Iterable[Any], words: Collection[str], walked: dict[int, Any]
) -> tuple[tuple[type, ...], tuple[FunctionType, ...]]:
    """The program's own classes of the objects found along attributes in ``words``, and the functions in these attributes.

    ``walked``: the objects that have been walked already.
    """
    kinds: dict[type, None] = {}
    functions: dict[FunctionType, None] = {}
    todo = deque(one for one in objects if type(one) not in FUNCTIONS and not issubclass(type(one), type))
    while todo and len(walked) < _ALONG_MAX:
        thing = todo.popleft()
        if id(thing) in walked:
            continue
        walked[id(thing)] = thing  # kept alive, or its identity may be reused
        if is_program_class(type(thing)):
            kinds[type(thing)] = None
        held = (*items_in(thing), *own_attributes_named(thing, words))
        functions.update((each, None) for one in held if type(one) in FUNCTIONS for each in functions_of(one))
        todo.extend(one for one in _first_of_each_class(held) if type(one) not in FUNCTIONS)
    return tuple(kinds), tuple(one for one in functions if is_own_code(one.__code__))


def _words_and_functions(
    one: _NamesOfCode, code: CodeType, names: dict[str, Any], methods: Iterable[str]
) -> tuple[frozenset[str], tuple[FunctionType, ...]]:
    """The words and functions that code names. If it computes a name, all ``methods`` count (rule 2)."""
    if not is_own_code(code):
        return one.words, one.functions
    if "globals" in one.words:  # ``globals()[name]()``
        return one.words, functions_of_modules(one.words.union(names), names)
    if COMPUTED not in one.words:
        return (one.words | {SETTERS} if COMPUTED_SET in one.words else one.words), one.functions
    words = one.words.union(methods)
    return words, functions_of_modules(words, names)


def _cached_names_of_code(code: CodeType, names: dict[str, Any]) -> _NamesOfCode:
    """The same for all words of the code, cached per look."""
    known = _direct_cache.get((id(code), id(names)))
    if known is None:
        known = _direct_cache[id(code), id(names)] = code, names, _names_of_code(code, words_in(code), names)
    return known[2]


def _called_on_globals(code: CodeType, names: dict[str, Any], words: frozenset[str]) -> tuple[FunctionType, ...]:
    """What code may call without naming it on the globals it names (:mod:`~stilltrue.runtime.look.code.indirect_calls`)."""
    known = _unnamed_cache.get((id(code), id(names)))
    if known is None:
        found = tuple(unnamed_on(code, named_values(words, names), words))
        known = _unnamed_cache[id(code), id(names)] = code, names, found
    return known[2]


def unnamed_on(code: CodeType, objects: Iterable[Any], words: frozenset[str]) -> Iterator[FunctionType]:
    """What ``code`` with these ``words`` may call on some objects without naming it."""
    things = tuple(objects)
    yield from implicit_methods(methods_of(classes_named(things, words)), blocks=False)
    yield from functions_kept(code, things, words)


def classes_near(near: Iterable[Any]) -> tuple[type, ...]:
    """The application classes of ``near`` and of the objects inside, and those among these objects, nearest first."""
    kinds: dict[type, None] = {}
    seen: dict[int, Any] = {}
    todo = deque(thing for thing in near if not _is_skipped(thing))
    while todo and len(seen) < KINDS_WALK_MAX:
        thing = todo.popleft()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # kept alive, or its identity may be reused
        known = _inside_cache.get(id(thing))
        if known is None:
            known = _inside_cache[id(thing)] = _read_inside(thing)
        if known[1] is not None:
            kinds[known[1]] = None
        todo.extend(known[2])
    return tuple(kind for kind in kinds if is_own_class(kind))


def _read_inside(thing: Any) -> tuple[Any, type | None, tuple[Any, ...]]:
    if issubclass(type(thing), type):
        return thing, thing, tuple(one for one in class_attributes((thing,)) if not _is_skipped(one))
    held = named_by(thing)
    kind = type(thing) if held is None and is_open(thing) else None
    held = _first_of_each_class(held or ()) if kind is None else gc.get_referents(thing)
    return thing, kind, tuple(one for one in held if one is not kind and not _is_skipped(one))


def _first_of_each_class(things: Iterable[Any]) -> Iterator[Any]:
    """Some objects without those of application classes that have come often."""
    counts: dict[type, int] = {}
    for one in things:
        kind = type(one)
        if issubclass(kind, type) or not is_own_class(kind):
            yield one
        elif counts.get(kind, 0) < _ALIKE_MAX:
            counts[kind] = counts.get(kind, 0) + 1
            yield one


def _is_skipped(thing: Any) -> bool:
    """Whether the walk skips an object. It passes through the program's own classes."""
    kind = type(thing)
    if issubclass(kind, type):
        return not is_program_class(thing)
    known = _passed_by_cache.get(id(kind))
    if known is None:
        passed = issubclass(kind, SKIPPED_CLASSES) and not (issubclass(kind, threading.Thread) and is_own_class(kind))
        known = _passed_by_cache[id(kind)] = kind, passed
    return known[1]


def classes_named(objects: Iterable[Any], words: frozenset[str]) -> tuple[type, ...]:
    """The application classes of some objects, of the items of collections among them, and of their attributes in ``words``."""
    found: dict[type, None] = {}
    for thing in objects:
        for one in (thing, *items_in(thing), *attributes_named(thing, words)):
            if is_own_class(type(one)):
                found[type(one)] = None
    return tuple(found)


def is_own_class(kind: type) -> bool:
    """Whether a class has a method written by the application, or is made in a module of its own."""
    known = _own_cache.get(id(kind))
    if known is None:
        own = any(type(one) is FunctionType and is_application(one.__code__) for one in kind.__dict__.values())
        own = own or is_of_own_module(kind)
        known = _own_cache[id(kind)] = kind, own
    return known[1]


def named_ahead(ahead: Ahead, frame: FrameType, *, far: bool = False) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The functions that a frame still has ahead, and those that these name: their code and globals.

    These are the functions its variables name, and the application's methods that its attributes name on its objects, or on
    the globals it names. ``far``: also the application's own functions that these name in turn, however far away.
    """
    own = variables_of(frame)
    attributes = ahead.attributes | ahead.stored  # what it sets may be a property
    every = ChainMap(own, frame.f_globals)
    return _functions_named(frame.f_code, ahead.variables, attributes, every, own.values(), far=far)


def named_by_callback(
    callback: Any,
    arguments: Iterable[Any] = (),
    variables: Iterable[str] = (),
    attributes: Iterable[str] = (),
    *,
    far: bool = False,
) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The same for a callback: for all names of its code, or only some ``variables`` and ``attributes``."""
    code, names, owner = compat.code_behind(callback)
    if code is None:
        return iter(())
    variables, attributes = tuple(variables) or code.co_names, tuple(attributes) or code.co_names
    near = (owner, *compat.bound_to(callback), *arguments)
    every = ChainMap(compat.closure_of(callback), names)
    return _functions_named(code, (*variables, *code.co_freevars), attributes, every, near, near, far=far)


def _functions_named(
    code: CodeType,
    variables: Collection[str],
    attributes: Collection[str],
    names: Mapping[str, Any],
    near: Iterable[Any],
    used: Iterable[Any] = (),
    *,
    far: bool,
) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The functions that ``code`` names, and what it may call on the named and the ``used`` objects without naming it."""
    named = named_values(variables, names, attributes)
    kinds = classes_near((*near, *named))
    known = methods_of(kinds)
    methods = (method for name in attributes for method in known.get(name, ()))
    unnamed = unnamed_on(code, (*used, *named), frozenset(attributes))
    placed = called_in_places(code, frozenset(variables))
    for one in dict.fromkeys((*_with_closures(named), *methods, *unnamed, *placed)):
        key = one.__code__, id(one.__globals__), kinds
        if key not in _named_cache:
            every = reachable_code(one.__code__, one.__globals__, kinds, unnamed=())
            _named_cache[key] = tuple(every)
        for reached, within, depth in _named_cache[key]:
            if depth < NAMED_DEPTH or (far and is_own_code(reached)):
                yield reached, within


def _with_closures(things: Iterable[Any]) -> list[FunctionType]:
    """The functions among ``things``, bound and partial ones included, and those in their closures."""
    found: dict[FunctionType, None] = {}
    todo = deque(things)
    while todo and len(found) < _NAMED_MAX:
        one = todo.popleft()
        if type(one) is FunctionType:
            if one not in found:
                found[one] = None
                todo.extend(compat.closure_of(one).values())
        elif type(one) in (MethodType, functools.partial):
            todo.append(one.__func__ if type(one) is MethodType else one.func)
    return list(found)


def makes_functions(code: CodeType) -> bool:
    """Whether a function contains inner functions other than comprehensions."""
    return any(isinstance(one, CodeType) and one.co_name not in _COMPREHENSIONS for one in code.co_consts)


@cached_by_code
def names_within(code: CodeType, ahead: frozenset[CodeType]) -> frozenset[str]:
    """The names used by the functions inside a function; none for a module, whose callers name its functions.

    A comprehension counts only if it is still ``ahead``, since it cannot run again; functions that it made may still be called.
    """
    if code.co_name == "<module>":
        return frozenset()
    within = [one for one in code.co_consts if isinstance(one, CodeType)]
    passed = [one for one in within if one.co_name in _COMPREHENSIONS and one not in ahead]
    names = (names_within(one, frozenset()) if one in passed else names_in(one) for one in within)
    return frozenset().union(*names)


@cached_by_code
def names_in(code: CodeType) -> frozenset[str]:
    """The names used by a code object and the functions inside it."""
    within = (names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return (frozenset(code.co_names) - only_measured_names(code)).union(looked_up(code), markers_in(code), *within)


def own_names_of(codes: Iterable[CodeType]) -> frozenset[str]:
    """The names used by those of some code objects that are the program's own, not an installed package's."""
    return frozenset().union(*(names_in(one) for one in codes if is_own_code(one)))
