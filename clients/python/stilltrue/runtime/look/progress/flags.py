"""How a loop's condition can change: by an event, the end of a thread, task or future, or an assignment.

Rules:

1. ``is_set()`` and ``wait()`` change when the event is set; ``is_alive()`` and ``done()`` when the thread, task or future ends;
   ``wait_for_termination()`` and ``sigtimedwait()`` only from outside.
2. A number, boolean or string changes when its variable or attribute is assigned, or that of an object on the way to it
   (``app.config.stop``: somebody gives ``app`` another ``config``). What a library's object has may change at any time.
3. A method or property that only returns such a value stands for that value.
4. Any other condition may change by itself. A condition that already holds ends the loop in its next round.
"""

from __future__ import annotations

import asyncio
import operator
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of, inherited, value_of
from stilltrue.runtime.look.code.conditions import Condition, is_plain, returned_by
from stilltrue.runtime.look.code.names import ITEMS, Receiver

_COMPARE = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "is": operator.is_, "is not": operator.is_not,
}  # fmt: skip
_OUTSIDE = frozenset({"wait_for_termination", "sigtimedwait"})
_DEPTH_MAX = 3
_PLAIN = (type, SimpleNamespace)
"""Standard classes whose objects have only what the application gives them."""


class Kind(Enum):
    """How a condition changes."""

    BY_ITSELF = "by itself"
    NEVER = "never"
    WOKEN = "when an event is set"
    ENDS = "when a thread, task or future ends"
    STORED = "when a name is assigned"


@dataclass(frozen=True, slots=True, eq=False)
class Flag:
    """One way for a condition to change; ``thing``: the event, the party that ends, or the owner of the attribute or item.

    ``names``: those to be set; for a variable, by code of ``file``, or as an attribute of the module with this ``namespace``.
    """

    kind: Kind
    thing: Any = None
    names: frozenset[str] = frozenset()
    file: str = ""
    namespace: dict[str, Any] | None = None


_ANY_TIME = Flag(Kind.BY_ITSELF)


def flags_of(condition: Condition, names: dict[str, Any], others: dict[str, Any], file: str, depth: int = 0) -> list[Flag]:
    """The flags of ``condition`` for the variables ``names`` and the globals ``others``; it changes when one of them does.

    ``file``: the file of the code that tests the condition.
    """
    if condition.method:
        return _of_call(condition, names, others, depth)
    found, values = [], []
    for chain in condition.chains:
        owner, value = _resolve(chain, names, others)
        if value is UNKNOWN and owner is not UNKNOWN:
            class_value = inherited(type(owner), chain[-1], UNKNOWN)
            if type(class_value) is property and not condition.operator and not condition.item:
                return _of_returned_value(owner, class_value.fget, condition, depth)
            value = class_value
        if condition.item:
            value, owner = _item(value, condition.constant), value
        values.append(value)
        if condition.item:
            found.append(Flag(Kind.STORED, owner, frozenset({ITEMS})))
        found += _assignments(chain, names, others, file)
    return [_ANY_TIME] if _holds_already(condition, values) else found


def _assignments(chain: Receiver, names: dict[str, Any], others: dict[str, Any], file: str) -> Iterator[Flag]:
    """Rule 2: the assignments that change what a chain of names stands for."""
    if len(chain) == 1:
        is_local = chain[0] in names
        yield Flag(Kind.STORED, None, frozenset(chain), file, None if is_local else others)
    for end in range(2, len(chain) + 1):
        owner = value_of(chain[: end - 1], names, others)
        if type(owner) is ModuleType:
            space = ModuleType.__getattribute__(owner, "__dict__")
            yield Flag(Kind.STORED, None, frozenset({chain[end - 1]}), str(space.get("__file__")), space)
        elif _is_of_library(owner):
            yield _ANY_TIME
        else:
            yield Flag(Kind.STORED, owner, frozenset({chain[end - 1]}))


def _is_of_library(owner: Any) -> bool:
    kind = type(owner)
    return kind not in _PLAIN and compat.module_of(kind).partition(".")[0] in sys.stdlib_module_names


def _item(container: Any, key: Any) -> Any:
    if type(container) is dict:
        return container.get(key, UNKNOWN)
    return (
        container[key] if type(container) is list and type(key) is int and -len(container) <= key < len(container) else UNKNOWN
    )


def _holds_already(condition: Condition, values: list[Any]) -> bool:
    """Whether the condition already holds, or this is unknown."""
    plain = all(is_plain(one) or (issubclass(type(one), Enum) and condition.operator in ("is", "is not")) for one in values)
    if not plain:
        return True
    if not condition.operator:
        return _is_met(condition, bool(values[0]))
    compare = _COMPARE.get(condition.operator)
    try:
        right = values[1] if len(values) > 1 else condition.constant
        return compare is None or _is_met(condition, bool(compare(values[0], right)))
    except TypeError:
        return True


def _is_met(condition: Condition, truth: bool) -> bool:
    return (truth is not condition.negated) is condition.when


def _of_call(condition: Condition, names: dict[str, Any], others: dict[str, Any], depth: int) -> list[Flag]:
    """Rule 1."""
    method = condition.method
    _, owner = _resolve(condition.chains[0], names, others)
    kind = type(owner)
    truth: Any = None
    flag = _ANY_TIME
    if method in ("is_set", "wait") and (event := _event_of(kind, method)) is not None:
        flag, truth = Flag(Kind.WOKEN, owner), attribute_of(owner, "_flag" if event is threading.Event else "_value")
    elif method == "is_alive" and issubclass(kind, threading.Thread):
        flag, truth = Flag(Kind.ENDS, owner), owner.ident in compat.threads()
    elif method == "done" and (compat.is_task(owner) or issubclass(kind, Future)):
        flag, truth = Flag(Kind.ENDS, owner), asyncio.Future.done(owner) if compat.is_task(owner) else compat.is_finished(owner)
    elif method in _OUTSIDE:
        return [_ANY_TIME if compat.is_stopping_server(owner) else Flag(Kind.NEVER)]
    else:
        return _of_returned_value(owner, inherited(kind, method, UNKNOWN), condition, depth)
    return [_ANY_TIME] if type(truth) is not bool or _is_met(condition, truth) else [flag]


def _event_of(kind: type, method: str) -> type | None:
    """The class of events whose ``method`` a class has."""
    events = (one for one in (threading.Event, asyncio.Event) if issubclass(kind, one))
    return next((one for one in events if inherited(kind, method) is inherited(one, method)), None)


def _of_returned_value(owner: Any, function: Any, condition: Condition, depth: int) -> list[Flag]:
    """Rule 3."""
    if type(function) is not FunctionType or depth >= _DEPTH_MAX:
        return [_ANY_TIME]
    code = function.__code__
    inner = returned_by(code)
    own = code.co_varnames[:1]
    if inner is None or any(chain[:1] != own for chain in inner.chains):
        return [_ANY_TIME]
    inner = replace(inner, when=condition.when is not condition.negated)
    return flags_of(inner, {own[0]: owner}, function.__globals__, code.co_filename, depth + 1)


def _resolve(chain: Receiver, names: dict[str, Any], others: dict[str, Any]) -> tuple[Any, Any]:
    """The owner of the last attribute in a chain of names, and its value."""
    owner, value = UNKNOWN, names.get(chain[0], others.get(chain[0], UNKNOWN))
    for name in chain[1:]:
        owner, value = value, attribute_of(value, name)
    return owner, value
