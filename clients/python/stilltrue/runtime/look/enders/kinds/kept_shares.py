"""Who else may give back a share that a suspect waits for: whoever can reach it, whatever its code says.

Besides frames, tasks and timers a share may be kept where somebody will find it: in a module of the application's, in an item
that an executor has yet to run, in a finalizer (not the share's own, which is called when nobody holds the share any more), in
the context of a task, in what is called when a future is done.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.places import Places
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.enders.actors import Actor
from stilltrue.runtime.look.enders.reach import Reach
from stilltrue.runtime.seen.scene import holding_frames


class KeptShares:
    """The shares that some parties wait for."""

    def __init__(self, shares: Mapping[PartyName, tuple[Any, ...]], budget: Budget) -> None:
        """``shares`` by the party that waits: first the pool, which the search does not pass through, then the shares."""
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
        """Whether somebody waits for ``thing`` to be given back: whoever else can reach it is found here."""
        return id(thing) in self._waiting

    def keepers(self, places: Places) -> Iterator[Actor]:
        """Where a share may be kept besides frames, tasks and timers."""
        if self._reach is None:
            return
        running = {
            id(frame.f_globals)
            for place in places.threads.values()
            for frame in place.frames
            if frame.f_code.co_name == "<module>"
        }
        for name, names in compat.modules_of_application():
            if id(names) not in running:  # else it is the thread's that runs the module
                yield Actor(text=f"the module {name}, in which others find it", roots=tuple(names.values()))
        called = tuple(info for thing, info in compat.finalizers() if not self.is_share(thing))
        yield Actor(text="a finalizer, which holds it", roots=called)
        yield Actor(text="an item that an executor has yet to run, which holds it", roots=compat.executors_queues())
        yield from _of_tasks(places)
        yield from _of_frames(places)


def _of_tasks(places: Places) -> Iterator[Actor]:
    """The contexts of tasks, and what is called when the futures are done on which they hang."""
    for loop in places.loops(()):
        for task in compat.tasks_of(loop) or ():
            context = compat.context_of(task)
            if context is not None:
                text = f"the context of task {task.get_name()}, which has it"
                yield Actor(text=text, roots=tuple(context.values()), party=places.party_of(task), of=task)
            future = blocking_future(task)
            called = [one for one, _ in compat.callbacks_of(future) if not compat.is_asyncio(one)]
            if called:
                roots = tuple(held for one in called for held in (one, *compat.bound_to(one)))
                yield Actor(text=f"what is called when that is done on which task {task.get_name()} hangs", roots=roots)


def _of_frames(places: Places) -> Iterator[Actor]:
    """What all frames of a thread have, those of libraries, too; and the globals that the application's functions name."""
    for place in places.threads.values():
        if place.ident != threading.get_ident():
            roots = tuple(held for frame in holding_frames(place.frames) for held in _of_frame(frame))
            text = f"thread {place.ident}, which holds it: {(place.stack() or ('',))[0]}"
            yield Actor(text=text, roots=roots, party=place.party, of=place.ident)
    for loop in places.loops(()):
        for task in compat.tasks_of(loop) or ():
            place = places.of_task(task, places.party_of(task))
            roots = tuple(held for frame in holding_frames(place.frames) for held in _of_frame(frame))
            text = f"task {task.get_name()}, which holds it: {(place.stack() or ('',))[0]}"
            yield Actor(text=text, roots=roots, party=place.party, of=task)


def _of_frame(frame: FrameType) -> Iterator[Any]:
    yield from variables_of(frame).values()
    if is_application(frame.f_code):
        yield from (frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals)
