"""Waits for the end of a child of ``multiprocessing`` that waits at a connection or queue which only this process could use.

Rules:

1. A thread waits so in ``Process.join()`` without a timeout if the child and its own children stand still
   (:mod:`~stilltrue.runtime.waits.pipes.process_trees`), and a thread of theirs is in ``write()`` or ``read()`` at the other
   end of a connection: in ``send()``, or to send the items of a queue, for which the child waits before it ends ("Joining
   processes that use queues" in Python's documentation). So it does not end until a party of this process uses the connection.
2. The connection, or the queue that has it, is found among those that ``multiprocessing`` knows, and where the innermost
   functions of the application refer to it (:mod:`~stilltrue.runtime.waits.pipes.named_objects`).
3. Other children may have the other end, too, since a fork copies it: they must stand still as well. They may wait for their
   turn to read or write the queue, which only whoever can reach the queue could give them.
4. Nobody else may have the other end, nor the semaphore of that turn, and this process has a single descriptor of it. This is
   asked at the second look, as in :mod:`~stilltrue.runtime.waits.pipes.child_output`, rule 3.
5. Whoever can reach the connection or the queue may use it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.linux.child_processes import child_processes
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.pipes.child_output import has_single_descriptor
from stilltrue.runtime.waits.pipes.kernel import is_end, other_end_at, other_end_of, own_end_at, processes_at
from stilltrue.runtime.waits.pipes.named_objects import objects_named
from stilltrue.runtime.waits.pipes.process_trees import (
    ACQUIRES,
    KNOWN_SECONDS,
    OTHER_CALL,
    READ_MAX,
    Place,
    Tree,
    forest_of,
    own_semaphore_at,
    tree_lately,
    tree_of,
    users_at,
)
from stilltrue.runtime.waits.pipes.signallers import may_be_signalled
from stilltrue.runtime.waits.semaphores.own import registered_semaphores

WHAT = "the end of its child, which waits at a connection or queue that only {} can use"
_CONNECTIONS, _TURNS = ("_reader", "_writer"), ("_rlock", "_wlock")
_FILE = "/multiprocessing/popen_fork.py"
_QUEUES = "multiprocessing.queues"
_KINDS = (("multiprocessing.connection", "Connection"), (_QUEUES, "Queue"), (_QUEUES, "SimpleQueue"))
_REGISTERED_MAX = 1_000


@cached_by_code
def joins_child(code: CodeType) -> bool:
    """Whether this is the function in which a thread waits for a child of ``multiprocessing``."""
    return code.co_filename.replace("\\", "/").endswith(_FILE) and qualname_of(code) == "Popen.poll"


def connection_at_child(frames: Sequence[FrameType]) -> Any:
    """The connection or queue at whose other end the child waits for whose end a thread with these frames does; else None."""
    pid = _child_joined_at(frames)
    tree = None if pid is None else tree_lately(pid)
    if tree is None or not tree.at:
        return None
    return _thing_at(tree, frames)


def parts_of(thing: Any) -> list[Any]:
    """What a queue consists of, by which others may use it; nothing of any other object."""
    if compat.module_of(type(thing)) != _QUEUES:
        return []
    return [one for name in (*_CONNECTIONS, *_TURNS) if (one := attribute_of(thing, name)) is not UNKNOWN]


def still_waits(thing: Any, frames: Sequence[FrameType]) -> Callable[[], bool]:
    """A function that returns whether the child of a thread with these frames still waits at ``thing`` (rules 1, 3 and 4)."""
    pid = _child_joined_at(frames)
    descriptors = _descriptors_of(thing)
    turns = _turns_of(thing)

    def still() -> bool:
        tree = None if pid is None else tree_of(pid)
        if tree is None:
            return False
        turn = next(iter(tree.at & turns), None)
        others = frozenset[int]() if turn is None else users_at(turn) or frozenset()
        forest = forest_of((tree.processes[0], *(others - {os.getpid(), *tree.processes})))
        place = None if forest is None else _place_among(descriptors, forest.at)
        return place is not None and _is_ours_alone(tree, place, turns)

    return still


def _is_ours_alone(tree: Tree, place: Place, turns: frozenset[Place]) -> bool:
    """Rules 3 and 4."""
    end, call = place
    other = other_end_of(end)
    users = None if other is None else processes_at(other, OTHER_CALL[call])
    if other is None or users is None or not has_single_descriptor(other, OTHER_CALL[call]):
        return False
    others = users - {os.getpid(), *tree.processes}
    forest = forest_of((tree.processes[0], *others)) if others.issubset(one.pid for one in child_processes()) else None
    if forest is None or may_be_signalled(forest.processes):
        return False
    known = {os.getpid(), *forest.processes}
    if not all(known.issuperset(users_at(one) or {0}) for one in turns & forest.at):
        return False
    return forest.is_closed(but={place} | turns)


def _child_joined_at(frames: Sequence[FrameType]) -> int | None:
    """The child for whose end a thread waits in ``Process.join()``. With a timeout, it does not wait in this function."""
    names = variables_of(frames[0]) if frames and joins_child(frames[0].f_code) else {}
    pid = attribute_of(names.get("self"), "pid")
    return pid if type(pid) is int and names.get("flag") == 0 else None


class _Known:
    """The queues that ``multiprocessing`` knows, by the other ends of their connections, as read a moment ago by a cut."""

    queues: dict[str, OwnRef] = {}  # noqa: RUF012 - replaced as a whole
    at = float("-inf")


def _thing_at(tree: Tree, frames: Sequence[FrameType]) -> Any:
    """Rule 2: the queue or connection at whose other end the tree waits; else None."""
    kinds = tuple(kind for module, name in _KINDS if isinstance(kind := getattr(sys.modules.get(module), name, None), type))
    now = time.monotonic()
    if now - _Known.at >= KNOWN_SECONDS:
        queues = [one for one in registered_semaphores()[:_REGISTERED_MAX] if issubclass(type(one), kinds)]
        _Known.at, _Known.queues = now, {end: OwnRef(one) for one in queues for end in _other_ends(_descriptors_of(one))}
    places = {*tree.at, *_places_of_others()} if any(call == ACQUIRES for _, call in tree.at) else tree.at
    known = (weak() for end, _ in places if (weak := _Known.queues.get(end)) is not None)
    named = (one for one in objects_named(frames, kinds) if _place_among(_descriptors_of(one), places) is not None)
    return next((one for one in chain(known, named) if one is not None), None)


def _places_of_others() -> Iterator[Place]:
    """Where the first children wait: one of them may have the turn for which another one waits."""
    found = (tree_lately(one.pid) for one in child_processes()[:READ_MAX])
    yield from (place for tree in found if tree is not None for place in tree.at)


def _place_among(descriptors: Sequence[int], places: Iterable[Place]) -> Place | None:
    """The first of these places at which one of our descriptors ends the wait.

    Both ends of a pipe have one name, so the descriptor must be open for the other call.
    """
    ends = [(one, own, other_end_of(own)) for one in descriptors if (own := own_end_at(one)) is not None]
    for end, call in places:
        for one, own, other in ends:
            if other == end and call in OTHER_CALL and is_end("self", str(one), own, OTHER_CALL[call]):
                return end, call
    return None


def _other_ends(descriptors: Sequence[int]) -> frozenset[str]:
    return frozenset(end for one in descriptors if (end := other_end_at(one)) is not None)


def _descriptors_of(thing: Any) -> list[int]:
    """The open descriptors of a connection or a queue."""
    return [each for one in _connections_of(thing) if (each := _descriptor_of(one)) is not None]


def _connections_of(thing: Any) -> tuple[Any, ...]:
    """The connections of a queue, or the connection itself."""
    return tuple(one for name in _CONNECTIONS if (one := attribute_of(thing, name)) is not UNKNOWN) or (thing,)


def _descriptor_of(connection: Any) -> int | None:
    found = attribute_of(connection, "_handle")
    return found if type(found) is int else None


def _turns_of(thing: Any) -> frozenset[Place]:
    """The semaphores by which processes take turns to read or write a queue."""
    locks = (attribute_of(attribute_of(thing, name), "_semlock") for name in _TURNS)
    addresses: list[Any] = [getattr(one, "handle", None) for one in locks]
    places = (own_semaphore_at(one) for one in addresses if type(one) is int)
    return frozenset(one for one in places if one is not None)
