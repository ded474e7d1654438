"""The functions that code may run by names: those of its module, of its objects, and of the classes it names.

Rules:

1. A method is named by its name, however it is bound: also static and class methods, properties, and functions behind
   decorators. Where it calls ``super()``, the methods of that name in the bases of its class are named, too. Code that names an
   application class creates an instance; code that names a thread class also runs it.
2. Methods with double underscores run without being named: they count if the code has an object of their class. The exit of a
   ``with`` block counts only if such a block is left, and only if the object did not acquire on entry what it releases on exit.
   In a class that the application derives from an installed package's, those of the package count, too (a cache that evicts).
   Where it overrides a library's methods, the library's other methods may call these (``string.Formatter``, ``cmd.Cmd``).
3. A module imported inside a function counts as one of its module's names. A module that is not loaded yet cannot be read.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from types import FunctionType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application, is_of_own_module, is_own_code
from stilltrue.runtime.look.called_code.class_cache import cached_by_class
from stilltrue.runtime.look.code.attributes import attribute_of, inherited
from stilltrue.runtime.look.code.lookups import COMPUTED, looked_up
from stilltrue.runtime.look.code.names import IMPORT, WITH, mentioned_in

_MAKING = ("__new__", "__init__", "__post_init__", "__init_subclass__", "__class_getitem__", "__subclasshook__")
_IMPORTING = frozenset({"import_module", "__import__"})
_ENTERING, _LEAVING = ("__enter__", "__aenter__"), ("__exit__", "__aexit__")
_TAKES = frozenset({"acquire", "acquire_lock", *_ENTERING})
_ELSEWHERE = frozenset({*_MAKING, *_LEAVING, "__del__", "__set_name__"})
"""Methods with double underscores that run when an object is created, left or dropped, or its class is made."""
SETTERS = "setters "
"""Among names: the functions that run when an attribute is set or deleted."""
_UNNAMED = "unnamed "
"""Among names: the methods that run without being named. No identifier contains a space."""
_CACHED: Any = type(functools.lru_cache(lambda: None))
FUNCTION_LIKE: tuple[Any, ...] = (FunctionType, staticmethod, classmethod, property)
_WORDS_MAX = 10_000
_BEHIND_MAX = 50
"""Maximum number of objects read behind one decorated function."""
Methods = dict[str, list[FunctionType]]
_methods: dict[tuple[type, ...], Methods] = {}
"""Cache of this look: the methods of some classes and their bases, by name."""
_behind: dict[int, tuple[FunctionType, tuple[FunctionType, ...]]] = {}
"""Cache of this look: a function and those behind it."""


def clear_caches() -> None:
    """Clear the caches after a look."""
    _behind.clear()
    _methods.clear()


def imported(words: frozenset[str], names: Mapping[str, Any]) -> Iterator[ModuleType | None]:
    """The modules imported by code with the globals ``names``; None for one that is not loaded yet (rule 3)."""
    for name in names_imported(words, names):
        module = sys.modules.get(name)
        if type(module) is ModuleType:
            yield module
        elif module is None and name.partition(".")[0] not in sys.stdlib_module_names:
            yield None


def names_imported(words: frozenset[str], names: Mapping[str, Any]) -> Iterator[str]:
    """The full names of the modules imported by code with the globals ``names``."""
    for word in _imports_in(words):
        name = word.removeprefix(IMPORT)
        if name.startswith("."):
            steps = len(name) - len(name.lstrip("."))
            package = str(names.get("__package__") or "").rsplit(".", steps - 1)[0]
            name = f"{package}.{name.lstrip('.')}".rstrip(".")
        yield name


@functools.lru_cache(maxsize=_WORDS_MAX)
def _imports_in(words: frozenset[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word.startswith(IMPORT))


def methods_of(kinds: tuple[type, ...]) -> Methods:
    """The methods of some classes and their bases, by name (rule 1)."""
    known = _methods.get(kinds)
    if known is None:
        known = _methods_of_class(*kinds) if len(kinds) == 1 else {}
        for kind in kinds if len(kinds) > 1 else ():
            for name, found in methods_of((kind,)).items():
                known.setdefault(name, []).extend(found)
        _methods[kinds] = known
    return known


@cached_by_class
def _functions_of_own(kind: type) -> dict[str, tuple[FunctionType, ...]]:
    """The functions behind each attribute that a class itself defines, without its bases."""
    own = kind.__dict__.copy()
    return {name: (one,) if type(one) is FunctionType else tuple(_functions_in(one)) for name, one in own.items()}


@cached_by_class
def _functions_of_class(kind: type) -> dict[str, tuple[FunctionType, ...]]:
    """The functions behind each attribute of a class and its bases; none behind one that is no function."""
    table: dict[str, tuple[FunctionType, ...]] = {}
    for base in reversed(kind.__mro__):
        table.update(_functions_of_own(base))
    return table


def _methods_of_class(kind: type) -> Methods:
    functions = {name: some for name, some in _functions_of_class(kind).items() if some}
    if issubclass(kind, threading.Thread):
        found = {name: [one for one in some if is_application(one.__code__)] for name, some in functions.items()}
        found["start"] = [*found["start"], *found["run"]]
    else:
        found = {name: list(some) for name, some in functions.items()}
        hooks = list(_hooks_in(kind))
        for name in functions if hooks else ():
            one = inherited(kind, name)
            if type(one) is FunctionType and not is_own_code(one.__code__):
                found[name] = [*found[name], *hooks]
    for name, more in _overridden(kind, found).items():
        found[name] = [*found[name], *more]
    found[SETTERS] = [each for one in _table_of(kind).values() for each in _setters_in(one)]
    found[_UNNAMED], found[WITH] = map(list, _implicit_methods_of(kind))
    return {name: every for name, every in found.items() if every}


def _overridden(kind: type, methods: Methods) -> Methods:
    """The program's own methods of its bases that the methods of a class call by ``super()`` (rule 1)."""
    calling = (one.__code__ for some in methods.values() for one in some if "super" in one.__code__.co_names)
    words = frozenset().union(*(code.co_names for code in calling))
    found: Methods = {}
    for name in methods.keys() & words:
        by_base = [list(_functions_in(base.__dict__[name])) for base in kind.__mro__ if name in base.__dict__][1:]
        some = [one for functions in by_base for one in functions if is_own_code(one.__code__)]
        if some:
            found[name] = some
    return found


