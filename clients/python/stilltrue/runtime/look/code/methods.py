"""Which functions code may come to run by names: those of its module, of its objects, and of the classes that it names.

Rules:

1. A method is named by its name, whatever it is bound to: also a static method, a class method, a property, and what is behind
   its decorators. Who names a class of the application's own makes an object of it; who names a thread's class runs it.
2. Methods with two underscores at both ends are called without being named: they count for who has an object of their class.
   What leaves a ``with`` block does only where such a block is left, and the object has not taken at its beginning what it
   gives back in the end.
3. A module that a function imports when it comes there is one of its module's names. One that is yet to be loaded is unread.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.names import IMPORT, WITH, mentioned_in

_MAKING = ("__new__", "__init__", "__post_init__")
_ENTERING, _LEAVING = ("__enter__", "__aenter__"), ("__exit__", "__aexit__")
_TAKES = frozenset({"acquire", "acquire_lock", *_ENTERING})
_IMPLIED = frozenset(
    {"__call__", "__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__getitem__", "__setitem__", "__delitem__"}
    | {"__iter__", "__next__", "__aiter__", "__anext__", "__await__", "__len__", "__contains__", "__bool__", "__missing__"}
    | {
        f"__{kind}{name}__"
        for kind in ("", "i", "r")
        for name in ("add", "sub", "or", "and", "xor", "lshift", "rshift", "matmul")
    }
)
_WORDS_MAX = 10_000
_BEHIND_MAX = 50
"""What is looked at behind one function that decorates others."""
Methods = dict[str, list[FunctionType]]
_methods: dict[tuple[type, ...], Methods] = {}
"""In this look: the methods of some classes and their bases, by name."""
_own: dict[int, tuple[type, bool]] = {}
"""In this look: whether a class is the application's own."""
_behind: dict[int, tuple[FunctionType, tuple[FunctionType, ...]]] = {}
"""In this look: a function, and those behind it."""


def forget() -> None:
    """Forget the classes and functions of a look."""
    _behind.clear()
    _methods.clear()
    _own.clear()


def imported(words: frozenset[str], names: Mapping[str, Any]) -> Iterator[ModuleType | None]:
    """The modules that code with the globals ``names`` imports; None for one that is yet to be loaded (rule 3)."""
    for word in _imports_in(words):
        name = word.removeprefix(IMPORT)
        if name.startswith("."):
            steps = len(name) - len(name.lstrip("."))
            package = str(names.get("__package__") or "").rsplit(".", steps - 1)[0]
            name = f"{package}.{name.lstrip('.')}".rstrip(".")
        module = sys.modules.get(name)
        if type(module) is ModuleType:
            yield module
        elif module is None and name.partition(".")[0] not in sys.stdlib_module_names:
            yield None


