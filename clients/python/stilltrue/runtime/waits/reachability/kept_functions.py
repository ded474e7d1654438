"""The application's own functions that may run without being named: kept as values, or called by methods of a library's class.

Rules:

1. A function is kept if anything refers to it but where it is found by its own name (the application's modules and classes, and
   what wraps it), frames, and threads that were started with it. The interpreter's reference counts decide. Code that calls a
   method of any object may call it: ``self.sink.append(n)``, if that attribute is the function.
2. A method is called by a library's class from which its class is derived, if that has or mentions one of this name
   (``process()`` of a logger's adapter). What gRPC has generated calls none: requests do.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import CellType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.collector import objects_of
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.origins import is_of_own_module, is_ours, is_own_code
from stilltrue.runtime.look.called_code.call_graph import names_in
from stilltrue.runtime.look.called_code.indirect_calls import inherits_calls
from stilltrue.runtime.look.code.attributes import attribute_dictionary, attribute_of, slots_of
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability.looking import METACLASSES
from stilltrue.runtime.waits.reachability.loops.loop_contents import is_running
from stilltrue.runtime.waits.reachability.loops.waking import forget_objects
from stilltrue.runtime.waits.reachability.names.code_names import census
from stilltrue.runtime.waits.reachability.names.mentions import may_end
from stilltrue.runtime.waits.reachability.references.frame_references import read_frames
from stilltrue.runtime.waits.reachability.references.leading_objects import KEPT_METHOD, LeadingObjects
from stilltrue.runtime.waits.reachability.references.thread_reach import leading_to, reached_by

_GENERATED = "_pb2_grpc"
_OF_REQUESTS = frozenset({"grpc", "stilltrue"})
_PASSED_ON = (classmethod, staticmethod)
_HOLDING = frozenset(
    {*_PASSED_ON, CellType, deque, dict, frozenset, GetSetDescriptorType, list, MemberDescriptorType, MethodType, ModuleType}
    | {property, set, threading.Thread, tuple}
)


def names_of_kept(waking: frozenset[str], found: LeadingObjects) -> frozenset[str] | None:
    """The attributes, by their names, that are functions which may end a wait; None if any call may run one.

    ``waking``: the names of the operations that end it; ``found``: what has been read of threads and loops.
    """
    if waking not in found.kept:
        forget_objects()  # the application does not keep what these keep
        found.kept[waking] = _names_of_kept(waking, found)
    return found.kept[waking]


def _names_of_kept(waking: frozenset[str], found: LeadingObjects) -> frozenset[str] | None:
    functions, paused = census()
    own = [one for one in functions if is_own_code(one.__code__)]
    known = Counter(chain(_wrapped(functions), _suspended(paused), _started()))
    del functions, paused
    kinds = [one for one in objects_of(frozenset(METACLASSES)) if issubclass(type(one), type) and is_of_own_module(one)]
    kept = _kept(own, kinds, known, found)
    called = [one for kind in kinds if inherits_calls(kind) for one in _called_by_bases(kind)]
    if kept is None or any(may_end(one, waking) for one in called):
        return None
    ending = [OwnRef(one) for one in kept if may_end(one, waking)]
    del own, kinds, kept, called
    forget_objects()
    return _names_under(ending, found) if ending else frozenset()


def _kept(
    own: list[FunctionType], kinds: Iterable[type], known: Counter[int], found: LeadingObjects
) -> list[FunctionType] | None:
    """Those among the program's ``own`` functions that are kept (rule 1); None if the frames cannot be read.

    ``known``: references from other places than the application's modules and classes, and frames.
    """
    read = LeadingObjects(found.running, found.until, things={id(one): one for one in own}, loops=found.loops)
    before, after = Counter[int](), Counter[int]()
    read_frames(read, before, known_only=True)
    probe = _probe()
    own.append(probe)
    read.things[id(probe)] = probe
    counts = [*map(sys.getrefcount, own)]
    del own[-1], read.things[id(probe)]
    read_frames(read, after, known_only=True)
    known = known + (before & after) + Counter(_named(own, kinds))
    overhead = counts[-1] - 1  # the probe is also a variable of this function
    every = zip(own, counts, strict=False)
    return [one for one, count in every if count - overhead > known[id(one)]] if read.is_whole else None


def _names_under(kept: Iterable[OwnRef], found: LeadingObjects) -> frozenset[str] | None:
    """The attributes that are one of these functions (rule 1); None if one may be run by what is not the application's own."""
    leading = leading_to(kept, found.running, found.until)
    reached = [reached_by([id(one())], leading) for one in kept]
    if any(those is None or KEPT_METHOD in those for those in reached):
        return None
    if not all(map(_only_has, leading.things.values())):
        return None
    functions = {id(one()) for one in kept}
    methods = [(key, one) for key, one in leading.things.items() if type(one) in (MethodType, *_PASSED_ON)]
    functions.update(key for key, one in methods if id(one.__func__) in functions)
    every = (table for one in leading.things.values() for table in _tables(one))
    named = (name for table in every for name, one in list(table.items()) if type(name) is str and id(one) in functions)
    return frozenset(named).union(name for (_, name), held in leading.names.items() if not functions.isdisjoint(held))


