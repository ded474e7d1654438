"""Who may let go of the last reference to an object that closes something then: by ``__del__`` or ``weakref.finalize``.

Whoever takes things out of collections, or sets attributes and items, may; so may a frame that has such an object and returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType, FunctionType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.ahead import CLOSING, Ahead
from stilltrue.runtime.look.code.called import kinds_of
from stilltrue.runtime.look.code.names import mentioned_in, stored_in
from stilltrue.runtime.look.enders.kinds.blocks import closes

_TAKING_OUT = frozenset({"clear", "pop", "popitem", "popleft", "remove", "discard"})


def may_let_go(ahead: Ahead, named: Iterable[CodeType], own: Iterable[Any], reachable: Iterable[Any]) -> bool:
    """Whether what is ``ahead`` may let go of something that closes: of its ``own`` variables, or of what is ``reachable``."""
    kinds = _finalized()
    if ahead.returns and any(_is_closing(type(one), kinds) for one in own):
        return True
    here = ahead.stored or not _TAKING_OUT.isdisjoint(ahead.mentioned)
    return any(_is_closing(kind, kinds) for kind in kinds_of(reachable)) if here else lets_go(named, reachable)


def lets_go(codes: Iterable[CodeType], reachable: Iterable[Any]) -> bool:
    """The same of whole functions."""
    if not any(map(drops, codes)):
        return False
    kinds = _finalized()
    return any(_is_closing(kind, kinds) for kind in kinds_of(reachable))


def drops(code: CodeType) -> bool:
    """Whether a function takes things out of collections, or sets attributes or items."""
    return bool(stored_in(code)) or not _TAKING_OUT.isdisjoint(mentioned_in(code))


def takes_out(callback: Any) -> bool:
    """Whether a callback is a method of a collection that takes things out which close when they are let go of."""
    name = compat.name_of(callback).rsplit(".", 1)[-1]
    if compat.called_in(callback)[0] is not None or name not in _TAKING_OUT:
        return False
    kinds = _finalized()
    return any(_is_closing(kind, kinds) for kind in kinds_of(compat.bound_to(callback)))


def _is_closing(kind: type, finalized: frozenset[type]) -> bool:
    found = next((one.__dict__["__del__"] for one in kind.__mro__ if "__del__" in one.__dict__), None)
    return kind in finalized or (type(found) is FunctionType and is_application(found.__code__) and closes(found.__code__))


def _finalized() -> frozenset[type]:
    """The classes of the objects for which something is called that closes when they are let go of."""
    return frozenset(type(thing) for thing, info in compat.finalizers() if _closes_then(info.func))


def _closes_then(function: Any) -> bool:
    code, _, _ = compat.called_in(function)
    return code is not None and (code.co_name in CLOSING or closes(code))
