"""Waits of threads for an object that only waiting parties can reach: an event, a condition, a barrier, a queue, a future.

Rules:

1. A thread in :mod:`threading` or :mod:`queue` (:mod:`~stilltrue.runtime.waits.reachability.simple_queues` has the compiled
   one), or in a method of a :class:`concurrent.futures.Future` for which no other rule knows who completes it, that waits
   without a timeout, called by the application or as the iterator of a call's requests (``iter(queue.get, None)``), waits for
   any party that can reach the object, to set, notify, feed, empty or complete it. One that waits for a child process, which
   waits at a pipe, does so for any party that can reach the pipe's file
   (:mod:`~stilltrue.runtime.waits.pipes.child_output`, :mod:`~stilltrue.runtime.waits.pipes.child_files`). The agent's own
   thread tries to prove which parties these are (:mod:`~stilltrue.runtime.waits.reachability.references.thread_reach`) once
   the thread has waited since the previous cut. If the proof fails, it is tried again after twice the time.
2. A proof is valid while the waiting thread has not run, and the parties that can reach the object are where they were. It is a
   suspicion: the second look proves it again. A thread that only asks about the object again and again
   (:mod:`~stilltrue.runtime.waits.resolvers.polling_loops`) waits for it, too, while it is in the same loop.
3. Threads park if only they can reach what they wait for, such as idle workers at a queue that is never fed. A parked thread
   does not count as waiting. A thread does not park if another of these is about to wake it, or if a party waits for its end,
   its item, its call or its lock. A thread that waits in a loop is an idle worker, unless it is at work on an item
   (:mod:`~stilltrue.runtime.waits.reachability.idle_loops`). One that parks without a loop, such as a watcher of a stop that is
   never asked for, is not about to wake others, unless it is the main thread.
4. A thread never parks at a full queue, a barrier or a future, while it waits for a child, or for the items of a queue to be
   done: it depends on others, even if these have ended or forgotten it. Nor does one that has registered what it waits for
   (:mod:`~stilltrue.runtime.waits.reachability.registered_answers`), or the main thread at an empty queue
   whose item it uses.
5. A thread that does not park, and whose object no other party can reach, waits for itself.
6. A lock without a known holder is such an object, too: a signal, acquired by one thread and released by another. It counts
   once the proof has failed that its holder has left it behind (:mod:`~stilltrue.runtime.waits.orphaned_locks`).
7. An idle worker does not park if a thread that does not park either waits for it. It waits for that thread, which might feed
   it.
8. A thread that runs, or waits for a time, or a task that sleeps, may only look at the object: to print a status, say
   (:mod:`~stilltrue.runtime.waits.reachability.looking`). It can only hand the object to others then, as a request to come can
   (:mod:`~stilltrue.runtime.waits.reachability.requests`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, TypeVar

from stilltrue.model import PartyName
from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.tasks import Task, blocking_future
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.call_stack import sleeps, stack_of_task, where_is
from stilltrue.runtime.waits.ending_operations import PUTTING
from stilltrue.runtime.waits.pipes import child_connections, child_output
from stilltrue.runtime.waits.reachability.awaited_objects import WHAT, Awaited, Still, awaited_in
from stilltrue.runtime.waits.reachability.idle_loops import is_idle
from stilltrue.runtime.waits.reachability.kept_functions import names_of_kept
from stilltrue.runtime.waits.reachability.looking import only_looks
from stilltrue.runtime.waits.reachability.loops.stopped_loops import RUNNING_LOOPS
from stilltrue.runtime.waits.reachability.loops.waking import forget_objects, names_ending, woken_ahead
from stilltrue.runtime.waits.reachability.names.code_names import census
from stilltrue.runtime.waits.reachability.references.leading_objects import (
    KEPT_METHOD,
    LOOP_TO_RUN,
    MARKS,
    REQUESTS,
    LeadingObjects,
)
from stilltrue.runtime.waits.reachability.references.thread_reach import leading_to, reached_by
from stilltrue.runtime.waits.reachability.registered_answers import is_registered, uses_item
from stilltrue.runtime.waits.reachability.requests import begun_by_requests
from stilltrue.runtime.waits.resolvers.locks import LOCK
from stilltrue.runtime.waits.resolvers.polling_loops import is_interrupted
from stilltrue.runtime.waits.streams.writes import request_written
from stilltrue.runtime.waits.wait import CallStack, SeenWait

CANDIDATES_MAX = 200
_CALLERS_MAX = 6
"""Number of innermost functions that may have registered what a thread waits for."""
SEARCH_SECONDS_MAX, LOOK_SECONDS_MAX = 0.25, 0.5
"""Processor time of a search; beyond it no further step begins."""
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.1, 60.0
SOON_SECONDS = 1.0
"""A proof that is tried again after less than this is tried between cuts, too."""
SHARE_OF_TIME = 0.02
"""Largest share of the agent's time to spend on searches."""
SAVED_SECONDS_MAX = 1.0
"""Processor time that this share may save up for them, so that a first one that fails is soon followed by another."""
_CONDITIONS = ("_cond", "_condition", "not_empty", "not_full", "all_tasks_done")
_Frames = Mapping[int, Sequence[FrameType]]
T = TypeVar("T", int, Task)
"""A thread, by its identity, or a task."""


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """That only these ``threads`` and ``tasks`` can reach an object.

    ``tasks``: each with the future that it waits for, None if its loop is blocked. ``places``: the positions of the threads,
    and of those that run the blocked loops.
    """

    threads: tuple[int, ...]
    tasks: tuple[tuple[OwnRef, OwnRef | None], ...]
    places: Mapping[int, object]

    def enders(self, running: _Frames, read: dict[int, object] | None = None) -> tuple[int | Task, ...] | None:
        """These threads and tasks; None if one of them has moved. ``running``: all threads' frames.

        ``read``: the positions of threads that other proofs have read; hundreds of idle threads reach one queue.
        """
        read = {} if read is None else read
        for one in self.places.keys() - read.keys():
            read[one] = _place(running.get(one, ()))
        tasks = [task for one, future in self.tasks if (task := one()) is not None and _waits_for(task, future)]
        in_place = all(read[one] == place for one, place in self.places.items())
        return (*self.threads, *tasks) if in_place and len(tasks) == len(self.tasks) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A waiting thread and the object; ``proof``: which parties can reach that, once proved."""

    ident: int
    where: tuple[object, ...]
    thing: OwnRef
    due: float
    again: float = AGAIN_SECONDS
    proof: Proof | None = None
    what: str = WHAT
    still: Callable[[int, Sequence[FrameType]], Still] | None = None
    same: Callable[[], bool] | None = None
    """Whether it still asks about the object again and again; None: it must not run at all."""
    since: float = field(default_factory=time.time)

    def still_waits(self, frames: Mapping[int, FrameType]) -> bool:
        """Whether it has not run since, or only to ask."""
        if self.same is not None:
            return self.thing() is not None and self.same()
        return self.thing() is not None and where_is(self.ident, frames.get(self.ident)) == self.where

    def enders(self, running: _Frames, read: dict[int, object]) -> tuple[int | Task, ...] | None:
        """The parties that can reach the object (rule 5); None if unproved or moved. Arguments as for :meth:`Proof.enders`."""
        found = None if self.proof is None else self.proof.enders(running, read)
        return (self.ident,) if found == () else found


@dataclass(frozen=True, slots=True)
class ReportedThreadWait:
    """A party's wait that was reported at the newest cut: its thread, the object, and the enders."""

    ident: int
    thing: OwnRef
    enders: frozenset[PartyName]


