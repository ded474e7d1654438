"""The names that code looks up by text (``getattr`` and the like), and whether it can get any object or run any code.

Rules:

1. A literal text (``getattr(lock, "release")``, ``setattr(pool, "size", 2)``) counts like ``lock.release``, ``pool.size``.
   ``contextlib.closing(thing)`` counts like ``thing.close``, and ``push(thing)`` onto an ``ExitStack`` like ``thing.__exit__``.
2. A computed text may be any text nearby, and may name any method of the objects nearby; for ``setattr``, any property. So may
   any text by which an item of ``vars(thing)`` or ``thing.__dict__`` is looked up.
3. ``eval``, ``exec`` and an interactive console run unknown code. So does code that imports a module or an object by name,
   takes a module from ``sys.modules``, reloads one, iterates over all subclasses, or calls ``sys.audit`` hooks; and code that
   unpickles and calls what it may have got so.
4. ``globals()``, ``sys.modules``, ``gc.get_objects()`` and other frames give access to objects the code was not given.
"""

from __future__ import annotations

import dis
import sys
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import takewhile
from operator import attrgetter, methodcaller
from types import CodeType
from typing import Any

from stilltrue.runtime.bytecode.instructions import IS_TRANSLATED, instructions
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.look.code.names import ATTRIBUTES, VARIABLES
from stilltrue.runtime.look.code.system_operations import texts_in
from stilltrue.runtime.look.ways_out.reach import named_by

COMPUTED = "*"
"""Stands for a computed name."""
COMPUTED_SET = "*="
"""Stands for a computed name of an attribute that is set or deleted."""
_SETS = frozenset({"setattr", "delattr", "__setattr__", "__delattr__"})
_TABLES = frozenset({"vars", "__dict__"})
_CLOSING = {"closing": "close", "aclosing": "aclose"}
_STACKS = frozenset({"ExitStack", "AsyncExitStack"})
_PUSHING = {"push": "__exit__", "push_async_exit": "__aexit__"}
_BY_TEXT = frozenset({"getattr", "methodcaller", "attrgetter", "__getattribute__"}) | _SETS | _TABLES
LOOKUPS = _BY_TEXT | _CLOSING.keys() | _STACKS
_RUNNING_ANY_CODE = frozenset(
    {"eval", "exec", "import_module", "__import__", "__subclasses__", "run_module", "run_path", "exec_module", "load_module"}
) | frozenset(
    {"InteractiveConsole", "InteractiveInterpreter", "runcode", "runctx", "runsource"}
    | {"reload", "resolve_name", "import_string", "import_from_string"}
    | {"entry_points", "iter_entry_points", "load_entry_point"}
)
_SHOWING_ANY_OBJECT = frozenset(
    {"globals", "vars", "locals", "__dict__", "modules", "get_objects", "get_referrers"}
) | frozenset({"_getframe", "_current_frames", "currentframe", "f_locals", "f_globals", "f_back"})
_OF_SYS = (frozenset({"sys", "audit"}), frozenset({"sys", "modules"}))
"""``sys.audit()`` calls hooks that cannot be listed; ``sys.modules`` has all modules."""
_PICKLES = frozenset({"pickle", "cloudpickle", "dill"})
_UNPICKLING = frozenset({"load", "loads", "Unpickler"})
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_TEXTS_WALK_MAX = 500


@cached_by_code
def looked_up(code: CodeType) -> frozenset[str]:
    """The names a code object looks up by text, and :data:`COMPUTED` if it computes one (rules 1 and 2)."""
    if LOOKUPS.isdisjoint(code.co_names):
        return frozenset()
    every = [one for one in instructions(code) if one.opname not in ("CACHE", "PRECALL", "PUSH_NULL", "NOP")]
    found = {called for name, called in _CLOSING.items() if name in code.co_names}
    if not _STACKS.isdisjoint(code.co_names):
        found.update(called for name, called in _PUSHING.items() if name in code.co_names)
    for index, one in enumerate(every):
        if one.argval in _BY_TEXT and one.opname in ATTRIBUTES | VARIABLES:
            found.update(_texts_after(every, index) if one.argval not in _TABLES else _item_after(every, index))
    return frozenset(found)


def _item_after(every: Sequence[dis.Instruction], index: int) -> Iterable[str]:
    """:data:`COMPUTED` if an item of the dictionary at ``index`` is looked up in the same expression."""
    rest = list(takewhile(lambda one: not one.opname.startswith(("STORE_", "POP_", "RETURN_")), every[index + 1 :]))
    items = any(one.opname == "BINARY_SUBSCR" or (one.opname == "BINARY_OP" and one.argrepr == "[]") for one in rest)
    return {COMPUTED} if items or any(one.argval == "get" for one in rest) else ()