def _hooks_in(kind: type) -> Iterator[FunctionType]:
    """The program's own methods of a class that override those of a library's class, whose other methods may call them."""
    if not is_program_class(kind):
        return
    bases = [base for base in kind.__mro__ if base is not object and not is_program_class(base)]
    inherited_names = {name for base in bases for name, one in base.__dict__.items() if type(one) is FunctionType}
    looked = (one for base in bases for one in base.__dict__.values() if type(one) is FunctionType)
    if any(COMPUTED in looked_up(one.__code__) for one in looked):  # ``do_GET``, ``visit_Name``
        inherited_names.update(name for base in kind.__mro__ if is_program_class(base) for name in base.__dict__)
    for name in inherited_names:
        yield from (one for one in _functions_in(inherited(kind, name)) if is_own_code(one.__code__))


def merge_methods(methods: Methods, others: Methods) -> Methods:
    """The methods of both, by name."""
    if not methods or not others:
        return methods or others
    both = methods | others
    for name in methods.keys() & others.keys():
        both[name] = [*methods[name], *others[name]]
    return both


def _table_of(kind: type) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        table.update(base.__dict__)
    return table


@cached_by_class
def _implicit_methods_of(kind: type) -> tuple[tuple[FunctionType, ...], tuple[FunctionType, ...]]:
    """The application's methods of a class that run without being named, and the exits of its blocks (rule 2).

    Those of an installed package count in a class of the application's own: they may call what that class overrides.
    """
    table = _functions_of_class(kind)
    is_ours_too = is_program_class(kind)
    names = [name for name in table if name.startswith("__") and name.endswith("__") and name not in _ELSEWHERE]
    every = (each for name in names for one in table[name] for each in functions_of(one))
    unnamed = (one for one in every if is_own_code(one.__code__) or (is_ours_too and is_application(one.__code__)))
    entering = (one for name in _ENTERING for one in table.get(name, ()))
    acquires = any(not _TAKES.isdisjoint(mentioned_in(one.__code__)) for one in entering)
    return tuple(unnamed), () if acquires else tuple(one for name in _LEAVING for one in table.get(name, ()))