class ShareOfTime:
    """The processor time for searches in the agent's own thread."""

    def __init__(self) -> None:
        self._saved = SAVED_SECONDS_MAX
        self._at = time.monotonic()

    def has_some(self, now: float) -> bool:
        """Whether there is some ``now`` (monotonic)."""
        self._saved = min(SAVED_SECONDS_MAX, self._saved + (now - self._at) * SHARE_OF_TIME)
        self._at = now
        return self._saved > 0.0

    def spend(self, seconds: float) -> None:
        """These were spent."""
        self._saved -= seconds


class ThreadWaits:
    """The waits of one process's threads."""

    def __init__(self) -> None:
        self._candidates: dict[int, _Candidate] = {}
        self._share = ShareOfTime()

    def at_cut(self) -> dict[int, SeenWait]:
        """The proved waits by thread (rule 2), including those that may park. Must be called before the cut reads anything."""
        every = [one for _, one in items_of(self._candidates) if one.proof is not None]
        running = frames_of_threads() if every else {}
        frames, read = {ident: those[0] for ident, those in running.items()}, dict[int, object]()
        return {
            one.ident: _seen(one, thing, enders, running[one.ident])
            for one in every
            if one.still_waits(frames)
            and (enders := one.enders(running, read)) is not None
            and (thing := one.thing()) is not None
        }

    def remember(self, stacks: Iterable[CallStack], is_signal: Callable[[Any], bool] = lambda _: True) -> None:
        """Store the threads that wait so at this cut, among those in unknown waits.

        ``is_signal``: whether a lock may be one that others release than those who acquire it.
        """
        now, before, found = time.monotonic(), self._candidates, dict[int, _Candidate]()
        for stack in stacks:
            awaited = awaited_in(stack.ident, stack.frames)
            if awaited is None or len(found) >= CANDIDATES_MAX:
                continue
            if type(awaited.thing) is LOCK and not is_signal(awaited.thing):
                continue
            known, innermost = before.get(stack.ident), stack.frames[0]
            if known is not None and known.thing() is awaited.thing and known.still_waits({stack.ident: innermost}):
                found[stack.ident] = known
            else:
                where = where_is(stack.ident, innermost)
                thing, due = OwnRef(awaited.thing), now + AGAIN_SECONDS
                same = None if awaited.asking is None else awaited.asking.still_in_thread(stack.ident)
                candidate = _Candidate(stack.ident, where, thing, due, what=awaited.what, still=awaited.still, same=same)
                found[stack.ident] = candidate
        self._candidates = found

    def search(self) -> None:
        """Try the proofs that are due, within the share of time for them, on the agent's own thread."""
        now = time.monotonic()
        every = [one for _, one in items_of(self._candidates) if one.due <= now] if self._share.has_some(now) else []
        running = frames_of_threads() if every else {}
        frames, read = {ident: those[0] for ident, those in running.items()}, dict[int, object]()
        due = [one for one in every if one.still_waits(frames) and one.enders(running, read) is None]
        del every, running, frames, read
        if not due:
            return
        begun = time.thread_time()
        found = proved({one.ident: one.thing for one in due}, begun + SEARCH_SECONDS_MAX)
        for one in due:
            if self._candidates.get(one.ident) is one:
                again = min(2 * one.again, AGAIN_SECONDS_MAX)
                self._candidates[one.ident] = replace(one, due=now + again, again=again, proof=found.get(one.ident))
        self._share.spend(time.thread_time() - begun)

    def is_due_soon(self) -> bool:
        """Whether a proof that is missing will be tried again before long."""
        return any(one.proof is None and one.again < SOON_SECONDS for _, one in items_of(self._candidates))

    def at_look(self, asked: Mapping[PartyName, ReportedThreadWait]) -> dict[PartyName, tuple[int | Task, ...] | None]:
        """The parties that can end these waits, proved now; None: not proved. Must be called before the look reads anything."""
        if not asked:
            return {}
        found = proved({one.ident: one.thing for one in asked.values()}, time.thread_time() + LOOK_SECONDS_MAX)
        running = frames_of_threads()
        return {
            party: None if (proof := found.get(one.ident)) is None else proof.enders(running) for party, one in asked.items()
        }