def _texts_after(every: Sequence[dis.Instruction], index: int) -> Iterable[str]:
    """The text looked up by the function at ``index``."""
    at, sets = index + 1, every[index].argval in _SETS
    if sets or every[index].argval == "getattr":
        while at < len(every) and every[at].opname in ATTRIBUTES | VARIABLES:
            at += 1
    text = every[at].argval if at < len(every) and every[at].opname == "LOAD_CONST" else None
    if at + 1 < len(every) and every[at + 1].opname in ATTRIBUTES:  # ``"".join(...)``
        text = None
    rest = [one.opname for one in takewhile(lambda one: not one.opname.startswith("CALL"), every[at + 1 :])]
    if sets:
        return {text if isinstance(text, str) and rest[1:2] != ["BINARY_OP"] else COMPUTED_SET}
    if not isinstance(text, str) or not all(one.startswith("LOAD_") for one in rest):
        return {COMPUTED}
    if every[index].argval == "getattr" and not _takes(every, at + 1 + len(rest), rest):
        return {COMPUTED}
    return text.split(".")


def _takes(every: Sequence[dis.Instruction], at: int, between: Sequence[str]) -> bool:
    """Whether the call at ``at`` is that of ``getattr``, and not one within its arguments: ``"do_" + name.lower()``.

    ``between``: the names of the instructions after the text and before that call: a default, if any.
    """
    count = every[at].argval if at < len(every) and every[at].opname == "CALL" else None
    values = [one for one in between if one not in ATTRIBUTES]
    return (count == 2 and not between) or (count == 3 and len(values) == 1)


def texts_near(code: CodeType, near: Iterable[Any]) -> Iterator[str]:
    """The texts that may be a computed name."""
    yield from (one for one in texts_in(code.co_consts) if one.isidentifier())
    seen: dict[int, Any] = {}
    todo = deque(near)
    while todo and len(seen) < _TEXTS_WALK_MAX:
        thing = todo.popleft()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # kept alive, or its identity may be reused
        if type(thing) is str:
            yield thing
        else:
            todo.extend(named_by(thing) or ())


def name_called(thing: Any) -> tuple[str, ...]:
    """The names that a ``methodcaller`` or ``attrgetter`` looks up; empty for any other object."""
    if type(thing) not in (methodcaller, attrgetter):
        return ()
    made_of: tuple[Any, ...] = thing.__reduce__()[1]
    text = made_of[0] if made_of and type(made_of[0]) is str else ""
    return tuple(text.split("."))


def may_run_any_code(code: CodeType, names: frozenset[str]) -> bool:
    """Rule 3: whether a code with these names ahead may run any code. Libraries may, for their own purposes."""
    if not is_own_code(code):
        return False
    unpickles = not (_PICKLES.isdisjoint(names) or _UNPICKLING.isdisjoint(names))
    return not _RUNNING_ANY_CODE.isdisjoint(names) or any(map(names.issuperset, _OF_SYS)) or (unpickles and calls_values(code))


@cached_by_code
def calls_values(code: CodeType) -> bool:
    """Whether a code object calls what is in a local variable, or what an expression returns."""
    every = [one for one in instructions(code) if one.opname not in ("CACHE", "NOP")]
    if IS_TRANSLATED or any(one.opname == "PUSH_NULL" and _is_of_value(every, index) for index, one in enumerate(every)):
        return True
    return any(calls_values(one) for one in code.co_consts if isinstance(one, CodeType))


def calls_values_at(code: CodeType, at: Container[int]) -> bool:
    """As :func:`calls_values`, for the instructions with these indices, without inner functions."""
    every = [(index, one) for index, one in enumerate(instructions(code)) if one.opname not in ("CACHE", "NOP")]
    listed = [one for _, one in every]
    prepared = (number for number, (index, one) in enumerate(every) if one.opname == "PUSH_NULL" and index in at)
    return IS_TRANSLATED or any(_is_of_value(listed, number) for number in prepared)


def _is_of_value(every: Sequence[dis.Instruction], index: int) -> bool:
    """Whether the call prepared at ``index`` is not of a global, or of an attribute of one (a function of a module)."""
    if sys.version_info >= (3, 13):  # what is called comes before
        return every[index - 1].opname not in (*ATTRIBUTES, *_GLOBALS)
    after = every[index + 1]
    return after.opname not in _GLOBALS or "NULL" in every[index + 2].argrepr or every[index + 2].opname == "LOAD_METHOD"


def may_see_any_object(code: CodeType, names: frozenset[str]) -> bool:
    """Rule 4: whether a code with these names ahead may get any object."""
    return not _SHOWING_ANY_OBJECT.isdisjoint(names) and is_own_code(code)
