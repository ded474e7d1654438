"""What code may come to run names: names, and the globals among them, of itself and of all that it calls.

Rules:

1. What is called is found by its name (:mod:`~stilltrue.runtime.look.code.called`). What a class runs without being named (a
   ``with`` block's exit, a finalizer) counts as well.
2. Who calls ``release()`` only on what the same function has taken does not speak of releasing what others have, unless
   it may be suspended in between (the generator of a context manager).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, ModuleType
from typing import Any

from stilltrue.runtime.introspection.origins import is_application, is_library, is_own_code
from stilltrue.runtime.look.code.called import KINDS_WALKS_MAX, called, is_own_class, kinds_named, kinds_of, names_in
from stilltrue.runtime.look.code.lookups import (
    COMPUTED,
    LOOKUPS,
    looked_up,
    name_called,
    runs_anything,
    sees_anything,
    texts_near,
)
from stilltrue.runtime.look.code.methods import imported, texts_of
from stilltrue.runtime.seen.holders.brackets import gives_back_only_its_own

_RELEASE = frozenset({"release"})
_LIBRARYS = _RELEASE | {"cancel", "set_result", "set_exception", "__exit__", "__aexit__"}
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_reached: dict[tuple[Any, ...], tuple[int, ReachableNames]] = {}
"""In this look: how often objects near a code were walked, and what it speaks of."""

_said_by_called: dict[tuple[int, int], tuple[CodeType, dict[str, Any], _Said]] = {}
"""In this look, by the identities of a code and of its globals: what it says itself."""


def forget() -> None:
    """Forget what was found in a look."""
    _reached.clear()
    _said_by_called.clear()


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
    every = names_in(code) if begin is None else begin | (frozenset() if LOOKUPS.isdisjoint(begin) else looked_up(code))
    anything, everywhere, unread = known.anything, known.everywhere, known.unread
    words = set(known.names)
    named = {id(one): one for one in known.named}
    objects = (*near, *(names[name] for name in every if name in names))
    kinds = kinds_of(objects) if far else tuple(kind for kind in dict.fromkeys(map(type, objects)) if is_own_class(kind))
    for one, others, depth in called(code, names, kinds, begin, unnamed=kinds_named(objects, every)):
        said = _said_by(one, others) if depth else _said(every, one, others)
        anything, everywhere, unread = anything or said.anything, everywhere or said.everywhere, unread or said.unread
        if said.computed:
            words.update(texts_near(one, (*objects, *texts_of(kinds))))
        words |= said.names
        named.update(said.named)
    words.update(name for thing in near for name in name_called(thing))
    found = ReachableNames(frozenset(words), tuple(named.values()), anything, everywhere, unread)
    _reached[key] = walks + 1, found
    return found


@dataclass(frozen=True, slots=True)
class _Said:
    """What one code says itself: as :class:`ReachableNames`, the globals by identity; ``computed``: it computes names."""

    names: frozenset[str]
    named: dict[int, Any]
    anything: bool
    everywhere: bool
    unread: bool
    computed: bool


def _said_by(code: CodeType, names: dict[str, Any]) -> _Said:
    """What code says that is called; found once in a look."""
    known = _said_by_called.get((id(code), id(names)))
    if known is None:
        texts = (const for const in code.co_consts if isinstance(const, str) and const.isidentifier())
        those = names_in(code)
        said = replace(said := _said(those, code, names), names=(said.names - _of_its_own(code)).union(texts))
        known = _said_by_called[id(code), id(names)] = code, names, said
    return known[2]


def _said(words: frozenset[str], code: CodeType, names: dict[str, Any]) -> _Said:
    """What code says that names these ``words``."""
    named = {id(thing): thing for thing in _globals_named(words, names)}
    return _Said(
        names=words.union(name for thing in named.values() for name in name_called(thing)),
        named=named,
        anything=runs_anything(code, words),
        everywhere=sees_anything(code, words),
        unread=is_own_code(code) and None in imported(words, names),
        computed=COMPUTED in words,
    )


def names_of_application(code: CodeType, names: dict[str, Any], owner: Any) -> frozenset[str]:
    """The names in a method of ``owner``, and in what it calls of the application's own code."""
    every = called(code, names, kinds_of((owner,)))
    return frozenset().union(*(names_in(one) for one, _, _ in every if is_application(one)))


def _of_its_own(code: CodeType) -> frozenset[str]:
    """What a code does only to its own (rule 2); the standard library ends nothing else, either."""
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
