"""What future requests may end: methods and interceptors of this process's servers that cancel the jobs of other calls.

Rules:

1. A method counts if its code, or code it calls, names an ending operation (``cancel``, ``set_result``) and can reach what a
   suspect waits for through its instance, its closure or a global it names; or if it names ``cancel``, or on a loop ``abort``
   or ``write``, and can reach the context of the call that a suspect serves, or the stream of requests that it has begun. Such
   a request may never come, so it is doubt and not a way out.
2. For a lock a method counts if it names ``release`` and acquires nothing: a method that acquires a lock releases its own,
   whether the lock is a global or is carried by the method, or by one that a decorator has wrapped. So does one that enters it
   through an ``ExitStack`` of its own; a method that can reach another call's stack counts, whatever it names. Likewise for
   functions that the method calls by name.
   Likewise for a counter by which the application keeps others waiting (:mod:`~stilltrue.runtime.waits.holders.gates.gates`).
3. A method may also wake a thread or task that then ends the wait, by setting an event or feeding a queue; or add workers to
   the pool in which a suspect serves.
4. If all workers of a server are suspects, or a suspect blocks its loop, a request begins when one of them continues.
5. An interceptor of a server is like a method: it runs for requests for any method.
6. What other servers of this process call for connections to come (a handler of ``http.server``) is like a method
   (:mod:`~stilltrue.runtime.look.ways_out.kinds.connections_to_come`).
7. A request that stops a server, closes a channel or ends the process is an outside act, which a TRUE assumes not to happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, MethodType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application_callback
from stilltrue.runtime.introspection.threads_and_tasks import Places
from stilltrue.runtime.look.called_code.reachable_names import ReachableNames, codes_reached, reachable_names
from stilltrue.runtime.look.progress.progress import BY_ITSELF, Progress
from stilltrue.runtime.look.ways_out.actor_code import callback_roots
from stilltrue.runtime.look.ways_out.actors import Actor
from stilltrue.runtime.look.ways_out.findings import Found
from stilltrue.runtime.look.ways_out.kinds.connections_to_come import handlers_of_loops, handlers_of_threads
from stilltrue.runtime.waits.ending_operations import RELEASE
from stilltrue.runtime.waits.resolvers.executors import executor_of

_ENDING = frozenset({"cancel", "throw", "set_result", "set_exception", "reschedule"})
_ANSWERING = frozenset({"abort", "abort_with_status", "cancel", "done_writing", "write"})
_TAKES = "acquire"
_ENTERS = frozenset({"enter_context"})
_WRAPPED_MAX = 100
WAKING = frozenset({"set", "notify", "notify_all", "put", "put_nowait", "set_result", "set_exception", "call_soon_threadsafe"})
"""Names of operations that wake a waiter."""


@dataclass(frozen=True, slots=True)
class Request:
    """A possible future request for ``method``, served by ``behaviour``; ``progress``: whether it can begin (rule 4)."""

    method: str
    behaviour: Any
    progress: Progress

    @property
    def actor(self) -> Actor:
        """The actor that would serve it."""
        roots = callback_roots(self.behaviour)
        return Actor(
            text=f"a future request for {self.method}",
            roots=roots,
            owner=self.behaviour,
            undoes_through=lambda by: (*_carried(by, (self.behaviour,)), *roots[1:]),
            calls_through=_carried,
            ends=not _ENDING.isdisjoint(self.names_reached(True).names),
            names_reached=self.names_reached,
        )

    @property
    def answers(self) -> bool:
        """Whether it names an operation that sends something to the other end of another call."""
        return not _ANSWERING.isdisjoint(self.names_reached(True).names)

    @property
    def globals(self) -> tuple[Any, ...]:
        """The globals it names."""
        return self.names_reached(True).global_values

    @property
    def wakes(self) -> tuple[Any, ...] | None:
        """The globals it names, if it names a waking operation (rule 3); else None."""
        return None if WAKING.isdisjoint(self.names_reached(True).names) else self.globals

    @property
    def codes(self) -> list[CodeType]:
        """Its own code, and all that it may run."""
        code, names, owner = compat.code_behind(self.behaviour)
        return [] if code is None else codes_reached(code, names, (owner, *compat.bound_to(self.behaviour)))

    def names_reached(self, far: bool) -> ReachableNames:
        """The names it may use, without those by which it releases only what it acquired (rule 2)."""
        code, names, owner = compat.code_behind(self.behaviour)
        if code is None:
            return ReachableNames()
        reachable = reachable_names(code, names, (owner, *compat.bound_to(self.behaviour)), far=far)
        own = _own(reachable.names)
        return replace(reachable, names=reachable.names - own) if own else reachable


def _carried(by: frozenset[str], things: tuple[Any, ...]) -> tuple[Any, ...]:
    """These things, with what functions among them carry or have wrapped instead of those that undo nothing of others (rule 2).

    ``by``: the names of operations that undo.
    """
    carried: list[Any] = []
    todo, seen = [*things], set[int]()
    while todo and len(seen) < _WRAPPED_MAX:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if type(one) in (FunctionType, MethodType) and not _undoes(one, by):
            todo += compat.bound_to(one)
        else:
            carried.append(one)
    return (*carried, *todo)


def _undoes(method: Any, by: frozenset[str]) -> bool:
    """Whether a function names one of these operations, other than to release what it has acquired (rule 2)."""
    code, names, owner = compat.code_behind(method)
    if code is None:
        return True
    reached = reachable_names(code, names, (owner, *compat.bound_to(method)))
    return reached.any_code or reached.any_name or not by.isdisjoint(reached.names - _own(reached.names))


def _own(names: frozenset[str]) -> frozenset[str]:
    """Those of the names by which code releases only what it has acquired (rule 2)."""
    return names & (_ENTERS | RELEASE if _TAKES in names else _ENTERS)


def requests_to_come(places: Places, found: Mapping[PartyName, Found]) -> Iterator[Request]:
    """The future requests to the servers of this process (rules 1, 5 and 6)."""
    for server, loop in filter(lambda known: compat.takes_requests(*known), places.servers()):
        progress = _progress_of(server, loop, places, found)
        for method, behaviour in compat.methods_of_server(server):
            if is_application_callback(behaviour):
                yield Request(method, behaviour, progress)
    for place in places.threads.values():
        party = place.party if place.party in found else None
        progress = BY_ITSELF if party is None else Progress(parties=frozenset((party,)))
        yield from (Request(compat.name_of(one), one, progress) for one in handlers_of_threads(place))
    for loop, one in handlers_of_loops(places):
        yield Request(compat.name_of(one), one, _progress_of(None, loop, places, found))


def _progress_of(
    server: Any, loop: asyncio.AbstractEventLoop | None, places: Places, found: Mapping[PartyName, Found]
) -> Progress:
    """Rule 4."""
    if loop is not None:
        holder, _ = places.blocked_loops.get(loop, (None, None))
        return BY_ITSELF if holder is None else Progress(parties=frozenset((holder,)))
    pool = getattr(server, "thread_pool", None)
    size = getattr(pool, "_max_workers", None)
    busy = frozenset(party for party, one in found.items() if executor_of(one.place.frames) is pool)
    return Progress(parties=busy) if type(size) is int and len(busy) >= size else BY_ITSELF
