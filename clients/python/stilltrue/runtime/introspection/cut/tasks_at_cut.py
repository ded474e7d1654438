"""Reads a process's tasks at the cut: what each awaits, when that ends by itself, and which parties may cancel it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.cut.client_interceptors import interceptor_deadlines, interceptor_tasks
from stilltrue.runtime.introspection.tasks import Awaited, Task, awaiters, blocking_future, read, siblings_of, timers
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.wait import SeenWait

TASKS_MAX = 10_000
"""Maximum number of tasks read in one cut; beyond it, all are in doubt."""


@dataclass(slots=True)
class TaskAtCut:
    """One task at the cut."""

    task: Task
    party: PartyName
    future: Any = None
    awaited: Awaited | None = None
    deadline: float | None = None
    worker: PartyName | None = None
    wait: SeenWait | None = None
    holder: tuple[PartyName, Task | asyncio.Handle] | None = None
    cancellers: tuple[Task, ...] = ()
    children: list[Task] = field(default_factory=list)
    others: list[Task] = field(default_factory=list)

    def set_in_doubt(self, now: float) -> None:
        """Treat its wait as able to end now."""
        self.awaited, self.worker, self.wait, self.deadline = None, None, None, now


def read_tasks(
    known: list[tuple[Task, PartyName]], parties: Parties, now: float, view: LiveProcessView
) -> dict[Task, TaskAtCut]:
    """Read all known tasks and, transitively, those they await, each twice; ``now`` is epoch time."""
    seen = _Reader(parties, now, view).read_all(known)
    _find_blocking_holders(seen, view)
    for one in seen.values():  # the second look
        if one.future is not None and blocking_future(one.task) is not one.future:
            one.set_in_doubt(now)
    _propagate_deadlines(seen)
    _propagate_rivals(seen)
    return seen


class _Reader:
    """Reads each task once."""

    def __init__(self, parties: Parties, now: float, view: LiveProcessView) -> None:
        self._parties = parties
        self._now = now
        self._scene = view
        self._clocks: dict[asyncio.AbstractEventLoop, tuple[dict[int, float] | None, float]] = {}

    def read_all(self, known: list[tuple[Task, PartyName]]) -> dict[Task, TaskAtCut]:
        """Read all known tasks and, transitively, those they await."""
        seen: dict[Task, TaskAtCut] = {}
        pending = list(known)
        names = dict(known)  # those that serve calls among them, whichever task is found to lead to one first
        while pending and len(seen) < TASKS_MAX:
            task, party = pending.pop()
            if task in seen:
                continue
            one = seen[task] = TaskAtCut(task, party)
            try:
                self._look_at(one)
            except Exception:  # noqa: BLE001 - in doubt the task may continue
                one.set_in_doubt(self._now)
                one.cancellers, one.children, one.others = (), [], []
            root = self._parties.root_of(task, party)
            others = [other for other in one.others if other not in seen]
            pending += [(other, names.get(other) or self._parties.of_task(other, root)) for other in others]
        return seen

    def _look_at(self, one: TaskAtCut) -> None:
        task = one.task
        one.future = future = blocking_future(task)
        loop = task.get_loop()
        if compat.is_being_cancelled(task) or (future is None and asyncio.current_task(loop) is not task):
            one.deadline = self._now
            return
        if future is None:  # it runs, or blocks the loop in a call that knows no loop
            return
        timed, offset = self._clock_of(loop)
        if timed is None:
            one.deadline = self._now
            return
        ends = [timed[id(task)] + offset] if id(task) in timed else []
        root = self._parties.root_of(task, one.party)
        if root is not None and root.task is not task:
            ends += [timed[id(root.task)] + offset] if id(root.task) in timed else []
            ends += [root.deadline] if root.deadline is not None else []
        interceptors = interceptor_tasks(future)
        found = interceptor_deadlines(interceptors, timed, self._is_in_known_wait)
        ends += [self._now if end is None else end + offset for end in found]
        coroutine = root.coroutine if root is not None and root.task is task else None
        one.awaited = read(task, future, coroutine)
        if interceptors is not None and (interceptors.others or self._is_in_known_wait(task)):
            one.awaited = Awaited((future,))  # the call, or a request, has not been sent yet, and waits for their task
        if one.awaited is not None:
            tasks = [child for child in one.awaited.futures if isinstance(child, asyncio.Task)]
            one.children = [child for child in tasks if child not in one.awaited.shielded]
            one.others = tasks
            one.wait = self._scene.wait_of_task(task) if len(tasks) < len(one.awaited.futures) else None
            if one.awaited.until is not None:
                ends.append(one.awaited.until + offset)
        else:
            source = None if isinstance(future, asyncio.Task) else compat.source_of(future)
            ident = None if source is None else self._scene.thread_running(source)
            one.worker = None if ident is None else self._scene.party_of(ident)
            one.wait = self._scene.wait_of_task(task) if one.worker is None else None
            ends += [one.wait.until] if one.wait is not None and one.wait.until is not None else []
        one.cancellers = siblings_of(task, coroutine)
        one.deadline = min(ends, default=None)
        one.others += [*one.cancellers, *awaiters(task)]

    def _is_in_known_wait(self, task: Task) -> bool:
        wait = self._scene.wait_of_task(task)
        return wait is not None and bool(wait.enders)

    def _clock_of(self, loop: asyncio.AbstractEventLoop) -> tuple[dict[int, float] | None, float]:
        """The loop times at which a loop's timers end tasks (None: unknown), and the epoch's offset from the loop's clock."""
        if loop not in self._clocks:
            self._clocks[loop] = timers(loop), self._now - compat.time_of(loop)
        return self._clocks[loop]


def _propagate_deadlines(seen: dict[Task, TaskAtCut]) -> None:
    """Propagate deadlines: a task that times out cancels what it awaits."""
    pending = [one for one in seen.values() if one.deadline is not None]
    while pending:
        one = pending.pop()
        for child in (seen[child] for child in one.children if child in seen):
            if child.deadline is None or (one.deadline is not None and one.deadline < child.deadline):
                child.deadline = one.deadline
                pending.append(child)


def _propagate_rivals(seen: dict[Task, TaskAtCut]) -> None:
    """Propagate cancellers: a task cancelled because a sibling failed cancels what it awaits."""
    pending = [one for one in seen.values() if one.cancellers and one.children]
    while pending:
        one = pending.pop()
        for child in (seen[child] for child in one.children if child in seen):
            more = tuple(rival for rival in one.cancellers if rival is not child.task and rival not in child.cancellers)
            if more:
                child.cancellers += more
                pending.append(child)


def _find_blocking_holders(seen: dict[Task, TaskAtCut], view: LiveProcessView) -> None:
    """Find the tasks that cannot run before the task or callback that blocks their loop continues."""
    holders = {loop: (party, step) for loop, party, step in view.loops.values()}
    for one in seen.values() if holders else ():
        holder = holders.get(one.task.get_loop())
        if holder is not None and holder[1] is not one.task:
            one.holder = holder
            if one.future is None and not compat.is_being_cancelled(one.task):
                one.deadline = None  # its turn has come but cannot be taken yet
