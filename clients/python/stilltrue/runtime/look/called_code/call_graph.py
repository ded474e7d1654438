"""The code that a code object may run: the functions and methods it names, and those that these name.

Rules:

1. A function is named by a variable (also of a closure), as an attribute of an application module, or behind a decorator. A
   method is named by its name, if an object nearby has it. Nearby are the objects of the code that calls all others, and the
   globals that called code of the program's own names, with what it finds along the attributes that it names. Of a class that
   it finds there (a registry), it may make an object. The functions within one of the program's own are followed with it.
2. A name passed to ``getattr`` and the like counts as named (:mod:`~stilltrue.runtime.look.code.lookups`). If that name is
   computed, all methods of the objects nearby count, and all functions of the program's own modules that the code names.
3. Only application code is followed far.
"""

from __future__ import annotations

import functools
from collections import ChainMap, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.called_code import class_cache, indirect_calls, methods, nearby
from stilltrue.runtime.look.called_code.indirect_calls import called_in_places, functions_kept
from stilltrue.runtime.look.called_code.methods import (
    SETTERS,
    classes_named_by,
    constructors_of,
    functions_in_own_modules,
    functions_named_by,
    functions_of_modules,
    implicit_methods,
    methods_of,
)
from stilltrue.runtime.look.called_code.nearby import ObjectsAlong, classes_named, classes_near
from stilltrue.runtime.look.code.attributes import named_values
from stilltrue.runtime.look.code.instructions_ahead import Ahead
from stilltrue.runtime.look.code.lookups import COMPUTED, COMPUTED_SET, LOOKUPS, looked_up
from stilltrue.runtime.look.code.names import WITH, markers_in, names_of_own_timers, only_measured_names, words_in

NAMED_DEPTH = 2
"""Depth up to which every word of a function counts, and library code is followed (rule 3)."""
CODES_MAX = 10_000
"""Maximum number of code objects in a cache."""
_REACHED_MAX = 500
"""Maximum number of such walks in a cache, each of up to some hundred code objects."""
_NAMED_MAX = 400
_UNNAMED_MAX = 250
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Functions before Python 3.12."""
Reached = tuple[tuple[CodeType, dict[str, Any], int], ...]
"""Code objects with their globals and their depth in the call graph."""


class Nearby(NamedTuple):
    """What decides, besides its names, which code a code may run: a thousand similar tasks have the same.

    ``kinds``: the classes whose methods it may name; ``unnamed``: those whose methods it may run without naming them;
    ``kept``: further functions that it may call without naming them.
    """

    kinds: tuple[type, ...]
    unnamed: tuple[type, ...]
    kept: tuple[FunctionType, ...]


_named_cache: dict[tuple[CodeType, int, tuple[type, ...]], Reached] = {}
"""Cache of this look: the code that a function names, transitively, with its globals."""

_reached_cache: dict[tuple[Any, ...], tuple[dict[str, Any], Reached]] = {}
"""Cache of this look, by all that it depends on: the code that a code reaches. Similar tasks have objects of like classes."""
_direct_cache: dict[tuple[int, int], tuple[CodeType, dict[str, Any], _NamesOfCode]] = {}
"""Cache of this look, by the identities of a code and its globals: what it names directly."""
_unnamed_cache: dict[tuple[int, int], tuple[CodeType, dict[str, Any], tuple[FunctionType, ...]]] = {}
"""Cache of this look, by the identities of a code and its globals: what it calls on these without naming it."""


def clear_caches() -> None:
    """Clear the caches after a look."""
    _named_cache.clear()
    _reached_cache.clear()
    _direct_cache.clear()
    _unnamed_cache.clear()
    class_cache.clear_caches()
    methods.clear_caches()
    indirect_calls.clear_caches()
    nearby.clear_caches()


def reachable_code(
    code: CodeType,
    names: dict[str, Any],
    kinds: Iterable[type],
    ahead: frozenset[str] | None = None,
    *,
    unnamed: tuple[type, ...] | None = None,
    kept: Iterable[FunctionType] = (),
) -> Iterator[tuple[CodeType, dict[str, Any], int]]:
    """Yield ``code`` and the functions and methods (of ``kinds``) it names, with their globals and depth.

    Nearest first, the program's own before those of libraries, which have a bound of their own. ``ahead``: the names still
    ahead of ``code``. ``unnamed``: classes whose implicitly called methods count, too; so do those of the classes and globals
    named on the way. ``kept``: further functions that ``code`` may call without naming them.
    """
    near = dict.fromkeys(unnamed or ())
    along = ObjectsAlong(methods_of(tuple(kinds)))
    seen = {id(code): code}
    own, others = deque([(code, names, 0)]), deque[tuple[CodeType, dict[str, Any], int]]()
    room = {True: _NAMED_MAX, False: _NAMED_MAX}  # for the program's own, and for libraries
    implicit_ones = 0
    last: deque[FunctionType] = deque(kept)
    while own or others or last or (last := deque(along.functions_at_the_end(unnamed=unnamed is not None))):
        if not own and not others:  # implicit methods come last, so that they leave room for named functions
            implicit = last.popleft()
            full = implicit_ones >= _UNNAMED_MAX and len(seen) >= _NAMED_MAX + _UNNAMED_MAX
            if full or id(implicit.__code__) in seen:
                continue
            implicit_ones += 1
            seen[id(implicit.__code__)] = implicit.__code__
            own.append((implicit.__code__, implicit.__globals__, 1))
        code, names, depth = (own or others).popleft()
        yield code, names, depth
        if not room[is_own_code(code)] or (depth >= NAMED_DEPTH and not is_application(code)):
            continue
        one = _cached_names_of_code(code, names) if depth or ahead is None else _names_of_code(code, ahead, names)
        made, late = along.reached(one.classes, one.words if one.is_own else frozenset(), one.used)
        near.update(dict.fromkeys(made))
        words, functions = _words_and_functions(one, code, names, along.known)
        if unnamed is not None:
            last.extend(along.take_given())
            if one.has_names and (made or not depth or one.leaves_blocks):
                last.extend(implicit_methods(near, blocks=one.leaves_blocks))
            if (depth or ahead is None) and is_application(code):
                last.extend(_called_on_globals(code, names, one.words | {WITH} if one.leaves_blocks else one.words))
        for function in (*functions, *functions_named_by(words, along.known), *late, *constructors_of(made)):
            within = function.__code__
            if id(within) not in seen and room[mine := is_own_code(within)]:
                room[mine] -= 1
                seen[id(within)] = within
                (own if mine else others).append((within, function.__globals__, depth + 1))


def every_reachable_code(code: CodeType, names: dict[str, Any], nearby: Nearby, ahead: frozenset[str] | None) -> Reached:
    """All of :func:`reachable_code`; cached per look."""
    key = (code, id(names), nearby, ahead)
    known = _reached_cache.get(key)
    if known is None:
        if len(_reached_cache) >= _REACHED_MAX:
            _reached_cache.clear()
        found = tuple(reachable_code(code, names, nearby.kinds, ahead, unnamed=nearby.unnamed, kept=nearby.kept))
        known = _reached_cache[key] = names, found
    return known[1]


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
    return words, (*functions_of_modules(words, names), *functions_in_own_modules(one.words, names))


def _cached_names_of_code(code: CodeType, names: dict[str, Any]) -> _NamesOfCode:
    """The same for all words of a code; if it is a function of the program's own, of those within, too. Cached per look."""
    known = _direct_cache.get((id(code), id(names)))
    if known is None:
        words = words_in(code) | names_in(code) if is_own_code(code) and code.co_name != "<module>" else words_in(code)
        known = _direct_cache[id(code), id(names)] = code, names, _names_of_code(code, words, names)
    return known[2]