def _functions_in(one: Any) -> Iterator[FunctionType]:
    """The functions behind a class attribute."""
    kind = type(one)
    if kind is FunctionType:
        yield one
    elif kind in (staticmethod, classmethod):
        yield from _functions_in(one.__func__)
    elif kind is property:
        yield from (each for accessor in (one.fget, one.fset, one.fdel) for each in _functions_in(accessor))
    elif kind in (functools.cached_property, functools.partialmethod):  # noqa: TID251 - the application's
        yield from _functions_in(attribute_of(one, "func"))
    elif kind is functools.singledispatchmethod:
        yield from _functions_in(attribute_of(one, "dispatcher"))
    else:
        yield from _accessors_of(kind)


def _setters_in(one: Any) -> Iterator[FunctionType]:
    """The application's functions that run when the attribute with this descriptor is set or deleted."""
    if type(one) is property:
        yield from (each for accessor in (one.fset, one.fdel) for each in _functions_in(accessor))
    else:
        yield from (each for each in _accessors_of(type(one)) if each.__name__ != "__get__")


@cached_by_class
def _accessors_of(kind: type) -> tuple[FunctionType, ...]:
    """The application's functions that run when an attribute is read or set whose descriptor is of this class."""
    every = (inherited(kind, name) for name in ("__get__", "__set__", "__delete__"))
    return tuple(each for each in every if type(each) is FunctionType and is_own_code(each.__code__))


def implicit_methods(kinds: Iterable[type], *, blocks: bool) -> Iterator[FunctionType]:
    """The application's methods that run without being named; ``blocks``: also the exits of blocks (rule 2)."""
    for kind in kinds:
        unnamed, leaving = _implicit_methods_of(kind)
        yield from unnamed
        yield from (one for one in leaving if blocks and is_own_code(one.__code__))


def functions_named_by(words: frozenset[str], methods: Mapping[str, list[FunctionType]]) -> Iterator[FunctionType]:
    """The methods that some words name, and the functions behind them."""
    for name in methods.keys() & words:
        for method in methods[name]:
            yield from functions_of(method)


def functions_of_modules(words: frozenset[str], names: Mapping[str, Any]) -> tuple[FunctionType, ...]:
    """The functions that some words name in the module ``names`` and in the modules they name."""
    found = [function for name in words if name in names for function in functions_of(names[name])]
    for space in _module_namespaces(words, names):
        found += [one for name in words if name in space for one in functions_of(space[name]) if is_application(one.__code__)]
        found += _fallback_of(space)
    return tuple(found)


def functions_in_own_modules(words: frozenset[str], names: Mapping[str, Any]) -> Iterator[FunctionType]:
    """All functions of the program's own in the modules that some words name: one may be called by a computed name."""
    for space in _module_namespaces(words, names):
        yield from (each for one in list(space.values()) for each in functions_of(one) if is_own_code(each.__code__))


def _fallback_of(space: dict[str, Any]) -> tuple[FunctionType, ...]:
    """The function that runs when a name is missing in a module of the program's own, unless it imports submodules."""
    found = tuple(one for one in functions_of(space.get("__getattr__")) if is_own_code(one.__code__))
    return () if any(not _IMPORTING.isdisjoint(one.__code__.co_names) for one in found) else found


