"""Whether code speaks of ending things: its own, that of the functions and methods that it names, and what these name in turn.

Rules:

1. A function is named by a variable, as an attribute of one of the application's modules, or behind what decorates it; a
   method by its name, where an object near by has it.
2. Far down only what cancels counts, and only the application's own code is followed: nearly everything closes something.
3. What is called by those who do not name it (a handler in a registry, what a ``with`` block's exit or a finalizer runs) ends
   what it carries, where its code speaks of ending things. What it names of its module does not count: nearly every program
   has a list of functions that requests from outside may call.
4. A name that is passed to ``getattr`` and the like counts as named (:mod:`~stilltrue.runtime.look.code.lookups`); where the
   text is computed, so do all methods of the objects near by.
5. Who calls ``release()`` only on what the same function has taken does not speak of releasing what others have, unless
   it may be suspended in between (the generator of a context manager).
"""

from __future__ import annotations

import functools
import gc
import inspect
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.origins import is_application, is_library, is_own_code
from stilltrue.runtime.look.code import methods
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.lookups import (
    COMPUTED,
    LOOKUPS,
    looked_up,
    name_called,
    runs_anything,
    sees_anything,
    texts_near,
)
from stilltrue.runtime.look.code.methods import (
    classes_named_by,
    classes_of,
    functions_in,
    functions_named_by,
    functions_of_modules,
    implied,
    imported,
    made_by,
    merged,
    methods_of,
    texts_of,
)
from stilltrue.runtime.look.code.names import WITH, markers_in, stored_in
from stilltrue.runtime.look.enders.reach import PASSED_BY, is_open, named_by
from stilltrue.runtime.seen.brackets import gives_back_only_its_own

