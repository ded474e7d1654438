"""Waits of tasks for an object that only blocked tasks can reach: which tasks, when, and the proof at the second look.

Rules:

1. A task is considered only if other parties may depend on it: it serves a call, another task awaits it, or a seen wait is for
   it. An idle worker, or a task that parks forever, is not a deadlock.
2. A cut searches only waits that an earlier cut has seen, within a bound, and before the cut has references of its own. If the
   proof fails, it is tried again after twice the time. The result is a suspicion.
3. A proof is valid while all tasks that can reach the object are in the same waits, as no other party can get it.
   What the agent's own thread finds between cuts, like for a thread
   (:mod:`~stilltrue.runtime.waits.reachability.thread_waits`), counts as well: references from servers' methods, from the main
   module and from threads are accounted for, too, and tasks that only look at the object are left out.
4. The second look proves it again. A task to which nothing refers is garbage-collected sooner or later, which exits its blocks:
   that is doubt.
5. Tasks park if only they can reach what they wait for, one alone or several, such as idle workers at a queue that is never
   fed. They never do anything again, which may be intended, so they do not count as waiting. A task that awaits tasks
   (``gather``, ``wait``) does not park, as it goes on when they do. But the loop's main task, or one for which only that waits,
   does not count for a task that none but such tasks can wake, if it has the object in a variable and its code goes on to end
   no such wait. (The main task may do so where an interruption leads as well:
   :mod:`~stilltrue.runtime.waits.reachability.loops.cleanup`.) Nor does a task park that another of them is about to wake.
6. A task never parks at a full queue, or stream of anyio's, at a barrier, or while it waits for the items of a queue to be
   done: it depends on others, even if these have ended or forgotten it. Nor does one that awaits a future in a function of
   another that completes futures: it reads the answers, and waits for one. Nor does one that has registered what it awaits
   (:mod:`~stilltrue.runtime.waits.reachability.registered_answers`), or the main task of a loop at a queue whose item it
   uses. Such a task is considered whether or not another party depends on it, and waits for itself if no other task can reach
   its object.
7. A task that parks does not if one that does not park waits only for such. It waits for that one, too, which might feed it.
8. A consumer at an empty queue, or a task at a condition, does not park either if the main task of its loop waits only for the
   ends of such, itself or through other tasks: nobody feeds them any more, and the program was to go on after them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.introspection.frames import frames_of_threads, variables_of
from stilltrue.runtime.introspection.tasks import awaiters, blocking_future, read
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.parties import runs_loop
from stilltrue.runtime.waits.call_stack import sleeps, stack_of_task
from stilltrue.runtime.waits.reachability.awaited_objects import WHAT
from stilltrue.runtime.waits.reachability.loops.cleanup import only_cleans_up
from stilltrue.runtime.waits.reachability.loops.crossed_tasks import CrossedTasks, crossed
from stilltrue.runtime.waits.reachability.loops.waking import (
    awaits_grpc,
    forget_objects,
    is_notified,
    is_to_wake,
    may_end,
    names_ending,
    never_parks,
    takes_item,
)
from stilltrue.runtime.waits.reachability.task_reach import References, kept, reached_by, references_from
from stilltrue.runtime.waits.reachability.thread_waits import LOOK_SECONDS_MAX as LOOK_OF_THREADS_SECONDS_MAX
from stilltrue.runtime.waits.reachability.thread_waits import SEARCH_SECONDS_MAX, SOON_SECONDS, Proof, ShareOfTime
from stilltrue.runtime.waits.reachability.thread_waits import proved as proved_of
from stilltrue.runtime.waits.wait import SeenWait, Task

CUT_SECONDS_MAX = 0.01
LOOK_SECONDS_MAX = 0.2
"""Processor time for the search of what tasks can reach, at a cut and at a look."""
CANDIDATES_MAX, SEARCHED_MAX, TASKS_MAX, ENDERS_MAX = 200, 500, 2_000, 32
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.2, 60.0
SHARE_OF_TIME = 0.02
"""Largest share of the time to spend on searches at cuts."""


@dataclass(slots=True, eq=False)
class _Candidate:
    """A task in an otherwise unexplained wait for ``future``; ``enders``, each with the future it awaits, once proved."""

    task: OwnRef
    future: OwnRef
    due: float
    again: float = AGAIN_SECONDS
    enders: tuple[tuple[OwnRef, OwnRef | None], ...] = ()
    depended_on: bool = False
    proof: Proof | None = None
    """What the agent's own thread has proved."""
    proof_due: float = 0.0
    proof_again: float = AGAIN_SECONDS
    since: float = field(default_factory=time.time)

    def waits(self) -> bool:
        task, future = self.task(), self.future()
        return task is not None and future is not None and blocking_future(task) is future

    def proved(self) -> tuple[int | Task, ...]:
        """The tasks and threads that can end it, if each is still where it was (rule 3); empty if unknown."""
        found, at_cut = self._proved_between_cuts(), self.proved_at_cut()
        if found and at_cut and all(map(_awaits_tasks, set(at_cut).difference(found))):
            return at_cut  # the others wait for ends of tasks, and have the object in a variable
        return found or at_cut

    def proved_at_cut(self) -> tuple[Task, ...]:
        """The tasks that can end it, as a cut has found."""
        found = []
        for task, future in self.enders:
            ender = task()
            if ender is None or future is None or blocking_future(ender) is not future():
                return ()
            found.append(ender)
        return tuple(found)

    def _proved_between_cuts(self) -> tuple[int | Task, ...]:
        task, proof = self.task(), self.proof
        enders = None if proof is None else proof.enders(frames_of_threads() if proof.places else {})
        return (task,) if enders == () and task is not None else enders or ()