def _module_namespaces(words: frozenset[str], names: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The namespaces of the modules that some words name or import."""
    modules = [one for name in words if type(one := names.get(name)) is ModuleType]
    modules += [one for one in imported(words, names) if one is not None]
    return [ModuleType.__getattribute__(module, "__dict__") for module in modules]


def classes_named_by(words: frozenset[str], names: Mapping[str, Any]) -> tuple[type, ...]:
    """The application classes that some words name among ``names``, or in the modules they name."""
    spaces = (names, *_module_namespaces(words, names))
    found = {id(thing): thing for space in spaces for name in words if (thing := space.get(name)) is not None}
    return tuple(kind for kind in found.values() if _is_class(kind) and is_program_class(kind))


def constructors_of(kinds: tuple[type, ...]) -> Iterator[FunctionType]:
    """The functions that run when objects of some classes are created, and when their threads run (rule 1)."""
    for kind in kinds:
        methods = methods_of((kind,))
        for name in (*_MAKING, *(("start",) if issubclass(kind, threading.Thread) else ())):
            yield from (each for one in methods.get(name, ()) for each in functions_of(one))  # a field's default, for example
        if not _is_plain(type(kind)):  # pydantic's validators, for example
            yield from (one for every in methods.values() for one in every if is_own_code(one.__code__))


def _is_plain(meta: type) -> bool:
    """Whether a metaclass is Python's own or the program's: any other may call each method of its classes when it makes one."""
    return compat.module_of(meta).partition(".")[0] in sys.stdlib_module_names or is_program_class(meta)


def _is_class(thing: Any) -> bool:
    """Asks the object's type: a proxy (Django's settings) runs application code when asked for its class."""
    return issubclass(type(thing), type)


@cached_by_class
def is_program_class(kind: type) -> bool:
    """Whether a class is the program's own, not an installed package's."""
    functions = (one for some in _functions_of_own(kind).values() for one in some)
    return any(is_own_code(one.__code__) for one in functions) or is_of_own_module(kind)


def functions_of(thing: Any) -> tuple[FunctionType, ...]:
    """A function and those it decorates or chooses from."""
    if type(thing) is MethodType:
        thing = thing.__func__
    if type(thing) is _CACHED:
        thing = attribute_of(thing, "__wrapped__")
    if type(thing) is not FunctionType:
        return ()
    if not (thing.__closure__ or thing.__defaults__ or thing.__kwdefaults__):
        return (thing,)
    known = _behind.get(id(thing))
    if known is None:
        known = _behind[id(thing)] = thing, tuple(_functions_behind(thing))
    return known[1]


def _functions_behind(thing: FunctionType) -> Iterator[FunctionType]:
    seen: dict[int, Any] = {}
    todo: deque[Any] = deque([thing])
    while todo and len(seen) < _BEHIND_MAX:
        one = todo.popleft()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if type(one) is FunctionType:
            yield one
            todo.extend(compat.bound_to(one))
        elif type(one) is dict:
            todo.extend(dict.values(one))


def class_attributes(things: Iterable[Any]) -> Iterator[Any]:
    """The attributes of the application classes among ``things``, without functions and texts; of other classes, executors."""
    for kind in things:
        if _is_class(kind) and is_program_class(kind):
            yield from (one for one in kind.__dict__.values() if not next(_functions_in(one), None) and type(one) is not str)
        elif _is_class(kind):
            yield from (one for one in kind.__dict__.values() if issubclass(type(one), Executor))


def partialmethod_arguments(kinds: Iterable[type]) -> Iterator[Any]:
    """The stored arguments of ``partialmethod`` methods."""
    for kind in kinds:
        partial = (one for one in kind.__dict__.values() if type(one) is functools.partialmethod)
        yield from (held for one in partial for held in (attribute_of(one, "args"), attribute_of(one, "keywords")))
