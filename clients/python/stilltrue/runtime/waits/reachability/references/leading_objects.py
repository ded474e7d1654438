"""What a search for the holders of objects has found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability.loops.loop_contents import LoopContents

Frames = Mapping[int, Sequence[FrameType]]
Global = tuple[int, str]
"""The identity of a module's globals, and a name among them."""

REQUESTS = -2
"""Stands for the threads that will serve requests, among those that can reach an object."""
LOOP_TO_RUN = -3
"""Among them if these can reach an event loop that no thread runs (rule 9)."""
KEPT_METHOD = -4
"""Among them if these can reach a kept ``event.set`` or the like, which ends the wait without being mentioned.

So may the methods of a library's object that run without a name: the exit of its block, a property, an operator.
"""
MARKS = frozenset({REQUESTS, LOOP_TO_RUN, KEPT_METHOD})


@dataclass(slots=True)
class LeadingObjects:
    """The objects that lead to the wanted ones, by identity, and the names, threads and tasks at which the search ends."""

    running: Frames
    until: float
    """This thread's processor time at which the search ends."""
    things: dict[int, Any] = field(default_factory=dict)
    holders: dict[int, Any] = field(default_factory=dict)
    """Further objects that refer to one of ``things``, without leading to it."""
    referrers: dict[int, set[int]] = field(default_factory=dict)
    names: dict[Global, set[int]] = field(default_factory=dict)
    """The objects that are globals of the application's own modules."""
    modules: dict[int, str] = field(default_factory=dict)
    """The names of these modules, by the identity of their globals."""
    functions: list[tuple[OwnRef, CodeType, dict[str, Any]]] = field(default_factory=list)
    """The functions that may name one: each with its code and globals."""
    paused: list[tuple[OwnRef, CodeType, dict[str, Any], set[str]]] = field(default_factory=list)
    """The suspended coroutines and generators: each with its code, globals, and the names ahead."""
    own: list[str] = field(default_factory=list)
    """The names of all modules of the application's own."""
    keeps_generators: bool = False
    """Whether a suspended generator is among ``things``, or an object with a finalizer: whoever drops the last reference to one
    runs the rest of its code.
    """
    finalized: set[int] = field(default_factory=set)
    """The objects with finalizers."""
    is_compiled: bool = False
    """Whether one of the application's own modules is compiled."""
    reachers: dict[int, set[int | Task]] = field(default_factory=dict)
    """The threads and tasks that can reach each object directly."""
    loops: LoopContents = field(default_factory=LoopContents)
    begun: dict[frozenset[str], frozenset[int | Task] | None] = field(default_factory=dict)
    """By the names of what ends a wait: who stands for requests to come; hundreds of threads may wait alike."""
    looking: dict[tuple[int | Task, frozenset[str]], bool] = field(default_factory=dict)
    """Likewise, by a running thread or a sleeping task as well: whether it only looks."""
    kept: dict[frozenset[str], frozenset[str] | None] = field(default_factory=dict)
    """Likewise: the attributes by which such a wait may be ended unnamed (:mod:`.kept_functions`)."""
    unknown: set[int] = field(default_factory=set)
    """Objects with an unknown holder."""
    is_whole: bool = True