@dataclass(frozen=True, slots=True)
class ReportedTaskWait:
    """A party's wait that was reported at the newest cut, and its enders."""

    task: OwnRef
    future: OwnRef
    enders: frozenset[PartyName]


class TaskWaits:
    """The waits of one process's tasks."""

    def __init__(self) -> None:
        self._candidates: dict[int, _Candidate] = {}  # by the task's identity; several may await one future
        self._not_before = 0.0
        self._share = ShareOfTime()
        self._crossed = CrossedTasks()

    def crossed(self) -> set[Task]:
        """The tasks that wait for each other although no other party depends on them."""
        return self._crossed.tasks()

    def search(self) -> None:
        """Try the proofs that are due, within the share of time for them, on the agent's own thread."""
        self._crossed.search()
        now = time.monotonic()
        every = [one for _, one in items_of(self._candidates) if one.proof_due <= now] if self._share.has_some(now) else []
        known = [(task, one) for one in every if (task := one.task()) is not None and not awaits_grpc(task)]
        waiting = {task for _, one in items_of(self._candidates) if one.proved() and (task := one.task()) is not None}
        due = {task: one for task, one in known if one.waits() and _may_be_fewer(one.proved(), waiting)}
        if not due:
            return
        begun = time.thread_time()
        found = proved_of({task: one.future for task, one in due.items()}, begun + SEARCH_SECONDS_MAX)
        for task, one in due.items():
            one.proof, one.proof_due = found.get(task), now + one.proof_again
            one.proof_again = min(2 * one.proof_again, AGAIN_SECONDS_MAX)
        self._share.spend(time.thread_time() - begun)

    def is_due_soon(self) -> bool:
        """As for threads."""
        return any(one.proof is None and one.proof_again < SOON_SECONDS for _, one in items_of(self._candidates))

    def at_cut(self) -> dict[Task, SeenWait]:
        """The waits that are proved now (rule 2). Must be called before the cut reads anything."""
        now = time.monotonic()
        self._candidates = {key: one for key, one in self._candidates.items() if one.waits()}
        due = [one for one in self._candidates.values() if one.due <= now and not one.proved_at_cut()]
        if due and now >= self._not_before:
            begun = time.thread_time()
            self._search(due, now)
            self._not_before = now + (time.thread_time() - begun) / SHARE_OF_TIME
        reaching = [ender for one in self._candidates.values() if one.proof is not None for ender, _ in one.proof.tasks]
        for ender in reaching:
            self._candidate(ender, now)
        asked = {task: one for one in self._candidates.values() if (task := one.task()) is not None}
        proved = _without_mere_awaiters({task: frozenset(found) for task, one in asked.items() if (found := one.proved())})
        parking = parked(proved)
        consumers = _consumers_to_end(parking)
        parking -= consumers
        waits: dict[Task, SeenWait] = {}
        for task, enders in proved.items():
            others = tuple(one for one in enders if one is not task)
            left = tuple(one for one in others if one not in parking) or (() if task in parking else others)
            alone = enders == {task} and (task in consumers or never_parks(task))
            left = left or ((task,) if alone else ())
            if left and asked[task].depended_on:
                waits[task] = _seen(task, left, asked[task].since)
        return _with_idle_tasks(waits, proved, parking)

    def _search(self, due: Iterable[_Candidate], now: float) -> None:
        budget = Budget(CUT_SECONDS_MAX)
        found = _references(budget)
        todo = list(due)
        while todo:
            one = todo.pop()
            one.due, one.again = now + one.again, min(2 * one.again, AGAIN_SECONDS_MAX)
            reachers = () if found is None or budget.spent else _reachers(one.future, one.task, found)
            one.enders = tuple((OwnRef(task), _awaited_by(task)) for task in reachers or ())
            todo += [more for task, _ in one.enders if (more := self._candidate(task, now)) is not None]

    def _candidate(self, ender: Any, now: float) -> _Candidate | None:
        """A task that can reach an awaited object, as a further candidate, since it may park; None if it is not needed."""
        task = ender()
        future = None if task is None else blocking_future(task)
        if future is None or compat.is_task(future) or id(task) in self._candidates:
            return None
        if len(self._candidates) >= CANDIDATES_MAX:
            return None
        one = self._candidates[id(task)] = _Candidate(OwnRef(task), OwnRef(future), now)
        return one

    def remember(self, tasks: Iterable[tuple[Task, Any]]) -> None:
        """Store the tasks whose waits the next cuts search (rule 1), each with the future that it awaits."""
        now = time.monotonic()
        before, self._candidates = self._candidates, {}
        enders = (
            each for one in before.values() for each in (*one.enders, *(one.proof.tasks if one.proof is not None else ()))
        )
        reaching = {id(task()) for task, _ in enders}
        for task, future in tasks:
            if len(self._candidates) < CANDIDATES_MAX:
                known = before.get(id(task))
                same = known is not None and known.task() is task and known.future() is future
                one = known if known is not None and same else _Candidate(OwnRef(task), OwnRef(future), now)
                one.depended_on = True
                self._candidates[id(task)] = one
        for key, one in before.items():
            if key not in self._candidates and id(one.task()) in reaching and one.waits():
                one.depended_on = False
                self._candidates[key] = one

    def at_look(self, parties: Iterable[PartyName], reported: Mapping[PartyName, ReportedTaskWait]) -> ProvedEnders:
        """The enders of the ``reported`` waits of these parties (rule 4). Must be called before the look reads anything."""
        asked = {party: reported[party] for party in parties if party in reported}
        return self.proved(asked) if asked else ProvedEnders()

    def proved(self, asked: Mapping[PartyName, ReportedTaskWait]) -> ProvedEnders:
        """All waits of tasks whose enders are proved, ``asked`` for or not."""
        budget = Budget(LOOK_SECONDS_MAX)
        found = _references(budget)
        proved = {} if found is None or budget.spent else _proved(found, budget)
        del found
        proved |= _proved_of_others(asked, proved)
        named = {*proved, *(ender for enders in proved.values() for ender in enders if not isinstance(ender, int))}
        held = kept(named, _roots(), Budget(LOOK_SECONDS_MAX)) if named else set()
        lasting = {
            task for task, enders in proved.items() if all(isinstance(one, int) or id(one) in held for one in (task, *enders))
        }
        proved = {task: enders for task, enders in proved.items() if task in lasting}
        return ProvedEnders(asked, proved)