KINDS_WALK_MAX = 150
"""What is walked from one actor to learn of which classes the objects near it are, nearest first."""
KINDS_WALKS_MAX = 4
"""How often in one look that is done for the same code: a thousand tasks of one kind have objects of the same classes."""
_NAMED_DEPTH = 2
_NAMED_MAX = 200
_UNNAMED_MAX = 100
_ENDS = re.compile(
    r"cancel(?!lederror)|abort|close|kill|terminat|shutdown|stop|throw|set_exception|expire|evict|reap|interrupt"
    r"|reschedule|^shift$|^set_result$",  # what gives a timeout or scope that has none an end
    re.I,
)
_ENDS_FAR = re.compile(r"^(cancel|abort|throw|set_exception|cancel_all)$")
_CODES_MAX = 10_000
_RELEASE = frozenset({"release"})
_LIBRARYS = _RELEASE | {"cancel", "set_result", "set_exception", "__exit__", "__aexit__"}
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Before Python 3.12 they are functions."""
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_CALLED = (FunctionType, MethodType, functools.partial)
_Key = tuple[CodeType, type, frozenset[str] | None]
_speaks: dict[_Key, bool] = {}
_by_near: dict[_Key, tuple[int, bool]] = {}
"""In this look: how often objects near a code were walked, and whether the methods that it names speak of ending things."""
_reached: dict[tuple[Any, ...], tuple[int, ReachableNames]] = {}
"""In this look: the same, and what it speaks of."""
_of_called: dict[int, tuple[Any, ReachableNames]] = {}
"""In this look, by the identity of what may be called: the same."""
_named: dict[tuple[CodeType, int, tuple[type, ...]], tuple[tuple[CodeType, dict[str, Any]], ...]] = {}
"""In this look: the code that a function names, and what that names in turn, with its globals."""


def forget() -> None:
    """Forget what was near the actors of a look."""
    _by_near.clear()
    _reached.clear()
    _of_called.clear()
    _named.clear()
    methods.forget()


def is_ending(name: str) -> bool:
    """Whether a name speaks of ending things."""
    return _ENDS.search(name) is not None


def speaks_of_ending(
    code: CodeType, names: dict[str, Any], owner: Any = None, held: Iterable[Any] = (), begin: frozenset[str] | None = None
) -> bool:
    """Whether ``code`` or what it calls by name ends things.

    Its globals are ``names``, its object ``owner``; it has ``held`` besides. ``begin``: the names that are still ahead of it.
    """
    key = (code, type(owner), begin)
    known = _speaks.get(key)
    if known is None:
        if len(_speaks) >= _CODES_MAX:
            _speaks.clear()
        _speaks[key] = known = _any_speaks(code, names, (type(owner),), begin)
    if known or not code.co_names:
        return known
    walks, known = _by_near.get(key, (0, False))
    if not known and walks < KINDS_WALKS_MAX:
        near = (owner, *held, *(names[name] for name in code.co_names if name in names))
        known = _any_speaks(code, names, _kinds(near), begin)
        _by_near[key] = walks + 1, known
    return known


def ended_by(thing: Any, by: frozenset[str] = frozenset(), *, named: bool = False) -> tuple[Any, ...]:
    """What a thing has that it ends when it is called, or forgotten (rule 3); nothing for any other.

    ``by``: by naming one of these; otherwise, by speaking of ending things. ``named``: also what it names of its module.
    """
    kind = type(thing)
    if kind in _CALLED or (kind is BuiltinFunctionType and type(thing.__self__) is not ModuleType):
        return _ended_by_call(thing, by, named=named)
    if kind is GeneratorType and (frame := frame_of(thing)) is not None and is_application(frame.f_code):
        said = reachable_names(frame.f_code, frame.f_globals, compat.names_in(thing)) if by else ReachableNames()
        return () if by.isdisjoint(said.names) else (*compat.names_in(thing), *said.named)
    finalizer = _finalizer_of(kind)
    if finalizer is not None and _speaks_so(finalizer.__code__, finalizer.__globals__, thing, (), by):
        return (thing,)
    return ()


def _ended_by_call(called: Any, by: frozenset[str], *, named: bool) -> tuple[Any, ...]:
    code, names, owner = compat.called_in(called)
    carried = _carried(called)
    if code is None or not is_application(code):
        name = compat.name_of(called).rsplit(".", 1)[-1]
        return carried if name in by or (not by and is_ending(name)) else ()
    if not by:
        return carried if carried and speaks_of_ending(code, names, owner, carried) else ()
    if not carried and not named:
        return ()
    said = _said_by(called, code, names, (owner, *carried))
    return () if by.isdisjoint(said.names) else (*carried, *(said.named if named else ()))


def _said_by(called: Any, code: CodeType, names: dict[str, Any], near: Iterable[Any]) -> ReachableNames:
    known = _of_called.get(id(called))
    if known is None:
        known = _of_called[id(called)] = called, reachable_names(code, names, near)
    return known[1]


def _speaks_so(code: CodeType, names: dict[str, Any], owner: Any, held: Iterable[Any], by: frozenset[str]) -> bool:
    if not by:
        return speaks_of_ending(code, names, owner, held)
    return not by.isdisjoint(reachable_names(code, names, (owner, *held)).names)


@dataclass(frozen=True, slots=True)
class ReachableNames:
    """What code may come to run names: all names, and the globals among them; ``anything``: it may run any code.

    ``everywhere``: it may come by any object. ``unread``: it may name anything, in a module that is yet to be loaded.
    """

    names: frozenset[str] = frozenset()
    named: tuple[Any, ...] = ()
    anything: bool = False
    everywhere: bool = False
    unread: bool = False


def reachable_names(
    code: CodeType, names: dict[str, Any], near: Iterable[Any], begin: frozenset[str] | None = None, *, far: bool = True
) -> ReachableNames:
    """What ``code`` with the globals ``names`` speaks of; ``begin``: the names that are still ahead of it.

    ``far``: also by the methods of objects that are found inside those it names.
    """
    near = tuple(near)
    key = (code, tuple(dict.fromkeys(map(type, near))), begin, far)
    walks, known = _reached.get(key, (0, ReachableNames()))
    if walks >= KINDS_WALKS_MAX:
        return known
    every = _names_in(code) if begin is None else begin | (frozenset() if LOOKUPS.isdisjoint(begin) else looked_up(code))
    anything, everywhere, unread = known.anything, known.everywhere, known.unread
    words = set(known.names)
    named = {id(one): one for one in known.named}
    objects = (*near, *(names[name] for name in every if name in names))
    kinds = _kinds(objects) if far else tuple(kind for kind in dict.fromkeys(map(type, objects)) if _is_own(kind))
    for one, others, depth in called(code, names, kinds, begin, unnamed=_kinds_named(objects, every)):
        those = every if not depth else _names_in(one)
        anything = anything or runs_anything(one, those)
        everywhere = everywhere or sees_anything(one, those)
        unread = unread or (is_own_code(one) and None in imported(those, others))
        if COMPUTED in those:
            words.update(texts_near(one, (*objects, *texts_of(kinds))))
        words |= those - _of_its_own(one) if depth else those
        words.update(const for const in one.co_consts if isinstance(const, str) and const.isidentifier() and depth)
        named.update((id(thing), thing) for thing in _globals_named(those, others))
    words.update(name for thing in (*near, *named.values()) for name in name_called(thing))
    found = ReachableNames(frozenset(words), tuple(named.values()), anything, everywhere, unread)
    _reached[key] = walks + 1, found
    return found


def _of_its_own(code: CodeType) -> frozenset[str]:
    """What a code does only to its own (rule 5); the standard library ends nothing else, either."""
    if is_library(code):
        return _LIBRARYS
    return _RELEASE if not code.co_flags & _SUSPENDS and gives_back_only_its_own(code) else frozenset()


def _globals_named(words: frozenset[str], names: dict[str, Any]) -> Iterator[Any]:
    """The globals that some words name, also those of modules; of functions those that have attributes."""
    todo = [names[word] for word in words if word in names]
    todo += [module for module in imported(words, names) if module is not None]
    modules: dict[int, ModuleType] = {}
    while todo:
        thing = todo.pop()
        if type(thing) is not ModuleType:
            if type(thing) is not FunctionType or thing.__dict__:
                yield thing
        elif id(thing) not in modules:
            modules[id(thing)] = thing
            within = ModuleType.__getattribute__(thing, "__dict__")
            todo += [within[word] for word in words if word in within]


def _carried(called: Any) -> tuple[Any, ...]:
    if type(called) is functools.partial:
        return (*_carried(called.func), *called.args, *called.keywords.values())
    return compat.bound_to(called)


def _finalizer_of(kind: type) -> FunctionType | None:
    found = next((base.__dict__["__del__"] for base in kind.__mro__ if "__del__" in base.__dict__), None)
    return found if type(found) is FunctionType and is_application(found.__code__) else None


def codes_named(
    variables: Iterable[str], attributes: Iterable[str], names: dict[str, Any], near: Iterable[Any]
) -> Iterator[CodeType]:
    """The code of the functions that ``variables`` name among the globals ``names``, and of the application's methods that
    ``attributes`` name of what is ``near``. And of those that these name in turn.
    """
    yield from (code for code, _ in functions_named(variables, attributes, names, near))


def functions_named(
    variables: Iterable[str], attributes: Iterable[str], names: dict[str, Any], near: Iterable[Any]
) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The same, each with its globals."""
    kinds = _kinds(near)
    known = methods_of(kinds)
    functions = [one for name in variables if type(one := names.get(name)) is FunctionType]
    for one in (*functions, *(method for name in attributes for method in known.get(name, ()))):
        key = one.__code__, id(one.__globals__), kinds
        if key not in _named:
            every = called(one.__code__, one.__globals__, kinds)
            _named[key] = tuple((code, within) for code, within, depth in every if depth < _NAMED_DEPTH)
        yield from _named[key]


