"""Parties that may release a share a suspect waits for: all that can reach it, whatever their code mentions.

Besides frames, tasks and timers, a share may be kept in an application module, a queued executor item, a finalizer (except the
share's own, which runs when the share is released), a task's context, or a future's done callback.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from types import FrameType, MethodType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.introspection.threads_and_tasks import Places
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.code.attributes import named_values
from stilltrue.runtime.look.ways_out.actors import Actor
from stilltrue.runtime.look.ways_out.reach import Reach
from stilltrue.runtime.waits.databases.drivers import DRIVERS, connections_in
from stilltrue.runtime.waits.frame_search import holding_frames


class ShareHolders:
    """The shares that parties wait for."""

    def __init__(self, shares: Mapping[PartyName, tuple[Any, ...]], budget: Budget) -> None:
        """``shares``: by waiting party, first the pool, at which the search stops, then its shares."""
        self._waiting: dict[int, list[PartyName]] = {}
        for party, those in shares.items():
            for share in those[1:]:
                self._waiting.setdefault(id(share), []).append(party)
        targets = [one for those in shares.values() for one in those]
        self._reach = Reach(targets, budget) if targets else None

    def held_by(self, actor: Actor) -> list[PartyName]:
        """The parties that wait for a share which ``actor`` can reach."""
        if self._reach is None:
            return []
        held = self._reach.held(actor.roots, ends=True)
        return list(dict.fromkeys(party for one in sorted(held) for party in self._waiting.get(one, ())))

    def is_share(self, thing: Any) -> bool:
        """Whether a party waits for ``thing`` to be released; then this class finds the other parties that can reach it.

        The same goes for what works on such a database connection, as SQLAlchemy's objects do.
        """
        return any(id(one) in self._waiting for one in (thing, *connections_in(thing)))

    def keepers(self, places: Places) -> Iterator[Actor]:
        """Places other than frames, tasks and timers where a share may be kept."""
        if self._reach is None:
            return
        running = {
            id(frame.f_globals)
            for place in places.threads.values()
            for frame in place.frames
            if frame.f_code.co_name == "<module>"
        }
        for name, names in compat.modules_of_application():
            if id(names) not in running:  # else it belongs to the thread that runs the module
                yield Actor(text=f"module {name}, where others can find it", roots=tuple(names.values()))
        called = tuple(info for thing, info in compat.finalizers() if not self.is_share(thing))
        yield Actor(text="a finalizer, which holds it", roots=called)
        yield Actor(text="a queued executor item, which holds it", roots=compat.executor_queues())
        yield from _of_tasks(places)
        yield from _of_frames(places)


def _of_tasks(places: Places) -> Iterator[Actor]:
    """The contexts of tasks and the done callbacks of the futures they await."""
    for loop in places.loops():
        for task in compat.tasks_of(loop) or ():
            context = compat.context_of(task)
            if context is not None:
                text = f"the context of task {task.get_name()}, which holds it"
                yield Actor(text=text, roots=tuple(context.values()), party=places.party_of(task), owner=task)
            future = blocking_future(task)
            called = [one for one, _ in compat.callbacks_of(future) if not (compat.is_asyncio(one) or _is_of_driver(one))]
            if called:
                roots = tuple(held for one in called for held in (one, *compat.bound_to(one)))
                yield Actor(text=f"a done callback of the future that task {task.get_name()} awaits", roots=roots)


def _is_of_driver(callback: Any) -> bool:
    """Whether this is a method of a database driver's object, which learns only that its own request has ended."""
    return type(callback) is MethodType and compat.module_of(type(callback.__self__)).partition(".")[0] in DRIVERS


def _of_frames(places: Places) -> Iterator[Actor]:
    """The variables of all frames, library frames included, and the globals that application functions name."""
    for place in places.threads.values():
        if place.ident != threading.get_ident():
            roots = tuple(held for frame in holding_frames(place.frames) for held in _of_frame(frame))
            text = f"thread {place.ident}, which holds it: {(place.stack() or ('',))[0]}"
            yield Actor(text=text, roots=roots, party=place.party, owner=place.ident)
    for loop in places.loops():
        for task in compat.tasks_of(loop) or ():
            place = places.of_task(task, places.party_of(task))
            roots = tuple(held for frame in holding_frames(place.frames) for held in _of_frame(frame))
            text = f"task {task.get_name()}, which holds it: {(place.stack() or ('',))[0]}"
            yield Actor(text=text, roots=roots, party=place.party, owner=task)


def _of_frame(frame: FrameType) -> Iterator[Any]:
    yield from variables_of(frame).values()
    if is_application(frame.f_code):
        yield from named_values(frame.f_code.co_names, frame.f_globals)