@functools.lru_cache(maxsize=_WORDS_MAX)
def _imports_in(words: frozenset[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word.startswith(IMPORT))


def methods_of(kinds: tuple[type, ...]) -> Methods:
    """The methods of some classes and their bases, by name (rule 1)."""
    known = _methods.get(kinds)
    if known is None:
        known = {}
        for kind in kinds:
            table = _table_of(kind)
            runs = issubclass(kind, threading.Thread)
            for name, one in table.items():
                known.setdefault(name, []).extend(each for each in _plain(one) if not runs or is_application(each.__code__))
            if runs:
                known["start"] = [*known["start"], *known["run"]]
            if not _takes(table):
                known.setdefault(WITH, []).extend(one for name in _LEAVING for one in _plain(table.get(name)))
        _methods[kinds] = known
    return known


def merged(methods: Methods, others: Methods) -> Methods:
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


def _takes(table: Mapping[str, Any]) -> bool:
    """Whether it takes at the beginning of its block what it gives back in the end (rule 2)."""
    return any(not _TAKES.isdisjoint(mentioned_in(one.__code__)) for name in _ENTERING for one in _plain(table.get(name)))


def _plain(one: Any) -> Iterator[FunctionType]:
    """The functions behind what stands in a class."""
    kind = type(one)
    if kind is FunctionType:
        yield one
    elif kind in (staticmethod, classmethod):
        yield from _plain(one.__func__)
    elif kind is property:
        yield from (each for accessor in (one.fget, one.fset, one.fdel) for each in _plain(accessor))
    elif kind in (functools.cached_property, functools.partialmethod):
        yield from _plain(attribute_of(one, "func"))


def implied(methods: Mapping[str, list[FunctionType]], *, blocks: bool) -> Iterator[FunctionType]:
    """The methods of the application's own that are called without being named; ``blocks``: also by leaving one (rule 2)."""
    for name in (*methods.keys() & _IMPLIED, *((WITH,) if blocks else ())):
        yield from (one for one in methods.get(name, ()) if is_own_code(one.__code__))


def functions_named_by(words: frozenset[str], methods: Mapping[str, list[FunctionType]]) -> Iterator[FunctionType]:
    """The methods that some words name, and what is behind them."""
    for name in methods.keys() & words:
        for method in methods[name]:
            yield from functions_of(method)


def functions_of_modules(words: frozenset[str], names: Mapping[str, Any]) -> tuple[FunctionType, ...]:
    """The functions that some words name in the module ``names``, and in the modules that these words name."""
    found = [function for name in words if name in names for function in functions_of(names[name])]
    for space in _spaces(words, names):
        found += [one for name in words if name in space for one in functions_of(space[name]) if is_application(one.__code__)]
    return tuple(found)


def _spaces(words: frozenset[str], names: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The names of the modules that some words name, or import."""
    modules = [one for name in words if type(one := names.get(name)) is ModuleType]
    modules += [one for one in imported(words, names) if one is not None]
    return [ModuleType.__getattribute__(module, "__dict__") for module in modules]


def classes_named_by(words: frozenset[str], names: Mapping[str, Any]) -> tuple[type, ...]:
    """The application's own classes that these words name among the globals ``names``, or in the modules that they name."""
    spaces = (names, *_spaces(words, names))
    found = {id(thing): thing for space in spaces for name in words if (thing := space.get(name)) is not None}
    return tuple(kind for kind in found.values() if _is_class(kind) and _is_own(kind))


def made_by(kinds: tuple[type, ...]) -> Iterator[FunctionType]:
    """What is called when objects of some classes are made, and when their threads run (rule 1)."""
    for kind in kinds:
        methods = methods_of((kind,))
        for name in (*_MAKING, *(("start",) if issubclass(kind, threading.Thread) else ())):
            yield from methods.get(name, ())


def _is_class(thing: Any) -> bool:
    """Asked of its type: a proxy (Django's settings) runs the application's code when it is asked for its class."""
    return issubclass(type(thing), type)


def _is_own(kind: type) -> bool:
    known = _own.get(id(kind))
    if known is None:
        own = any(is_own_code(function.__code__) for one in kind.__dict__.values() for function in _plain(one))
        known = _own[id(kind)] = kind, own
    return known[1]


def functions_of(thing: Any) -> tuple[FunctionType, ...]:
    """A function, and those behind it that it decorates, or chooses from."""
    if type(thing) is MethodType:
        thing = thing.__func__
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


def kept_by_classes(things: Iterable[Any]) -> Iterator[Any]:
    """What the application's own classes among ``things`` have as attributes, but for their functions."""
    for kind in things:
        if _is_class(kind) and _is_own(kind):
            yield from (one for one in kind.__dict__.values() if not next(_plain(one), None) and type(one) is not str)


def texts_of(kinds: Iterable[type]) -> Iterator[Any]:
    """What the methods of some classes are given beforehand (``partialmethod``)."""
    for kind in kinds:
        partial = (one for one in kind.__dict__.values() if type(one) is functools.partialmethod)
        yield from (held for one in partial for held in (attribute_of(one, "args"), attribute_of(one, "keywords")))