def _seen(task: Task, enders: Iterable[int | Task], since: float | None) -> SeenWait:
    return SeenWait(on=blocking_future(task), enders=tuple(enders), what=WHAT, once=True, reached=True, since=since)


def _with_idle_tasks(
    waits: dict[Task, SeenWait], proved: Mapping[Task, frozenset[int | Task]], parking: Container[Task]
) -> dict[Task, SeenWait]:
    """``waits``, those of tasks that do not park, with those of rule 7."""
    todo = list(waits)
    for task in todo:
        for idle in waits[task].enders or ():
            if isinstance(idle, asyncio.Task) and idle in parking and idle not in waits:
                feeders = (one for one, wait in waits.items() if idle in (wait.enders or ()))
                enders = dict.fromkeys((*(one for one in proved[idle] if one is not idle), *feeders))
                waits[idle] = _seen(idle, enders, waits[task].since)
                todo.append(idle)
    return waits


@dataclass(frozen=True, slots=True)
class ProvedEnders:
    """The result of the second look: the waits that it was ``asked`` about, and the enders of those that are proved."""

    asked: Mapping[PartyName, ReportedTaskWait] = field(default_factory=dict)
    enders: Mapping[Task, frozenset[int | Task]] = field(default_factory=dict)


def _proved_of_others(
    asked: Mapping[PartyName, ReportedTaskWait], proved: Mapping[Task, frozenset[int | Task]]
) -> dict[Task, frozenset[int | Task]]:
    """The tasks and threads that can end those of the waits ``asked`` about that are not ``proved``, or may be fewer."""
    every = ((task, one.future) for one in asked.values() if (task := one.task()) is not None)
    waiting = ((task, future) for task, future in every if future() is not None and blocking_future(task) is future())
    todo = {task: future for task, future in waiting if _may_be_fewer(proved.get(task, ()), proved)}
    found = proved_of(todo, time.thread_time() + LOOK_OF_THREADS_SECONDS_MAX) if todo else {}
    running = frames_of_threads() if found else {}
    enders = ((task, proof.enders(running)) for task, proof in found.items())
    return {task: frozenset(those or (task,)) for task, those in enders if those is not None}