def reached_by_themselves(waiting: Mapping[int, OwnRef], until: float) -> frozenset[int]:
    """The threads that alone can reach their object; ``until``: this thread's processor time at which the search ends."""
    return frozenset(ident for ident, proof in proved(waiting, until).items() if not proof.threads and not proof.tasks)


def _seen(one: _Candidate, thing: Any, enders: tuple[int | Task, ...], frames: Sequence[FrameType]) -> SeenWait:
    """A proved wait for ``thing`` of the thread with these frames."""
    still = None if one.still is None else one.still(one.ident, frames)
    return SeenWait(on=thing, enders=enders, what=one.what, reached=True, still=still, same=one.same, since=one.since)


def proved(waiting: Mapping[T, OwnRef], until: float) -> dict[T, Proof]:
    """By thread or task, the parties that can reach what it waits for; without those whose proof fails.

    Tries all at once or, if that is too much, one by one, ``until`` this thread has used this processor time.
    """
    found = _proved_at_once(waiting, until)
    if found is None and len(waiting) > 1:
        every = (_proved_at_once({who: thing}, until) for who, thing in waiting.items() if time.thread_time() < until)
        found = {who: proof for one in every for who, proof in (one or {}).items()}
    return found or {}


def _proved_at_once(waiting: Mapping[T, OwnRef], until: float) -> dict[T, Proof] | None:
    """As :func:`proved`, for all together; None if there is too much to read."""
    running = frames_of_threads()
    places = {ident: _place(frames) for ident, frames in running.items()}
    wanted = {who: _with_conditions(thing) for who, thing in waiting.items() if not _is_free(thing())}
    found = leading_to([one for those in wanted.values() for one in those], running, until)
    if not found.is_whole:
        return None
    reached = {who: reached_by((id(one()) for one in those), found) for who, those in wanted.items()}
    found.things.clear()
    found.holders.clear()
    try:
        reached = {who: _with_others_acts(those, who, found) for who, those in reached.items()}
    finally:
        forget_objects()
    after = {ident: _place(frames) for ident, frames in frames_of_threads().items()}
    every = ((who, _proof_by(those, who, found, places, after)) for who, those in reached.items() if those is not None)
    return {who: proof for who, proof in every if proof is not None}


