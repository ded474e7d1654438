"""Reads a process's tasks at the cut: what each awaits, when that ends by itself, and which parties may cancel it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.intercepted import ends_beneath
from stilltrue.runtime.introspection.tasks import Awaited, Task, awaiters, blocking_future, read, siblings_of, timers
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.seen.scene import LiveScene
from stilltrue.runtime.seen.wait import SeenWait

TASKS_MAX = 10_000
"""Tasks read in one cut; when there are more, all are in doubt."""


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
    holder: tuple[PartyName, Task] | None = None
    rivals: tuple[Task, ...] = ()
    children: list[Task] = field(default_factory=list)
    others: list[Task] = field(default_factory=list)

    def may_go_on(self, now: float) -> None:
        """What it waits for is in doubt."""
        self.awaited, self.worker, self.wait, self.deadline = None, None, None, now


def read_tasks(known: list[tuple[Task, PartyName]], parties: Parties, now: float, scene: LiveScene) -> dict[Task, TaskAtCut]:
    """Every known task, and those it awaits, transitively; ``now`` (epoch). Each is read twice."""
    seen = _Reader(parties, now, scene).every(known)
    _hold(seen, scene)
    for one in seen.values():  # the second look
        if one.future is not None and blocking_future(one.task) is not one.future:
            one.may_go_on(now)
    _pass_on_deadlines(seen)
    _pass_on_rivals(seen)
    return seen


class _Reader:
    """Reads tasks, once each."""

    def __init__(self, parties: Parties, now: float, scene: LiveScene) -> None:
        self._parties = parties
        self._now = now
        self._scene = scene
        self._clocks: dict[asyncio.AbstractEventLoop, tuple[dict[int, float] | None, float]] = {}

    def every(self, known: list[tuple[Task, PartyName]]) -> dict[Task, TaskAtCut]:
        """Every known task, and those it awaits, transitively."""
        seen: dict[Task, TaskAtCut] = {}
        pending = list(known)
        while pending and len(seen) < TASKS_MAX:
            task, party = pending.pop()
            if task in seen:
                continue
            one = seen[task] = TaskAtCut(task, party)
            try:
                self._look_at(one)
            except Exception:  # noqa: BLE001 - on any doubt the task may go on
                one.may_go_on(self._now)
                one.rivals, one.children, one.others = (), [], []
            root = self._parties.root_of(task, party)
            pending += [(other, self._parties.of(other, root)) for other in one.others if other not in seen]
        return seen

    def _look_at(self, one: TaskAtCut) -> None:
        task = one.task
        one.future = future = blocking_future(task)
        loop = task.get_loop()
        if compat.is_being_cancelled(task) or (future is None and asyncio.current_task(loop) is not task):
            one.deadline = self._now
            return
        if future is None:  # it runs, or is blocked, and the loop with it, in a call that knows no loop
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
        ends += [self._now if end is None else end + offset for end in ends_beneath(future, timed)]
        one.awaited = read(task, future, root.coroutine if root is not None and root.task is task else None)
        if one.awaited is not None:
            tasks = [child for child in one.awaited.futures if isinstance(child, asyncio.Task)]
            one.children = [child for child in tasks if child not in one.awaited.shielded]
            one.others = tasks
            one.wait = self._scene.wait_of_task(task) if len(tasks) < len(one.awaited.futures) else None
            if one.awaited.until is not None:
                ends.append(one.awaited.until + offset)
        elif not isinstance(future, asyncio.Task):
            source = compat.source_of(future)
            ident = None if source is None else self._scene.runs_item(source)
            one.worker = None if ident is None else self._scene.party_of(ident)
            one.wait = self._scene.wait_of_task(task) if one.worker is None else None
            ends += [one.wait.until] if one.wait is not None and one.wait.until is not None else []
        one.rivals = siblings_of(task)
        one.deadline = min(ends, default=None)
        one.others += [*one.rivals, *awaiters(task)]

    def _clock_of(self, loop: asyncio.AbstractEventLoop) -> tuple[dict[int, float] | None, float]:
        """What a loop's timers end, and when by the loop's time (None: unknown); and the epoch's time less the loop's."""
        if loop not in self._clocks:
            self._clocks[loop] = timers(loop), self._now - compat.time_of(loop)
        return self._clocks[loop]


def _pass_on_deadlines(seen: dict[Task, TaskAtCut]) -> None:
    """A task that times out cancels what it awaits."""
    pending = [one for one in seen.values() if one.deadline is not None]
    while pending:
        one = pending.pop()
        for child in (seen[child] for child in one.children if child in seen):
            if child.deadline is None or (one.deadline is not None and one.deadline < child.deadline):
                child.deadline = one.deadline
                pending.append(child)


def _pass_on_rivals(seen: dict[Task, TaskAtCut]) -> None:
    """A task that is cancelled for its siblings' failure cancels what it awaits."""
    pending = [one for one in seen.values() if one.rivals and one.children]
    while pending:
        one = pending.pop()
        for child in (seen[child] for child in one.children if child in seen):
            more = tuple(rival for rival in one.rivals if rival is not child.task and rival not in child.rivals)
            if more:
                child.rivals += more
                pending.append(child)


def _hold(seen: dict[Task, TaskAtCut], scene: LiveScene) -> None:
    """Find the tasks that can do nothing before the one that blocks their loop goes on."""
    holders = {loop: (party, task) for loop, party, task in scene.loops().values()}
    for one in seen.values() if holders else ():
        holder = holders.get(one.task.get_loop())
        if holder is not None and holder[1] is not one.task:
            one.holder = holder
            if one.future is None and not compat.is_being_cancelled(one.task):
                one.deadline = None  # its turn has come, and does not yet