def _proved(found: References, budget: Budget) -> dict[Task, frozenset[int | Task]]:
    """The waiting tasks for which it is proved which tasks can reach what they wait for."""
    proved: dict[Task, frozenset[int | Task]] = {}
    for task in found.pending()[:SEARCHED_MAX]:
        future = _awaited_by(task)
        reachers = None if future is None or budget.spent else _reachers(future, OwnRef(task), found)
        if reachers:
            proved[task] = frozenset(reachers)
    return proved


def _without_mere_awaiters(proved: Mapping[Task, frozenset[int | Task]]) -> dict[Task, frozenset[int | Task]]:
    """``proved``, with itself as the only ender of a task whose others only wait for ends of tasks (rule 5)."""
    try:
        alone = {task for task, enders in proved.items() if _only_others_await(task, enders)}
    finally:
        forget_objects()
    return {task: frozenset((task,)) if task in alone else enders for task, enders in proved.items()}


def _only_others_await(task: Task, enders: frozenset[int | Task]) -> bool:
    if takes_item(task) or never_parks(task):
        return False
    others = [one for one in enders if one is not task]
    return all(not isinstance(one, int) and _only_awaits(one, task) for one in others)


def _only_awaits(one: Task, waiting: Task) -> bool:
    """Whether ``one`` waits for tasks, on behalf of the main task alone, and does not go on to end the wait of ``waiting``."""
    if not _awaits_tasks(one) or not _is_for_main_task(one):
        return False
    return not may_end(one, waiting) or (runs_loop(one) and only_cleans_up(one, names_ending(waiting)))


def _is_for_main_task(task: Task) -> bool:
    """Whether only the main task of the loop waits for it, itself or through others: no call that is served, for one."""
    todo, seen = [task], {task}
    while todo:
        one = todo.pop()
        above = list(awaiters(one, through_shields=True))
        if not above and not runs_loop(one):
            return False
        todo += [each for each in above if each not in seen]
        seen.update(above)
    return True