def _tables(thing: Any) -> Iterator[Mapping[Any, Any]]:
    """The attributes or items of an object, by their names."""
    kind: Any = type(thing)
    if kind is dict or issubclass(kind, type):
        yield thing if kind is dict else type.__getattribute__(thing, "__dict__")
    elif kind not in _HOLDING:
        yield attribute_dictionary(thing) or {}
        yield {name: attribute_of(thing, name) for name in slots_of(kind)}


def _only_has(thing: Any) -> bool:
    """Whether it calls nothing that it has unless the application's code calls that: a collection, an object of its own.

    A server's methods are called by requests only, also as the agent keeps them.
    """
    kind = type(thing)
    if kind is FunctionType:
        return is_own_code(thing.__code__) or is_ours(thing.__code__)
    own = thing if issubclass(kind, type) else kind
    if kind in _HOLDING or compat.module_of(own).partition(".")[0] in _OF_REQUESTS:
        return True
    return is_of_own_module(own) and not (own is kind and inherits_calls(kind))


def _probe() -> Any:
    return lambda: None


# -- references to a function by its name (rule 1) ----------------------------------------------------------------------------


def _named(own: Iterable[FunctionType], kinds: Iterable[type]) -> Iterator[int]:
    """The functions to which modules and classes refer by their names, by identity, once for each reference."""
    for space in {id(one.__globals__): one.__globals__ for one in own}.values():
        yield from (id(one) for name, one in list(space.items()) if _is_called(one, name))
    for kind in kinds:
        for name, one in list(type.__getattribute__(kind, "__dict__").items()):
            if type(one) is property:
                yield from map(id, (one.fget, one.fset, one.fdel))  # the program's properties are looked at by themselves
            function = one.__func__ if type(one) in _PASSED_ON else one
            yield from (id(function),) if _is_called(function, name) else ()


def _wrapped(functions: Iterable[FunctionType]) -> Iterator[int]:
    """The functions to which other functions with their names refer, or the variables of such."""
    cells = {id(cell): (cell, (one.__name__, name)) for one in functions for name, cell in _cells(one)}
    for cell, names in cells.values():
        held = compat.content_of(cell)
        yield from (id(held),) if any(_is_called(held, name) for name in names) else ()
    inner = ((one, getattr(one, "__wrapped__", None)) for one in functions)
    yield from (id(held) for one, held in inner if _is_called(held, one.__name__))


def _is_called(thing: Any, name: str) -> bool:
    """Whether it is a function with this name."""
    return type(thing) is FunctionType and name in (thing.__name__, thing.__code__.co_name)


def _cells(function: FunctionType) -> Iterable[tuple[str, Any]]:
    return zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)


def _suspended(paused: Iterable[Any]) -> Iterator[int]:
    """The functions of suspended generators and coroutines."""
    for one in paused:
        frame = None if is_running(one) else frame_of(one)
        read = None if frame is None else compat.frame_references(frame)
        yield from () if read is None else (read[0],)


def _started() -> Iterator[int]:
    """The functions with which threads were started, and those of such methods."""
    for thread in compat.threads().values():
        target = attribute_of(thread, "_target")
        yield id(target.__func__) if type(target) is MethodType else id(target)


# -- methods (rule 2) ---------------------------------------------------------------------------------------------------------


def _called_by_bases(kind: type) -> Iterator[FunctionType]:
    bases = [one for one in type.__getattribute__(kind, "__mro__")[1:-1] if _may_call(one)]
    every = [(name, one) for base in bases for name, one in list(type.__getattribute__(base, "__dict__").items())]
    names = {name for name, _ in every}.union(*(names_in(one.__code__) for _, one in every if type(one) is FunctionType))
    methods = list(type.__getattribute__(kind, "__dict__").items())
    yield from (one for name, one in methods if name in names and type(one) is FunctionType and is_own_code(one.__code__))


def _may_call(base: type) -> bool:
    return not is_of_own_module(base) and not compat.module_of(base).endswith(_GENERATED)