def _proof_by(
    reachers: frozenset[int | Task],
    who: int | Task,
    found: LeadingObjects,
    places: Mapping[int, object],
    after: Mapping[int, object],
) -> Proof | None:
    """The proof that only these reach what ``who`` waits for; None if one has moved between ``places`` and ``after``."""
    threads = tuple(sorted(one for one in reachers if isinstance(one, int) and one != who))
    tasks = [one for one in reachers if isinstance(one, asyncio.Task) and one is not who]
    watched = {*threads, *(thread for one in tasks if (thread := found.loops.thread_of(one)) is not None)}
    staying = watched | ({who} if isinstance(who, int) else set())
    if any(places.get(one) != after.get(one) for one in staying) or any(map(found.loops.has_moved, tasks)):
        return None
    waiting = tuple((OwnRef(one), _ref(blocking_future(one))) for one in tasks)
    return Proof(threads, waiting, {one: places.get(one) for one in watched})


def _with_others_acts(
    reachers: frozenset[int | Task] | None, who: int | Task, found: LeadingObjects
) -> frozenset[int | Task] | None:
    """``reachers``, with the parties that stand for requests to come, and without the threads that only look (rule 8).

    ``who``: the thread or task that waits.
    """
    if reachers is None:
        return None
    waking = _waking_of(who, found)
    if waking and LOOP_TO_RUN in reachers:
        waking |= RUNNING_LOOPS
    looking = _looking_among(reachers, who, waking, found) if KEPT_METHOD not in reachers else frozenset[int | Task]()
    if REQUESTS not in reachers and not looking:
        return reachers - MARKS
    if waking not in found.begun:
        found.begun[waking] = begun_by_requests(waking, found.running, found.loops)
    begun = found.begun[waking]
    if begun is None:
        return None if REQUESTS in reachers else reachers - MARKS
    return reachers - MARKS - looking | begun


def _waking_of(who: int | Task, found: LeadingObjects) -> frozenset[str]:
    if not isinstance(who, int):
        return names_ending(who)
    awaited = awaited_in(who, found.running.get(who, ()))
    return frozenset() if awaited is None else awaited.waking


def _looking_among(
    reachers: frozenset[int | Task], who: int | Task, waking: frozenset[str], found: LeadingObjects
) -> frozenset[int | Task]:
    """Those among ``reachers`` that run, or wait for a time, and whose code ends no such wait."""
    others = [one for one in reachers - MARKS if one != who] if waking else []
    known = found.looking
    new = [one for one in others if (one, waking) not in known]
    every = ((one, found.running.get(one, ()) if isinstance(one, int) else stack_of_task(one).frames) for one in new)
    running = [(one, frames) for one, frames in every if _runs(one, frames)]
    known.update({(one, waking): False for one in new})
    kept = names_of_kept(waking, found) if running else None
    functions = [] if kept is None else census()[0]
    if kept is not None:
        known.update({(one, waking): only_looks(frames, waking, functions, kept) for one, frames in running})
    return frozenset(one for one in others if known[one, waking])


def _runs(who: int | Task, frames: Sequence[FrameType]) -> bool:
    """Whether a thread or task with these frames runs, at least now and then."""
    if not isinstance(who, int):
        return sleeps(frames)
    awaited = awaited_in(who, frames)
    return awaited is None or awaited.asking is not None


def _ref(thing: Any) -> OwnRef | None:
    return None if thing is None else OwnRef(thing)


def _waits_for(task: Task, future: OwnRef | None) -> bool:
    return blocking_future(task) is (None if future is None else future())


