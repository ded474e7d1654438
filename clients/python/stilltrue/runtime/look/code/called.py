"""The code that code comes to run: the functions and methods that it names, and what these name in turn.

Rules:

1. A function is named by a variable, also one of a closure, as an attribute of one of the application's modules, or behind
   what decorates it; a method by its name, where an object near by has it.
2. A name that is passed to ``getattr`` and the like counts as named (:mod:`~stilltrue.runtime.look.code.lookups`); where the
   text is computed, so do all methods of the objects near by.
3. Only the application's own code is followed far.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections import ChainMap, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.by_code import kept_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code import methods
from stilltrue.runtime.look.code.ahead import Ahead
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.lookups import COMPUTED, LOOKUPS, looked_up
from stilltrue.runtime.look.code.methods import (
    classes_named_by,
    functions_named_by,
    functions_of_modules,
    implied,
    made_by,
    merged,
    methods_of,
)
from stilltrue.runtime.look.code.names import WITH, markers_in, only_measured_in, words_in
from stilltrue.runtime.look.enders.reach import PASSED_BY, is_open, named_by

KINDS_WALK_MAX = 150
"""What is walked from one actor to learn of which classes the objects near it are, nearest first."""
KINDS_WALKS_MAX = 4
"""How often in one look that is done for the same code: a thousand tasks of one kind have objects of the same classes."""
NAMED_DEPTH = 2
"""How far from the first code a function may be for every word of it to count, and code of others to be followed (rule 3)."""
CODES_MAX = 10_000
"""How much code is remembered, with what was found of it."""
_NAMED_MAX = 200
_UNNAMED_MAX = 100
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Before Python 3.12 they are functions."""
_named: dict[tuple[CodeType, int, tuple[type, ...]], tuple[tuple[CodeType, dict[str, Any]], ...]] = {}
"""In this look: the code that a function names, and what that names in turn, with its globals."""

_directly: dict[tuple[int, int], tuple[CodeType, dict[str, Any], _Direct]] = {}
"""In this look, by the identities of a code and of its globals: what it names itself."""
_inside: dict[int, tuple[Any, type | None, tuple[Any, ...]]] = {}
"""In this look, by the identity of an object: its class, if that matters, and what is found right inside."""
_passed_by: dict[int, tuple[type, bool]] = {}
"""In this look: whether the walk does not open objects of a class."""
_own: dict[int, tuple[type, bool]] = {}
"""In this look: whether the application has written a class."""


def forget() -> None:
    """Forget what was found in a look."""
    _named.clear()
    _directly.clear()
    _inside.clear()
    _passed_by.clear()
    _own.clear()
    methods.forget()


def called(
    code: CodeType,
    names: dict[str, Any],
    kinds: Iterable[type],
    begin: frozenset[str] | None = None,
    *,
    unnamed: tuple[type, ...] | None = None,
) -> Iterator[tuple[CodeType, dict[str, Any], int]]:
    """``code``, and that of the functions and methods (of ``kinds``) that it names, nearest first: each with its globals,
    and how far it is. ``begin``: the names that are still ahead of ``code``.
    ``unnamed``: of these classes, and of those that are named, also what is called without being named.
    """
    known = methods_of(tuple(kinds))
    near = methods_of(unnamed or ())
    classes: set[type] = set()
    seen = {id(code): code}
    todo = deque([(code, names, 0)])
    last: deque[FunctionType] = deque()
    while todo or last:
        if not todo:  # what nobody names comes last, or there would be no room for what somebody does
            unspoken = last.popleft()
            if id(unspoken.__code__) in seen or len(seen) >= _NAMED_MAX + _UNNAMED_MAX:
                continue
            seen[id(unspoken.__code__)] = unspoken.__code__
            todo.append((unspoken.__code__, unspoken.__globals__, 1))
        code, names, depth = todo.popleft()
        yield code, names, depth
        if len(seen) >= _NAMED_MAX or (depth >= NAMED_DEPTH and not is_application(code)):
            continue
        one = _direct_of(code, names) if depth or begin is None else _direct(code, begin, names)
        made = tuple(kind for kind in one.classes if kind not in classes)
        if made:
            classes.update(made)
            known, near = merged(known, methods_of(made)), merged(near, methods_of(made))
        words, functions = _named_with(one, code, names, known)
        if unnamed is not None and one.speaks and (made or not depth or one.leaves):
            last.extend(implied(near, blocks=one.leaves))
        for function in (*functions, *functions_named_by(words, known), *made_by(made)):
            within = function.__code__
            if id(within) not in seen:
                seen[id(within)] = within
                todo.append((within, function.__globals__, depth + 1))


@dataclass(frozen=True, slots=True)
class _Direct:
    """What one code names itself: words, of methods; functions of modules; classes of the application's own.

    ``speaks``: whether it names anything; ``leaves``: whether it leaves ``with`` blocks.
    """

    words: frozenset[str]
    functions: tuple[FunctionType, ...]
    classes: tuple[type, ...]
    speaks: bool
    leaves: bool


def _direct(code: CodeType, words: frozenset[str], names: dict[str, Any]) -> _Direct:
    """What code names that speaks of these ``words``."""
    texts = frozenset() if LOOKUPS.isdisjoint(words) else looked_up(code)
    every = (words - {WITH}) | texts
    functions = functions_of_modules(every, names)
    return _Direct(every, functions, classes_named_by(words, names), bool(words), WITH in words)


