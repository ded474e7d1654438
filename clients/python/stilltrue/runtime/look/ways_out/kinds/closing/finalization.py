"""Code that may drop the last reference to an object whose ``__del__`` or ``weakref.finalize`` closes something.

Removing items from collections and setting attributes or items may do so, and a frame that has such an object and returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.called_code.nearby import classes_near
from stilltrue.runtime.look.code.attributes import inherited
from stilltrue.runtime.look.code.instructions_ahead import Ahead
from stilltrue.runtime.look.code.names import mentioned_in, names_stored_in
from stilltrue.runtime.look.progress.stack_ahead import Stretch
from stilltrue.runtime.look.ways_out.kinds.closing.with_blocks import may_close, mentions_closing
from stilltrue.runtime.look.ways_out.kinds.wakers import frame_roots
from stilltrue.runtime.look.ways_out.reach import named_by

_REMOVING = frozenset({"clear", "pop", "popitem", "popleft", "remove", "discard"})


def may_drop_closing_object(ahead: Ahead, named: Iterable[CodeType], own: Iterable[Any], reachable: Iterable[Any]) -> bool:
    """Whether the code ``ahead`` may drop a closing object: one of its ``own`` variables, or a ``reachable`` one."""
    kinds = _closing_finalized_classes()
    if ahead.returns and any(_is_closing(type(one), kinds) for one in own):
        return True
    here = ahead.stored or not _REMOVING.isdisjoint(ahead.mentioned)
    return any(_is_closing(kind, kinds) for kind in classes_near(reachable)) if here else may_drop(named, reachable)


def may_drop(codes: Iterable[CodeType], reachable: Iterable[Any]) -> bool:
    """The same for whole functions."""
    if not any(map(removes_references, codes)):
        return False
    kinds = _closing_finalized_classes()
    return any(_is_closing(kind, kinds) for kind in classes_near(reachable))


def called_when_dropped(stretch: Stretch) -> Iterator[Any]:
    """What the program's own code ahead may call by dropping an object: its ``__del__``, and weak references' callbacks."""
    ahead, frame = stretch.ahead, stretch.frame
    if not is_own_code(frame.f_code):
        return
    names = variables_of(frame)
    removes = not ahead.known or ahead.stored or not _REMOVING.isdisjoint(ahead.mentioned)
    roots = frame_roots(frame, names) if removes else tuple(names.values()) if ahead.returns else ()
    for kind in classes_near(roots):
        found = inherited(kind, "__del__")
        if type(found) is FunctionType and is_own_code(found.__code__):
            yield found
    for root in roots:
        for one in (root, *(named_by(root) or ())):
            yield from compat.weakref_callbacks(one)


def removes_references(code: CodeType) -> bool:
    """Whether a function removes items from collections, or sets attributes or items."""
    return bool(names_stored_in(code)) or not _REMOVING.isdisjoint(mentioned_in(code))


def removes_closing_items(callback: Any) -> bool:
    """Whether a callback is a collection method that removes items, and those close something when dropped."""
    name = compat.name_of(callback).rsplit(".", 1)[-1]
    if compat.code_behind(callback)[0] is not None or name not in _REMOVING:
        return False
    kinds = _closing_finalized_classes()
    return any(_is_closing(kind, kinds) for kind in classes_near(compat.bound_to(callback)))


def _is_closing(kind: type, finalized: frozenset[type]) -> bool:
    found = inherited(kind, "__del__")
    code = found.__code__ if type(found) is FunctionType else None
    return kind in finalized or (code is not None and is_application(code) and mentions_closing(code))


def _closing_finalized_classes() -> frozenset[type]:
    """Classes of objects that have a closing finalizer."""
    return frozenset(type(thing) for thing, info in compat.finalizers() if may_close(info.func))
