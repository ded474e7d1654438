"""The threads and tasks of the process at one moment, for the resolvers. Each part is read once, on first use.

Rules:

1. The thread that runs an executor's item completes its future; a task of ``run_coroutine_threadsafe`` completes the future
   that it was made for. An event loop goes on when the task or callback that blocks its thread does: everything that has yet
   to run on the loop waits for its party.
2. A thread or task holds what its frames refer to (:mod:`~stilltrue.runtime.waits.frame_search`). If time runs out before the
   search is complete, nothing is found.
3. A thread or task that only another agent of this process knows is not a party here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import islice
from types import FrameType, MappingProxyType
from typing import Any

from stilltrue.model import ENDED, PartyName, ProcessName, party
from stilltrue.runtime import compat
from stilltrue.runtime.cached_attribute import CachedAttribute
from stilltrue.runtime.introspection.frames import frames_of_threads, innermost_frames_of_others
from stilltrue.runtime.introspection.origins import is_application, is_ours
from stilltrue.runtime.introspection.tasks import awaiters, awaits_tasks, read
from stilltrue.runtime.introspection.threads_and_tasks import blocked_loops, call_served_in
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.ways_out.reach import FAR_MAX
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.waits.call_stack import stack_of_task, where_is
from stilltrue.runtime.waits.frame_search import objects_held
from stilltrue.runtime.waits.futures.resolver import is_plain
from stilltrue.runtime.waits.holders.held_locks import held_by
from stilltrue.runtime.waits.reachability.awaited_objects import awaited_in
from stilltrue.runtime.waits.reachability.loops.stopped_loops import has_stopped
from stilltrue.runtime.waits.reachability.loops.waking import never_parks
from stilltrue.runtime.waits.reachability.serving import serves_until_stopped
from stilltrue.runtime.waits.reachability.thread_waits import CANDIDATES_MAX, without_parked
from stilltrue.runtime.waits.registry import is_of_shells, resolve
from stilltrue.runtime.waits.resolvers.event_loops.cycles import tasks_in_cycles
from stilltrue.runtime.waits.resolvers.executors import queued_items
from stilltrue.runtime.waits.resolvers.locks import is_manager_lock, is_shared_lock
from stilltrue.runtime.waits.wait import CallStack, Elsewhere, EndedHolder, Ender, Queued, SeenWait, T, Task

TASKS_MAX = 1_000
"""Number of tasks of one loop that are read; the others count as active."""
WALK_SECONDS_MAX = 0.02
"""Processor time for the search of what threads and tasks hold."""


@dataclass(slots=True)
class _LocksHeld:
    """By lock identity: the holders, the locks of multiprocessing, and the exit stacks through which holders entered."""

    inside: dict[int, list[Ender]] = field(default_factory=dict)
    shared: dict[int, Any] = field(default_factory=dict)
    exit_stacks: dict[int, list[Any]] = field(default_factory=dict)


class LiveProcessView:
    """Reads the process as it is now, each part on first use."""

    def __init__(
        self,
        parties: Parties,
        now: float,
        walk_seconds_max: float | None = None,
        reached: Mapping[Task, SeenWait] = MappingProxyType({}),
        left: Mapping[int, int] = MappingProxyType({}),
        signalled: Mapping[int, SeenWait] = MappingProxyType({}),
    ) -> None:
        """``parties`` names the threads and tasks; ``now`` is the time (epoch).

        ``walk_seconds_max``: processor time for the search of what they hold (None: that of a cut). ``reached``: the waits of
        tasks that no resolver explains, resolved by who can reach what they wait for. ``left``: by lock identity, the proved
        number of holders, which is 0 for most. ``signalled``: as ``reached``, by thread.
        """
        self._signalled = signalled
        self._left = left
        self.partly_held: dict[int, tuple[Any, list[CallStack]]] = {}
        """The locks and semaphores whose holders were not all found, each with the stacks that wait for it."""
        self._reached = reached
        self._walk_seconds_max = walk_seconds_max
        self._walked_seconds = 0.0
        self._parties = parties
        self.now = now
        self._stacks: dict[int, CallStack] | None = None
        self._made: dict[object, Any] = {}
        self._parties_of: dict[int, PartyName | None] = {}
        self._where: dict[int, tuple[object, ...]] = {}
        self._where_after: dict[int, tuple[object, ...]] = {}
        self._waits: dict[Task, SeenWait | None] = {}

    @property
    def process(self) -> ProcessName:
        """The name of the process."""
        return self._parties.process

    def epoch(self, monotonic: float) -> float:
        """The time (epoch) of a reading of ``time.monotonic()``."""
        return self.now + monotonic - time.monotonic()

    # -- stacks and waits ----------------------------------------------------------------------------------------------

    def stacks(self) -> Mapping[int, CallStack]:
        """Every thread except the current one, by its identity."""
        if self._stacks is None:
            own = threading.get_ident()
            self._where = {ident: where_is(ident, frames[0]) for ident, frames in self._frames.items()}
            self._stacks = {ident: CallStack(tuple(frames), ident) for ident, frames in self._frames.items() if ident != own}
        return self._stacks

    def stacks_of_tasks(self) -> Mapping[Task, CallStack]:
        """The tasks of all running loops. A running task has no frames here."""
        return self._stacks_of_tasks

    @CachedAttribute
    def _stacks_of_tasks(self) -> dict[Task, CallStack]:
        loops = {loop: None for frames in self._frames.values() for _, loop in compat.loops_in(frames)}
        tasks = (task for loop in loops for task in compat.first_tasks_of(loop, TASKS_MAX))
        return {task: stack_of_task(task) for task in tasks}

    def wait_of(self, stack: CallStack) -> SeenWait | None:
        """The wait of the thread or task with this stack; None if unknown."""
        found = resolve(stack, self)
        if stack.task is not None or stack.ident not in self._signalled or not self._may_be_reached(found, stack):
            return found
        reached = self._unparked.get(stack.ident)
        if reached is None or found is None:
            return reached or found
        names, anywhere = found.ending_names, found.ending_names_anywhere
        return replace(reached, ended_through=found.ended_through, ending_names=names, ending_names_anywhere=anywhere)

    @CachedAttribute
    def _unparked(self) -> Mapping[int, SeenWait]:
        frames = {ident: one.frames for ident, one in self.stacks().items()}
        waits = {ident: wait for ident, wait in self._signalled.items() if not serves_until_stopped(frames.get(ident, ()))}
        return without_parked(waits, frames, self._depended_on())

    def unexplained(self) -> list[CallStack]:
        """The first threads that wait for a signal of unknown parties."""
        waiting = (one for one in self.stacks().values() if awaited_in(one.ident, one.frames) is not None)
        return [one for one in islice(waiting, CANDIDATES_MAX) if self._may_be_reached(resolve(one, self), one)]

    def _may_be_reached(self, wait: SeenWait | None, stack: CallStack) -> bool:
        """Whether a wait counts as one for the parties that can reach something.

        Also one at a child that waits for them, and one for a future that nobody is known to complete, or for a task whose loop
        nobody runs.
        """
        if _is_unknown(wait) or (wait is not None and wait.at_child):
            return True
        on = None if wait is None else wait.on
        if stack.task is not None or not isinstance(on, Future) or wait is None or wait.enders != (on,):
            return False
        return has_stopped(compat.source_of(on)) or (self.party_of(on) is None and is_plain(on))

    def _depended_on(self) -> set[int]:
        """The threads that serve a call, can end another party's wait, or block an event loop with other tasks."""
        found = {ident for ident, stack in self.stacks().items() if call_served_in(list(stack.frames))[0] is not None}
        waits = [*(resolve(one, self) for one in self.stacks().values()), *map(self.wait_of_task, self.stacks_of_tasks())]
        for ender in (one for wait in waits if wait is not None for one in wait.enders or ()):
            if isinstance(ender, Future):
                found.add(self.thread_running(ender) or 0)
            elif isinstance(ender, int | threading.Thread):
                found.add(ender if isinstance(ender, int) else ender.ident or 0)
        items = (compat.source_of(one.future) for one in self.stacks_of_tasks().values() if one.future is not None)
        found |= {self.thread_running(one) or 0 for one in items if isinstance(one, Future)}
        found |= {ident for ident, (loop, _, _) in self._held_loops.items() if len(compat.tasks_of(loop) or ()) > 1}
        return found

    def blocked(self) -> list[tuple[PartyName, CallStack, SeenWait]]:
        """The threads in a wait that a resolver knows."""
        found = []
        for ident, stack in self.stacks().items():
            wait = self.wait_of(stack)
            party = None if wait is None else self.party_of(ident)
            if wait is not None and party is not None:
                found.append((party, stack, wait))
        return found

    def blocked_tasks(self, known: Mapping[Task, PartyName], waits: Iterable[SeenWait]) -> list[tuple[Task, PartyName]]:
        """The tasks, except ``known``, that are in a known wait, end one of these or of ``waits``, or await in a cycle."""
        own = {task: wait for task in self.stacks_of_tasks() if (wait := self.wait_of_task(task)) is not None}
        ended_by = (ender for wait in (*own.values(), *waits) for ender in wait.enders or ())
        enders = (_task_of(ender) for ender in ended_by if not isinstance(ender, Elsewhere))
        ending = (one for one in enders if isinstance(one, asyncio.Task) and not one.done())
        found = dict.fromkeys((*own, *ending, *tasks_in_cycles(self.stacks_of_tasks())))
        return [(task, party) for task in found if task not in known and (party := self._of_task(task)) is not None]

    def wait_of_task(self, task: Task) -> SeenWait | None:
        """The wait of a suspended task; None if unknown."""
        if task not in self._waits:
            stack = self.stacks_of_tasks().get(task) or stack_of_task(task)
            self._waits[task] = self._find_wait(task, stack) if stack.future is not None else None
        return self._waits[task]

    def _find_wait(self, task: Task, stack: CallStack) -> SeenWait | None:
        found = resolve(stack, self)
        return self._reached.get(task, found) if _is_unknown(found) else found

    def unexplained_tasks(self, blocked: Iterable[SeenWait], served: Container[Task]) -> Iterator[tuple[Task, Any]]:
        """The tasks that serve a call, or on which others depend, and that are suspended on an unexplained future.

        ``blocked``: the waits of threads; ``served``: the tasks that serve calls, or write the requests of one.
        """
        named = _named_by(wait for wait in (*self._waits.values(), *blocked) if wait is not None)
        for task, stack in self.stacks_of_tasks().items():
            wait = self._waits.get(task)
            explained = wait is not None and not wait.reached and (wait.enders is not None or wait.until is not None)
            if stack.future is None or explained or compat.is_task(stack.future) or compat.is_gathering(stack.future):
                continue
            depended_on = task in named or task in served or awaiters(task, through_shields=True)
            if (depended_on or never_parks(task)) and _may_be_searched(stack):
                yield task, stack.future

    # -- parties -------------------------------------------------------------------------------------------------------

    def party_of(self, who: Ender) -> PartyName | None:
        """The party of a thread or task, or the party that completes a future; None if unknown."""
        if isinstance(who, str | EndedHolder):
            return who if isinstance(who, str) else party(self._parties.process, f"{ENDED}{who.name}")
        if isinstance(who, int):
            return self.loops[who][1] if who in self.loops else self._of_thread(who)
        if isinstance(who, threading.Thread):
            return None if who.ident is None else self._of_thread(who.ident)
        if isinstance(who, asyncio.Task):
            return self._of_task(who)
        source = compat.source_of(who)
        if compat.is_task(source):
            return self._of_task(source)
        worker = self.thread_running(who)
        return self._begun_by(who) if worker is None else self._of_thread(worker)

    @CachedAttribute
    def loops(self) -> dict[int, tuple[asyncio.AbstractEventLoop, PartyName, Any]]:
        """By thread: each blocked loop, the party that blocks it, and the task or the handle that it runs."""
        return {ident: found for ident, found in self._held_loops.items() if self._stays(ident)}

    @CachedAttribute
    def _held_loops(self) -> dict[int, tuple[asyncio.AbstractEventLoop, PartyName, Any]]:
        """As :meth:`loops`, with those whose step may be at work: passing a lock, or in a library that waits now and then."""
        return blocked_loops(self._parties, self._frames)

    def _stays(self, ident: int) -> bool:
        """Whether the step of a loop's thread is in a wait of the agent's shells, or in one whose enders are known."""
        stack = self.stacks()[ident]
        wait = self._signalled.get(ident) or resolve(stack, self)
        return (wait is not None and wait.enders is not None) or any(is_ours(frame.f_code) for frame in stack.frames)

    def thread_running(self, future: Any) -> int | None:
        """The thread that runs the executor's item of this future, or None."""
        known = self._items.get(id(future))
        return None if known is None else known[1]

    @CachedAttribute
    def _items(self) -> dict[int, tuple[Any, int]]:
        """By identity of its future: each executor item that a thread runs (kept, so that the identity stays its own)."""
        items = ((item, ident) for ident, frames in self._frames.items() for item in compat.running_items(frames))
        return {id(item): (item, ident) for item, ident in items}

    def _of_thread(self, ident: int) -> PartyName | None:
        """The call that a thread serves, else the thread; None if it belongs to another agent."""
        if ident not in self._parties_of:
            self._parties_of[ident] = self._find_party(ident)
        return self._parties_of[ident]

    def _find_party(self, ident: int) -> PartyName | None:
        served, of, _ = call_served_in(self._frames.get(ident, []))
        if served is not None:
            return served.party if of is self._parties else None
        thread = self._threads.get(ident)
        if thread is None or thread is threading.current_thread() or self._parties.belongs_to_other_agent(thread):
            return None
        return self._names.get(id(thread)) or self._parties.of_thread(thread)

    @CachedAttribute
    def _threads(self) -> dict[int, threading.Thread]:
        return compat.threads()

    @CachedAttribute
    def _names(self) -> dict[int, PartyName]:
        return {id(thread): name for name, thread in self._parties.threads()}

    def _of_task(self, task: Task) -> PartyName | None:
        """The party of a task; None if it belongs to another agent."""
        if self._parties.belongs_to_other_agent(task):
            return None
        return self._parties.of_any_task(task)

    def _begun_by(self, future: Any) -> PartyName | None:
        """The party that blocks the loop on which the coroutine that completes a future has yet to begin; None if unknown."""
        for loop, holder, _ in self.loops.values():
            if any(compat.starts_coroutine_of(future, handle) for handle in compat.handles_of(loop) or ()):
                return holder
        return None

    def has_run(self, ident: int) -> bool:
        """Whether a thread has run since it was read."""
        return self._where.get(ident) != self.where_now(ident)

    def where_now(self, ident: int) -> tuple[object, ...]:
        """A thread's position at the first call of this method, which comes after the waits have been read."""
        if ident not in self._where_after:
            self._where_after[ident] = where_is(ident, self._frames_after.get(ident))
        return self._where_after[ident]

    @CachedAttribute
    def _frames_after(self) -> dict[int, FrameType]:
        return innermost_frames_of_others()

    # -- holders (rule 2) ----------------------------------------------------------------------------------------------

    def holders(self, things: Iterable[Any]) -> Mapping[int, frozenset[Ender]]:
        """By ``id`` of each thing, the threads and tasks whose frames refer to it."""
        wanted = {id(thing): thing for thing in things}
        found = dict.fromkeys(wanted, frozenset[Ender]())
        found.update({id(thing): who for thing, who in self.find(lambda thing: id(thing) in wanted)})
        return found

    def find(self, wanted: Callable[[Any], bool], far: int = FAR_MAX) -> list[tuple[Any, frozenset[Ender]]]:
        """The objects in frames for which ``wanted`` is true, each with the threads and tasks whose frames refer to it.

        ``far``: how many objects are opened for each, first those of the application's own code; with few, only those.
        """
        begun = time.thread_time()
        budget = Budget(max(0.0, (self._walk_seconds_max or WALK_SECONDS_MAX) - self._walked_seconds))
        things: dict[int, Any] = {}
        who: dict[int, set[Ender]] = {}
        for stack in (*self.stacks().values(), *self.stacks_of_tasks().values()):
            for thing in objects_held(stack.frames, wanted, budget, far):
                things[id(thing)] = thing
                who.setdefault(id(thing), set()).add(self._as_task(stack))
            if budget.spent:
                break
        self._walked_seconds += time.thread_time() - begun
        if budget.spent:
            return []
        return [(thing, frozenset(who[key])) for key, thing in things.items()]

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """The result of ``make`` for this key, computed once per view."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def inside(self, wanted: Any) -> tuple[Ender, ...]:
        """The threads and tasks that hold this lock or semaphore, inside one of its ``with`` or ``async with`` blocks."""
        return tuple(self._locks_held.inside.get(id(wanted), ()))

    def shared_locks(self) -> list[tuple[Any, tuple[Ender, ...]]]:
        """The locks of multiprocessing and its managers that threads and tasks hold, each with its holders."""
        return [(lock, self.inside(lock)) for lock in self._locks_held.shared.values()]

    def exit_stacks(self, lock: Any) -> tuple[Any, ...]:
        """The ``ExitStack`` objects through which its holders entered this lock or semaphore."""
        return tuple(self._locks_held.exit_stacks.get(id(lock), ())) if self.inside(lock) else ()

    @CachedAttribute
    def _locks_held(self) -> _LocksHeld:
        found = _LocksHeld()
        released: set[int] = set()
        for stack in (*self.stacks().values(), *self.stacks_of_tasks().values()):
            held, elsewhere = held_by(stack)
            for lock, kept in held:
                found.inside.setdefault(id(lock), []).append(self._as_task(stack))
                if is_shared_lock(lock) or is_manager_lock(lock):
                    found.shared[id(lock)] = lock
                if kept is not None:
                    found.exit_stacks.setdefault(id(lock), []).append(kept)
            released.update(map(id, elsewhere))
        for lock_id in released:
            found.inside.pop(lock_id, None)
        return found

    def has_no_other_holders(self, lock: Any, stack: CallStack) -> bool:
        """Whether it is proved that only the parties inside hold this lock or semaphore; ``stack`` waits for it."""
        stacks = self.partly_held.setdefault(id(lock), (lock, []))[1]
        if not any(one is stack for one in stacks):
            stacks.append(stack)
        return self._left.get(id(lock)) == len(self.inside(lock))

    def needing_proof(self) -> dict[int, tuple[Any, list[CallStack]]]:
        """The entries of ``partly_held`` whose known holders are all blocked: the others make progress anyway."""
        return {key: one for key, one in self.partly_held.items() if all(map(self._is_blocked, self.inside(one[0])))}

    def _is_blocked(self, who: Ender) -> bool:
        if isinstance(who, asyncio.Task):
            known = self.stacks_of_tasks().get(who)
            return (known is not None and awaits_tasks(known.future, known.frames)) or self.wait_of_task(who) is not None
        stack = self.stacks().get(who) if isinstance(who, int) else None
        return stack is not None and (self.wait_of(stack) is not None or is_of_shells(stack.frames))

    def read_all(self) -> None:
        """Read the waits of all threads and tasks."""
        for stack in self.stacks().values():
            self.wait_of(stack)
        for task in self.stacks_of_tasks():
            self.wait_of_task(task)

    def queued(self, future: Any) -> Queued | None:
        """The item of this future in the queue of an executor whose threads are all busy; None if there is none."""
        return self._queued.get(id(future))

    @CachedAttribute
    def _queued(self) -> dict[int, Queued]:
        return queued_items(self.stacks().values())

    def _as_task(self, stack: CallStack) -> Ender:
        """The thread or task of this stack; for a thread whose loop a task blocks, that task."""
        step = self._held_loops[stack.ident][2] if stack.ident in self._held_loops else None
        return step if isinstance(step, asyncio.Task) else stack.who

    @CachedAttribute
    def _frames(self) -> dict[int, list[FrameType]]:
        return frames_of_threads()


def _is_unknown(wait: SeenWait | None) -> bool:
    return wait is None or (wait.enders is None and wait.until is None)


def _named_by(waits: Iterable[SeenWait]) -> set[Any]:
    """The enders of these waits."""
    return {_task_of(one) for wait in waits for one in wait.enders or () if not isinstance(one, Elsewhere)}


def _may_be_searched(stack: CallStack) -> bool:
    """Whether a task may wait for a signal: not for a time, not for a call, nor in a known kind of wait."""
    task = stack.task
    if task is None or not stack.frames or compat.task_waits_at(task) is None:
        return False
    of_shells = is_ours(stack.frames[0].f_code) or (
        len(stack.frames) > 1 and is_ours(stack.frames[1].f_code) and not is_application(stack.frames[0].f_code)
    )
    return read(task, stack.future) is None and not of_shells


def _task_of(ender: Ender) -> Any:
    """The task that completes a future; any other ender itself."""
    return compat.source_of(ender) if isinstance(ender, Future) else ender