def _named_with(
    one: _Direct, code: CodeType, names: dict[str, Any], methods: Iterable[str]
) -> tuple[frozenset[str], tuple[FunctionType, ...]]:
    """The words and functions that code names; one that computes a name may mean any of the ``methods`` (rule 2)."""
    if COMPUTED not in one.words or not is_own_code(code):
        return one.words, one.functions
    words = one.words.union(methods)
    return words, functions_of_modules(words, names)


def _direct_of(code: CodeType, names: dict[str, Any]) -> _Direct:
    """The same, of all its words: once in a look."""
    known = _directly.get((id(code), id(names)))
    if known is None:
        known = _directly[id(code), id(names)] = code, names, _direct(code, words_in(code), names)
    return known[2]


def kinds_of(near: Iterable[Any]) -> tuple[type, ...]:
    """The application's own classes among those of ``near`` and of what is found inside, nearest first."""
    kinds: dict[type, None] = {}
    seen: dict[int, Any] = {}
    todo = deque(thing for thing in near if not _is_passed_by(type(thing)))
    while todo and len(seen) < KINDS_WALK_MAX:
        thing = todo.popleft()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # kept alive, or its identity may be given anew
        known = _inside.get(id(thing))
        if known is None:
            known = _inside[id(thing)] = _read_inside(thing)
        if known[1] is not None:
            kinds[known[1]] = None
        todo.extend(known[2])
    return tuple(kind for kind in kinds if is_own_class(kind))


def _read_inside(thing: Any) -> tuple[Any, type | None, tuple[Any, ...]]:
    held = named_by(thing)
    kind = type(thing) if held is None and is_open(thing) else None
    if kind is not None:
        held = gc.get_referents(thing)
    return thing, kind, tuple(one for one in held or () if not _is_passed_by(type(one)))


def _is_passed_by(kind: type) -> bool:
    known = _passed_by.get(id(kind))
    if known is None:
        passed = issubclass(kind, PASSED_BY) and not (issubclass(kind, threading.Thread) and is_own_class(kind))
        known = _passed_by[id(kind)] = kind, passed
    return known[1]


def kinds_named(objects: Iterable[Any], words: frozenset[str]) -> tuple[type, ...]:
    """The application's own classes of some objects, and of their attributes that some words name."""
    found: dict[type, None] = {}
    for thing in objects:
        if not is_own_class(type(thing)):
            continue
        found[type(thing)] = None
        held = (attribute_of(thing, word) for word in words)
        found.update((type(one), None) for one in held if is_own_class(type(one)))
    return tuple(found)


def is_own_class(kind: type) -> bool:
    """Whether the application has written a class: some method of it is its own code."""
    known = _own.get(id(kind))
    if known is None:
        own = any(type(one) is FunctionType and is_application(one.__code__) for one in kind.__dict__.values())
        known = _own[id(kind)] = kind, own
    return known[1]


def named_ahead(ahead: Ahead, frame: FrameType) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The code, with its globals, of the functions that a frame has still ahead: those that its variables name, and the
    application's methods that attributes name of what it has. And of those that these name in turn.
    """
    own = variables_of(frame)
    return _functions_named(ahead.variables, ahead.attributes, ChainMap(own, frame.f_globals), own.values())


def named_by_callback(
    callback: Any, arguments: Iterable[Any] = (), variables: Iterable[str] = (), attributes: Iterable[str] = ()
) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The same of a callback: of all that its code names, or of some ``variables`` and ``attributes``."""
    code, names, owner = compat.called_in(callback)
    if code is None:
        return iter(())
    variables, attributes = tuple(variables) or code.co_names, tuple(attributes) or code.co_names
    near = (owner, *compat.bound_to(callback), *arguments)
    return _functions_named((*variables, *code.co_freevars), attributes, ChainMap(compat.closure_of(callback), names), near)


def _functions_named(
    variables: Iterable[str], attributes: Iterable[str], names: Mapping[str, Any], near: Iterable[Any]
) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    kinds = kinds_of(near)
    known = methods_of(kinds)
    functions = _with_closures(names.get(name) for name in variables)
    for one in (*functions, *(method for name in attributes for method in known.get(name, ()))):
        key = one.__code__, id(one.__globals__), kinds
        if key not in _named:
            every = called(one.__code__, one.__globals__, kinds)
            _named[key] = tuple((code, within) for code, within, depth in every if depth < NAMED_DEPTH)
        yield from _named[key]


def _with_closures(things: Iterable[Any]) -> list[FunctionType]:
    """The functions among some things, bound or partial ones too, and those in their closures."""
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
    """Whether there are functions within a function, other than comprehensions."""
    return any(isinstance(one, CodeType) and one.co_name not in _COMPREHENSIONS for one in code.co_consts)


@kept_by_code
def names_within(code: CodeType, ahead: frozenset[CodeType]) -> frozenset[str]:
    """The names of the functions within a function; of a module none: whoever calls these names them.

    A comprehension counts only if it is still ``ahead``: nobody can run it again. What it has made may be called.
    """
    if code.co_name == "<module>":
        return frozenset()
    within = [one for one in code.co_consts if isinstance(one, CodeType)]
    passed = [one for one in within if one.co_name in _COMPREHENSIONS and one not in ahead]
    names = (names_within(one, frozenset()) if one in passed else names_in(one) for one in within)
    return frozenset().union(*names)


@kept_by_code
def names_in(code: CodeType) -> frozenset[str]:
    """The names of a code and of the functions within it."""
    within = (names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return (frozenset(code.co_names) - only_measured_in(code)).union(looked_up(code), markers_in(code), *within)
