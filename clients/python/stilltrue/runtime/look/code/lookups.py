"""Which names code looks up by text: by ``getattr`` and the like; and whether it can come by any object, or run any code.

Rules:

1. A text that is given outright (``getattr(lock, "release")``, ``setattr(pool, "size", 2)``) is a name as if it were written
   ``lock.release``, ``pool.size``.
2. For one that is computed, any text near by may be the name, and any method of the objects near by may be meant.
3. ``eval`` and ``exec`` run code that nobody has read; so does who imports a module by its name, goes over all subclasses, or
   calls the hooks of ``sys.audit``.
4. ``globals()``, ``sys.modules``, ``gc.get_objects()`` and the frames of others show objects that the code has not been given.
"""

from __future__ import annotations

import dis
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from operator import attrgetter, methodcaller
from types import CodeType
from typing import Any

from stilltrue.runtime.introspection.by_code import kept_by_code
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.look.code.names import ATTRIBUTES, VARIABLES
from stilltrue.runtime.look.enders.reach import named_by

COMPUTED = "*"
"""Stands for a name that is computed."""
_SETS = frozenset({"setattr", "delattr", "__setattr__", "__delattr__"})
LOOKUPS = frozenset({"getattr", "methodcaller", "attrgetter", "__getattribute__"}) | _SETS
_RUNS_ANYTHING = frozenset({"eval", "exec", "import_module", "__import__", "__subclasses__", "run_module", "run_path"})
_SEES_ANYTHING = frozenset({"globals", "vars", "locals", "__dict__", "modules", "get_objects", "get_referrers"}) | frozenset(
    {"_getframe", "_current_frames", "currentframe", "f_locals", "f_globals", "f_back"}
)
_AUDITS = frozenset({"sys", "audit"})
"""``sys.audit()`` calls hooks that nobody can list."""
_TEXTS_WALK_MAX = 500


@kept_by_code
def looked_up(code: CodeType) -> frozenset[str]:
    """The names that a code looks up by text, and :data:`COMPUTED` if it computes one (rules 1 and 2)."""
    if LOOKUPS.isdisjoint(code.co_names):
        return frozenset()
    every = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "PRECALL", "PUSH_NULL", "NOP")]
    found: set[str] = set()
    for index, one in enumerate(every):
        if one.argval in LOOKUPS and one.opname in ATTRIBUTES | VARIABLES:
            found.update(_texts_after(every, index))
    return frozenset(found)


def _texts_after(every: Sequence[dis.Instruction], index: int) -> Iterable[str]:
    """The text that is looked up by what stands at ``index``; which attribute is set by a computed name is not asked here."""
    at, sets = index + 1, every[index].argval in _SETS
    if sets or every[index].argval == "getattr":
        while at < len(every) and every[at].opname in ATTRIBUTES | VARIABLES:
            at += 1
    text = every[at].argval if at < len(every) and every[at].opname == "LOAD_CONST" else None
    if sets:
        return {text} if isinstance(text, str) else ()
    rest = [one.opname for one in takewhile(lambda one: not one.opname.startswith("CALL"), every[at + 1 :])]
    if not isinstance(text, str) or not all(one.startswith("LOAD_") for one in rest):
        return {COMPUTED}
    return text.split(".")


def texts_near(code: CodeType, near: Iterable[Any]) -> Iterator[str]:
    """The texts that may be a name which a code computes."""
    yield from (one for one in code.co_consts if isinstance(one, str) and one.isidentifier())
    seen: dict[int, Any] = {}
    todo = deque(near)
    while todo and len(seen) < _TEXTS_WALK_MAX:
        thing = todo.popleft()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # kept alive, or its identity may be given anew
        if type(thing) is str:
            yield thing
        else:
            todo.extend(named_by(thing) or ())


def name_called(thing: Any) -> tuple[str, ...]:
    """The name by which ``methodcaller`` or ``attrgetter`` looks something up; nothing for any other object."""
    if type(thing) not in (methodcaller, attrgetter):
        return ()
    made_of: tuple[Any, ...] = thing.__reduce__()[1]
    text = made_of[0] if made_of and type(made_of[0]) is str else ""
    return tuple(text.split("."))


def runs_anything(code: CodeType, names: frozenset[str]) -> bool:
    """Rule 3: whether a code may run any other, of which these names are ahead; libraries do so for themselves."""
    return (not _RUNS_ANYTHING.isdisjoint(names) or names >= _AUDITS) and is_own_code(code)


def sees_anything(code: CodeType, names: frozenset[str]) -> bool:
    """Rule 4: whether a code may come by any object, of which these names are ahead."""
    return not _SEES_ANYTHING.isdisjoint(names) and is_own_code(code)