def _any_speaks(code: CodeType, names: dict[str, Any], kinds: Iterable[type], begin: frozenset[str] | None) -> bool:
    every = called(code, names, kinds, begin)
    if begin is not None:
        next(every)  # itself
        if any(map(_ENDS.search, begin)):
            return True
    return any(_speaks_itself(one) if depth <= _NAMED_DEPTH else _cancels(one) for one, _, depth in every)


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
    seen = {code}
    todo = deque([(code, names, 0)])
    last: deque[FunctionType] = deque()
    while todo or last:
        if not todo:  # what nobody names comes last, or there would be no room for what somebody does
            function = last.popleft()
            if function.__code__ in seen or len(seen) >= _NAMED_MAX + _UNNAMED_MAX:
                continue
            seen.add(function.__code__)
            todo.append((function.__code__, function.__globals__, 1))
        code, names, depth = todo.popleft()
        yield code, names, depth
        if len(seen) >= _NAMED_MAX or (depth >= _NAMED_DEPTH and not is_application(code)):
            continue
        words = begin if begin is not None and not depth else markers_in(code).union(code.co_names)
        texts = frozenset() if LOOKUPS.isdisjoint(words) else looked_up(code)
        of_all = classes_named_by(words, names) if words is begin else classes_of(code, words, names)
        made = tuple(kind for kind in of_all if kind not in classes)
        if made:
            classes.update(made)
            known, near = merged(known, methods_of(made)), merged(near, methods_of(made))
        every = (*(words - {WITH}), *texts, *(known if COMPUTED in texts and is_own_code(code) else ()))
        named = functions_of_modules(every, names) if words is begin or texts else functions_in(code, every, names)
        if unnamed is not None and words and (made or not depth or WITH in words):
            last.extend(implied(near, blocks=WITH in words))
        for one in (*functions_named_by(named, known), *made_by(made)):
            if one.__code__ not in seen:
                seen.add(one.__code__)
                todo.append((one.__code__, one.__globals__, depth + 1))