def parked(proved: Mapping[Task, frozenset[int | Task]]) -> frozenset[Task]:
    """The tasks that park (rule 5), among those with proved enders."""
    try:
        found = {task for task, enders in proved.items() if not (_awaits_tasks(task) or _is_to_be_woken(task, enders))}
    finally:
        forget_objects()
    found -= crossed(map(stack_of_task, found))
    found = {task for task in found if not never_parks(task)}
    while gone := {task for task in found if not proved[task] <= found}:
        found -= gone
    return frozenset(found)


def _consumers_to_end(parking: Iterable[Task]) -> frozenset[Task]:
    """The consumers among parked tasks for whose ends the main task of their loop waits (rule 8)."""
    consumers = {task for task in parking if takes_item(task) or is_notified(task)}
    todo, seen, found = list(consumers), set[Task](), set[Task]()
    while todo:
        for one in awaiters(todo.pop(), through_shields=True):
            if one not in seen:
                seen.add(one)
                todo.append(one)
                found |= _awaited_consumers(one, consumers, frozenset()) if runs_loop(one) else set()
    return frozenset(found)


def _awaited_consumers(task: Task, consumers: Container[Task], above: frozenset[Task]) -> set[Task]:
    """The consumers for whose ends, and nothing else, a task waits; none if it waits for anything else."""
    future = blocking_future(task)
    awaited = None if future is None or task in above else read(task, future)
    found = set[Task]()
    for one in () if awaited is None else awaited.futures:
        more = {one} if one in consumers else set[Task]()
        more = more or (_awaited_consumers(one, consumers, above | {task}) if isinstance(one, asyncio.Task) else more)
        if not more:
            return set()
        found |= more
    return found


def _is_to_be_woken(task: Task, enders: frozenset[int | Task]) -> bool:
    return any(one is not task and is_to_wake(one, task) for one in enders if not isinstance(one, int))


def _awaits_tasks(task: Task) -> bool:
    future = blocking_future(task)
    return future is not None and read(task, future) is not None


def _reachers(future: OwnRef, task: OwnRef, found: References) -> list[Task] | None:
    """The tasks that can reach a future, without the waiting task unless it is the only one."""
    reachers = reached_by(id(future()), found)
    if reachers is None or len(reachers) > ENDERS_MAX:
        return None
    return [one for one in reachers if one is not task()] or reachers


def _may_be_fewer(enders: Iterable[int | Task], waiting: Container[Task]) -> bool:
    """Whether the search between cuts may find fewer enders: none are known, or one sleeps or is not among those ``waiting``.

    Such a task may only look at the object, or never read it again.
    """
    tasks = [one for one in enders if not isinstance(one, int)]
    return not tasks or any(one not in waiting or sleeps(stack_of_task(one).frames) for one in tasks)


def _awaited_by(task: Task) -> OwnRef | None:
    future = blocking_future(task)
    return None if future is None else OwnRef(future)


def _references(budget: Budget) -> References | None:
    """The references from all tasks; None if these cannot be read or are too many."""
    loops = dict.fromkeys(
        loop for frames in frames_of_threads().values() for one in frames if (loop := compat.loop_in(one)) is not None
    )
    tasks: list[Task] = []
    for loop in loops:
        of_loop = compat.tasks_of(loop)
        if of_loop is None:
            return None
        tasks += of_loop
    return references_from(tasks, budget) if len(tasks) <= TASKS_MAX else None


def _roots() -> Iterator[Any]:
    """The starting points of the search for tasks that are kept: threads, loops, and the application's modules."""
    threads = [frames for ident, frames in frames_of_threads().items() if ident != threading.get_ident()]
    loops = [frames for frames in threads if any(compat.loop_in(frame) is not None for frame in frames)]
    for frame in (one for frames in (*loops, *threads) for one in frames):
        yield from variables_of(frame).values()
        loop = compat.loop_in(frame)
        for handle in (compat.handles_of(loop) or ()) if loop is not None else ():
            callback, arguments = compat.callback_of(handle)
            yield from (callback, *arguments)
    for _, names in compat.modules_of_application():
        yield from names.values()