def _called_on_globals(code: CodeType, names: dict[str, Any], words: frozenset[str]) -> tuple[FunctionType, ...]:
    """What code calls unnamed on the globals it names (:mod:`~stilltrue.runtime.look.called_code.indirect_calls`)."""
    known = _unnamed_cache.get((id(code), id(names)))
    if known is None:
        found = tuple(unnamed_on(code, named_values(words, names), words))
        known = _unnamed_cache[id(code), id(names)] = code, names, found
    return known[2]


def unnamed_on(code: CodeType, objects: Iterable[Any], words: frozenset[str]) -> Iterator[FunctionType]:
    """What ``code`` with these ``words`` may call on some objects without naming it, exits of blocks included."""
    things = tuple(objects)
    yield from implicit_methods(classes_named(things, words), blocks=WITH in words)
    yield from functions_kept(code, things, words)


def named_ahead(ahead: Ahead, frame: FrameType) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The functions that a frame still has ahead, and those that these name: their code and globals.

    These are the functions its variables name, the application's methods that its attributes name on its objects or on the
    globals it names, and what these name in turn: the program's own functions however far away, a library's only nearby.
    """
    own = variables_of(frame)
    attributes = ahead.attributes | ahead.stored  # what it sets may be a property
    every = ChainMap(own, frame.f_globals)
    return _functions_named(frame.f_code, ahead.variables, attributes, every, own.values())


def named_by_callback(
    callback: Any,
    arguments: Iterable[Any] = (),
    variables: Iterable[str] = (),
    attributes: Iterable[str] = (),
) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The same for a callback: for all names of its code, or only some ``variables`` and ``attributes``."""
    code, names, owner = compat.code_behind(callback)
    if code is None:
        return iter(())
    variables, attributes = tuple(variables) or code.co_names, tuple(attributes) or code.co_names
    near = (owner, *compat.bound_to(callback), *arguments)
    every = ChainMap(compat.closure_of(callback), names)
    return _functions_named(code, (*variables, *code.co_freevars), attributes, every, near, near)


def _functions_named(
    code: CodeType,
    variables: Collection[str],
    attributes: Collection[str],
    names: Mapping[str, Any],
    near: Iterable[Any],
    used: Iterable[Any] = (),
) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The functions that ``code`` names, and what it may call on the named and the ``used`` objects without naming it."""
    named = named_values(variables, names, attributes)
    kinds = classes_near((*near, *named))
    known = methods_of(kinds)
    methods = (method for name in attributes for method in known.get(name, ()))
    unnamed = unnamed_on(code, (*used, *named), frozenset(attributes))
    placed = called_in_places(code, frozenset(variables))
    computes = is_own_code(code) and COMPUTED in looked_up(code)
    computed = functions_in_own_modules(frozenset(variables), names) if computes else ()
    for one in dict.fromkeys((*_with_closures(named), *methods, *unnamed, *placed, *computed)):
        key = one.__code__, id(one.__globals__), kinds
        every = _named_cache.get(key)
        if every is None:  # a cut in another thread may clear the cache
            every = _named_cache[key] = tuple(reachable_code(one.__code__, one.__globals__, kinds, unnamed=()))
        for reached, within, depth in every:
            if depth < NAMED_DEPTH or is_own_code(reached):
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
    named = frozenset(code.co_names) - only_measured_names(code) - names_of_own_timers(code)
    return named.union(looked_up(code), markers_in(code), *within)


def own_names_of(codes: Iterable[CodeType]) -> frozenset[str]:
    """The names used by those of some code objects that are the program's own, not an installed package's."""
    return frozenset().union(*(names_in(one) for one in codes if is_own_code(one)))