def makes_functions(code: CodeType) -> bool:
    """Whether there are functions within a function, other than comprehensions."""
    return any(isinstance(one, CodeType) and one.co_name not in _COMPREHENSIONS for one in code.co_consts)


@functools.lru_cache(maxsize=_CODES_MAX)
def names_within(code: CodeType, ahead: frozenset[CodeType]) -> frozenset[str]:
    """The names of the functions within a function; of a module none: whoever calls these names them.

    A comprehension counts only if it is still ``ahead``: nobody can run it again. What it has made may be called.
    """
    if code.co_name == "<module>":
        return frozenset()
    within = [one for one in code.co_consts if isinstance(one, CodeType)]
    passed = [one for one in within if one.co_name in _COMPREHENSIONS and one not in ahead]
    names = (names_within(one, frozenset()) if one in passed else _names_in(one) for one in within)
    return frozenset().union(*names)


@functools.lru_cache(maxsize=_CODES_MAX)
def _names_in(code: CodeType) -> frozenset[str]:
    """The names of a code and of the functions within it."""
    within = (_names_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(code.co_names).union(looked_up(code), markers_in(code), *within)


def _kinds(near: Iterable[Any]) -> tuple[type, ...]:
    """The application's own classes among those of ``near`` and of what is found inside, nearest first."""
    kinds: dict[type, None] = {}
    seen: dict[int, Any] = {}
    todo = deque(near)
    while todo and len(seen) < KINDS_WALK_MAX:
        thing = todo.popleft()
        runs = issubclass(type(thing), threading.Thread) and _is_own(type(thing))
        if id(thing) in seen or (issubclass(type(thing), PASSED_BY) and not runs):
            continue
        seen[id(thing)] = thing  # kept alive, or its identity may be given anew
        held = named_by(thing)
        if held is not None:
            todo.extend(held)
        elif is_open(thing):
            kinds[type(thing)] = None
            todo.extend(gc.get_referents(thing))
    return tuple(kind for kind in kinds if _is_own(kind))


def _kinds_named(objects: Iterable[Any], words: frozenset[str]) -> tuple[type, ...]:
    """The application's own classes of some objects, and of their attributes that some words name."""
    found: dict[type, None] = {}
    for thing in objects:
        if not _is_own(type(thing)):
            continue
        found[type(thing)] = None
        held = (attribute_of(thing, word) for word in words)
        found.update((type(one), None) for one in held if _is_own(type(one)))
    return tuple(found)


def _is_own(kind: type) -> bool:
    """Whether the application has written a class: some method of it is its own code."""
    return any(type(one) is FunctionType and is_application(one.__code__) for one in kind.__dict__.values())


def _cancels(code: CodeType) -> bool:
    """Rule 2."""
    return any(map(_ENDS_FAR.match, _names_in(code)))


def _speaks_itself(code: CodeType) -> bool:
    sets_deadline = "deadline" in code.co_names and "deadline" in stored_in(code)
    return sets_deadline or any(map(_ENDS.search, code.co_names)) or any(map(_const_speaks, code.co_consts))


def _const_speaks(const: object) -> bool:
    """Whether it is code that speaks of ending things, or a name to be looked up, as by ``methodcaller``."""
    if isinstance(const, CodeType):
        return _speaks_itself(const)
    return isinstance(const, str) and const.isidentifier() and is_ending(const)