def _is_free(thing: Any) -> bool:
    """Whether it is a lock that nobody holds: whoever waits for it is about to get it."""
    return type(thing) is LOCK and not thing.locked()


def _with_conditions(thing: OwnRef) -> list[OwnRef]:
    """The awaited object and its conditions, through which it can also be woken."""
    awaited = thing()
    every = (attribute_of(awaited, name) for name in _CONDITIONS)
    within = (OwnRef(one) for one in (*child_output.parts_of(awaited)[1:], *child_connections.parts_of(awaited)))
    return [thing, *(OwnRef(one) for one in every if issubclass(type(one), threading.Condition)), *within]


def _place(frames: Sequence[FrameType]) -> object:
    """The position of the application's code, as a library that it calls may wake now and then.

    For gRPC's thread that writes a request, the number of the request.
    """
    call = request_written(frames)
    if call is not None:
        return id(call), call.made.sent
    frame = next((one for one in frames if is_application(one.f_code)), frames[0] if frames else None)
    return None if frame is None else (id(frame), frame.f_lasti)


# -- parking (rules 3 to 5, and 7) ------------------------------------------------------------------------------------------


def without_parked(waits: Mapping[int, SeenWait], running: _Frames, depended_on: Container[int]) -> dict[int, SeenWait]:
    """The waits of threads that do not park; ``depended_on``: threads whose end, item, call or lock a party waits for."""
    try:
        woken: _Woken = {}
        wakers = {one: _wakers_of(one, wait, running, woken) for one, wait in waits.items() if one not in depended_on}
    finally:
        forget_objects()
    parked = {one for one, found in wakers.items() if found is not None and not found}
    watching = {one for one in parked if not is_idle(running.get(one, ()))} - {threading.main_thread().ident}
    while more := {one for one, found in wakers.items() if found and one not in parked and watching.issuperset(found)}:
        parked |= more
        watching |= more - {threading.main_thread().ident}
    while gone := {one for one in parked if not parked.issuperset(waits[one].enders or ())}:
        parked -= gone
    return _with_idle_workers({one: wait for one, wait in waits.items() if one not in parked}, waits)


def _with_idle_workers(found: dict[int, SeenWait], waits: Mapping[int, SeenWait]) -> dict[int, SeenWait]:
    """``found``, the waits of threads that do not park, with those of rule 7 among all ``waits``."""
    todo = list(found)
    for one in todo:
        for ender in found[one].enders or ():
            if isinstance(ender, int) and ender in waits and ender not in found:
                feeders = [feeder for feeder, wait in found.items() if ender in (wait.enders or ())]
                others = [other for other in waits[ender].enders or () if other != ender]
                found[ender] = replace(waits[ender], enders=tuple(dict.fromkeys((*others, *feeders))))
                todo.append(ender)
    return found


_Woken = dict[tuple[int, frozenset[str]], "frozenset[int] | None"]
"""By thread and operations: the objects that the rest of its code mentions them for; None if not known."""


def _wakers_of(ident: int, wait: SeenWait, running: _Frames, woken: _Woken) -> frozenset[int] | None:
    """The threads of whose code the rest mentions what wakes a thread; None if that depends on others by rule 4."""
    frames = running.get(ident, ())
    awaited = awaited_in(ident, frames)
    if awaited is None:
        return frozenset()
    if awaited.never_idle or _awaits_answer(ident, awaited, frames):
        return None
    if is_idle(frames):
        return frozenset()
    found = []
    for one in wait.enders or ():
        if type(one) is int and one != ident:
            key = one, awaited.waking
            if key not in woken:  # once for all that it may wake: hundreds of threads may reach each other's objects
                woken[key] = _woken_by(running.get(one, ()), awaited.waking)
            things = woken[key]
            found += [one] if things is None or id(awaited.thing) in things else []
    return frozenset(found)


def _awaits_answer(ident: int, awaited: Awaited, frames: Sequence[FrameType]) -> bool:
    """Rule 4, for who has registered what it waits for, and for the main thread at a queue."""
    is_main = ident == threading.main_thread().ident and awaited.waking >= PUTTING and uses_item(frames)
    return (is_main and not is_interrupted(frames)) or is_registered(awaited.thing, frames[:_CALLERS_MAX])


def _woken_by(frames: Iterable[FrameType], waking: frozenset[str]) -> frozenset[int] | None:
    every = [woken_ahead(frame, waking) for frame in frames]
    known = [one for one in every if one is not None]
    return frozenset().union(*known) if len(known) == len(every) else None
