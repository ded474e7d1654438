"""What a condition stands for in the frame that tests it: an event, somebody's end, or names that somebody must set.

Rules:

1. An event's ``is_set()`` and ``wait()`` change when somebody sets it; ``is_alive()`` and ``done()`` when a thread, a task or
   a future ends; ``wait_for_termination()`` and ``sigtimedwait()`` only from outside.
2. A number, a truth value or a string changes when somebody sets the variable or attribute that has it.
3. A method or property that does nothing but return such a value stands for that value.
4. Whatever else a loop tests may change by itself; and what is so already ends the loop at its next round.
"""

from __future__ import annotations

import asyncio
import operator
import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from types import FunctionType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.conditions import Condition, is_plain, returned_by
from stilltrue.runtime.look.code.names import ITEMS, Receiver

_COMPARE = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "is": operator.is_, "is not": operator.is_not,
}  # fmt: skip
_OUTSIDE = frozenset({"wait_for_termination", "sigtimedwait"})
_DEPTH_MAX = 3


class Kind(Enum):
    """How a condition changes."""

    BY_ITSELF = "by itself"
    NEVER = "never"
    WOKEN = "when somebody sets an event"
    ENDS = "when somebody ends"
    STORED = "when somebody sets a name"


@dataclass(frozen=True, slots=True, eq=False)
class Flag:
    """How a condition changes; ``thing``: the event, who ends, or what has the attribute or the item.

    ``names``: what must be set; of a variable, by code of ``file``.
    """

    kind: Kind
    thing: Any = None
    names: frozenset[str] = frozenset()
    file: str = ""


_ANYHOW = Flag(Kind.BY_ITSELF)


def flags_of(condition: Condition, names: dict[str, Any], others: dict[str, Any], file: str, depth: int = 0) -> list[Flag]:
    """What ``condition`` stands for where the variables are ``names`` and the globals ``others``: it changes when one does.

    ``file`` has the code that tests it.
    """
    if condition.method:
        return _called(condition, names, others, depth)
    found, values = [], []
    for chain in condition.chains:
        owner, value = _resolve(chain, names, others)
        if value is UNKNOWN and owner is not UNKNOWN:
            inherited = _of_class(type(owner), chain[-1])
            if type(inherited) is property and not condition.operator and not condition.item:
                return _anothers(owner, inherited.fget, condition, depth)
            value = inherited
        if condition.item:
            value, owner = _item(value, condition.constant), value
        values.append(value)
        names_set = frozenset({ITEMS} if condition.item else chain[-1:])
        found.append(Flag(Kind.STORED, None if owner is UNKNOWN else owner, names_set, file if owner is UNKNOWN else ""))
    return [_ANYHOW] if _is_so(condition, values) else found


def _item(container: Any, key: Any) -> Any:
    if type(container) is dict:
        return container.get(key, UNKNOWN)
    return (
        container[key] if type(container) is list and type(key) is int and -len(container) <= key < len(container) else UNKNOWN
    )


def _is_so(condition: Condition, values: list[Any]) -> bool:
    """Whether the condition holds by now, or this is unknown."""
    plain = all(is_plain(one) or (issubclass(type(one), Enum) and condition.operator in ("is", "is not")) for one in values)
    if not plain:
        return True
    if not condition.operator:
        return _tells(condition, bool(values[0]))
    compare = _COMPARE.get(condition.operator)
    try:
        right = values[1] if len(values) > 1 else condition.constant
        return compare is None or _tells(condition, bool(compare(values[0], right)))
    except TypeError:
        return True


def _tells(condition: Condition, truth: bool) -> bool:
    return (truth is not condition.negated) is condition.when


def _called(condition: Condition, names: dict[str, Any], others: dict[str, Any], depth: int) -> list[Flag]:
    """Rule 1."""
    method = condition.method
    _, owner = _resolve(condition.chains[0], names, others)
    kind = type(owner)
    truth: Any = None
    flag = _ANYHOW
    if method in ("is_set", "wait") and kind in (threading.Event, asyncio.Event):
        flag, truth = Flag(Kind.WOKEN, owner), attribute_of(owner, "_flag" if kind is threading.Event else "_value")
    elif method == "is_alive" and issubclass(kind, threading.Thread):
        flag, truth = Flag(Kind.ENDS, owner), owner.ident in compat.threads()
    elif method == "done" and (compat.is_task(owner) or issubclass(kind, Future)):
        flag, truth = Flag(Kind.ENDS, owner), asyncio.Future.done(owner) if compat.is_task(owner) else compat.is_over(owner)
    elif method in _OUTSIDE:
        return [_ANYHOW if compat.is_stopping_server(owner) else Flag(Kind.NEVER)]
    else:
        return _anothers(owner, _of_class(kind, method), condition, depth)
    return [_ANYHOW] if type(truth) is not bool or _tells(condition, truth) else [flag]


def _anothers(owner: Any, function: Any, condition: Condition, depth: int) -> list[Flag]:
    """Rule 3."""
    if type(function) is not FunctionType or depth >= _DEPTH_MAX:
        return [_ANYHOW]
    code = function.__code__
    inner = returned_by(code)
    own = code.co_varnames[:1]
    if inner is None or any(chain[:1] != own for chain in inner.chains):
        return [_ANYHOW]
    inner = replace(inner, when=condition.when is not condition.negated)
    return flags_of(inner, {own[0]: owner}, function.__globals__, code.co_filename, depth + 1)


def _of_class(kind: type, name: str) -> Any:
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), UNKNOWN)


def _resolve(chain: Receiver, names: dict[str, Any], others: dict[str, Any]) -> tuple[Any, Any]:
    """Whose attribute the last of a chain of names is, and its value."""
    owner, value = UNKNOWN, names.get(chain[0], others.get(chain[0], UNKNOWN))
    for name in chain[1:]:
        owner, value = value, attribute_of(value, name)
    return owner, value
