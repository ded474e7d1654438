"""What no happening tells, seen at the cut: which tasks a task awaits, by when its waits end by themselves, who may cancel it.

It runs in the thread that cuts, under the recorder's lock, while event loops run on in theirs; nothing is recorded meanwhile.
Each task is looked at twice: one that moved in between counts as able to move. On any doubt about a task, its waits count as
ending by themselves, so that doubt never makes a TRUE.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.observation import Observation
from stilltrue.protocol.report import LocalWait, PartyTarget
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.tasks import Awaited, Task, awaiters, blocking_future, group_of, read, timers

NUMBER_MIN = 2**52
"""Waits that are seen, not told, are numbered from here."""
TASKS_MAX = 10_000
"""Tasks looked at in one cut; when there are more, all are in doubt."""


@dataclass(slots=True)
class _Seen:
    """One task at the cut."""

    task: Task
    party: PartyName
    future: Any = None
    awaited: Awaited | None = None
    deadline: float | None = None
    rivals: tuple[Task, ...] = ()
    children: list[Task] = field(default_factory=list)
    others: list[Task] = field(default_factory=list)


class Observer:
    """Looks at the tasks of one process."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` knows the tasks."""
        self._parties = parties
        self._numbers: dict[int, tuple[Any, WaitNumber, float]] = {}
        self._seen: dict[WaitNumber, tuple[ref[Task], ref[Any]]] = {}
        self._next = NUMBER_MIN

    def __call__(self, now: float) -> Observation:
        """What is seen at the cut, which is taken ``now`` (epoch). Never raises."""
        known = self._parties.tasks()
        try:
            return self._observe(known, now)
        except Exception:  # noqa: BLE001 - on any doubt, every wait of every task may end by itself
            return Observation(deadlines={party: now for _, party in known})

    def _observe(self, known: list[tuple[Task, PartyName]], now: float) -> Observation:
        if not known:
            return Observation()
        if len(known) > TASKS_MAX:
            return Observation(deadlines={party: now for _, party in known})
        seen = self._look(known, now)
        for one in seen.values():  # the second look
            if one.future is not None and blocking_future(one.task) is not one.future:
                one.awaited, one.deadline = None, now
        self._pass_on_deadlines(seen)
        waits = self._waits(seen, now)
        deadlines = {one.party: one.deadline for one in seen.values() if one.deadline is not None}
        ways_out: dict[PartyName, tuple[PartyName, ...]] = {}
        for one in seen.values():
            if one.rivals:
                others = [seen.get(rival) for rival in one.rivals]
                if any(other is None for other in others):
                    deadlines[one.party] = now  # somebody unknown may cancel it
                else:
                    ways_out[one.party] = tuple(sorted(other.party for other in others if other is not None))
        return Observation(waits=waits, deadlines=deadlines, ways_out=ways_out)

    def lasts(self, number: WaitNumber) -> bool:
        """Whether the wait that was seen and numbered so is still the same: its task suspended on the same future."""
        known = self._seen.get(number)
        if known is None:
            return False
        task, future = known[0](), known[1]()
        return task is not None and future is not None and blocking_future(task) is future

    # -- looking -------------------------------------------------------------------------------------------------------

    def _look(self, known: list[tuple[Task, PartyName]], now: float) -> dict[Task, _Seen]:
        """Every task that is known, and those that these await, and so on."""
        clocks: dict[asyncio.AbstractEventLoop, tuple[dict[int, float] | None, float]] = {}
        seen: dict[Task, _Seen] = {}
        pending = list(known)
        while pending and len(seen) < TASKS_MAX:
            task, party = pending.pop()
            if task in seen:
                continue
            one = seen[task] = _Seen(task, party)
            try:
                self._look_at(one, clocks, now)
            except Exception:  # noqa: BLE001 - on any doubt the task may go on
                one.awaited, one.deadline, one.rivals, one.children, one.others = None, now, (), [], []
            root = self._parties.root_of(task, party)
            pending += [(other, self._parties.of(other, root)) for other in one.others if other not in seen]
        return seen

    def _look_at(self, one: _Seen, clocks: dict[Any, tuple[dict[int, float] | None, float]], now: float) -> None:
        task = one.task
        one.future = future = blocking_future(task)
        loop = task.get_loop()
        if task.cancelling() or (future is None and asyncio.current_task(loop) is not task):
            one.deadline = now
            return
        if future is None:  # it runs, or is blocked, and the loop with it, in a call that knows no loop
            return
        if loop not in clocks:
            clocks[loop] = (timers(loop), now - loop.time())
        timed, offset = clocks[loop]
        if timed is None:
            one.deadline = now
            return
        ends = [timed[id(task)] + offset] if id(task) in timed else []
        root = self._parties.root_of(task, one.party)
        if root is not None and root.task is not task:
            ends += [timed[id(root.task)] + offset] if id(root.task) in timed else []
            ends += [root.deadline] if root.deadline is not None else []
        one.awaited = read(task, future, root.coroutine if root is not None and root.task is task else None)
        if one.awaited is not None:
            one.children = [child for child in one.awaited.futures if isinstance(child, asyncio.Task)]
            if one.awaited.until is not None:
                ends.append(one.awaited.until + offset)
        group = group_of(task)
        if group is not None:
            one.rivals = tuple(other for other in (*group._tasks, group._parent_task) if other is not task)  # noqa: SLF001
        one.deadline = min(ends, default=None)
        one.others = [*one.children, *one.rivals, *awaiters(task)]

    def _pass_on_deadlines(self, seen: dict[Task, _Seen]) -> None:
        """A task that gives up at its deadline cancels what it awaits."""
        pending = [one for one in seen.values() if one.deadline is not None]
        while pending:
            one = pending.pop()
            for child in (seen[child] for child in one.children if child in seen):
                if child.deadline is None or (one.deadline is not None and one.deadline < child.deadline):
                    child.deadline = one.deadline
                    pending.append(child)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _waits(self, seen: dict[Task, _Seen], now: float) -> tuple[LocalWait, ...]:
        numbers: dict[int, tuple[Any, WaitNumber, float]] = {}
        waits = []
        known: dict[WaitNumber, tuple[ref[Task], ref[Any]]] = {}
        for one in seen.values():
            wait = self._wait(one, seen, numbers, now)
            if wait is not None:
                waits.append(wait)
                known[wait.number] = (ref(one.task), ref(one.future))
        self._numbers, self._seen = numbers, known
        return tuple(sorted(waits, key=lambda wait: wait.number))

    def _wait(
        self, one: _Seen, seen: dict[Task, _Seen], numbers: dict[int, tuple[Any, WaitNumber, float]], now: float
    ) -> LocalWait | None:
        awaited = one.awaited
        if awaited is None:
            return None
        tasks = [future for future in awaited.futures if isinstance(future, asyncio.Task)]
        among = tuple(PartyTarget(party=seen[task].party) for task in tasks if task in seen)
        if len(among) < len(tasks):
            return None
        if not among or (len(tasks) < len(awaited.futures) and not awaited.needs_all):
            return None  # something that is no task may come by itself
        before = self._numbers.get(id(one.future))
        if before is None or before[0]() is not one.future:
            before = (ref(one.future), WaitNumber(self._next), now)
            self._next += 1
        numbers[id(one.future)] = before
        return LocalWait(
            waiter=one.party,
            number=before[1],
            among=among,
            needs=len(among) if awaited.needs_all else 1,
            deadline=one.deadline,
            since=before[2],
        )
