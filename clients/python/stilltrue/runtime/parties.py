"""Names the current party: the call that this thread or task serves, else the task, else the thread.

A context variable alone never identifies a handler: the threads and tasks that a handler starts copy its context, but their
waits are not the handler's. So a thread that serves a call is found by thread, and a task by task. If a handler runs its own
event loop (``asyncio.run``), the handler is the task that the loop runs for; the loop's other tasks are separate parties.

Nothing is kept of threads, tasks and resources that are gone.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any
from weakref import ref

from stilltrue.model import PartyName, ProcessName
from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.runtime.calls.unanswered import UnansweredCalls
from stilltrue.runtime.compat import current_task_of, is_uvloop_main_task
from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.own_ref import OwnRef

Task = asyncio.Task[Any]


class _Here(threading.local):
    """Thread-local state."""

    serving: ServerCall | None = None
    own: PartyName | None = None


@dataclass(slots=True, eq=False)
class Root:
    """The task that serves a call, and the application's coroutine that it runs (None until it starts)."""

    task: Task
    served: ServerCall
    coroutine: Any = None

    @property
    def party(self) -> PartyName:
        """The party that serves the call."""
        return self.served.party

    @property
    def deadline(self) -> float | None:
        """When gRPC cancels the task (epoch)."""
        return self.served.deadline


_instances: list[ref[Parties]] = []
"""One for each agent of this process."""


class Parties:
    """The names of one process's parties.

    It has no lock, as the cut and finalizers use it too, so its dictionaries are read as
    :mod:`stilltrue.runtime.concurrent_reads` describes.
    """

    def __init__(self, process: ProcessName) -> None:
        """``process`` is the prefix of every name."""
        self.root: ContextVar[Root | None] = ContextVar("stilltrue_root", default=None)
        self.restart(process)
        _instances.append(ref(self, _instances.remove))

    def restart(self, process: ProcessName) -> None:
        """Start afresh after a fork."""
        self._process = process
        self.here = _Here()
        """``here.serving`` is the call that this thread serves, or None."""
        self.roots: dict[PartyName, Root] = {}
        """The calls that tasks serve, by party."""
        self.unanswered = UnansweredCalls()
        """The calls whose handler has ended without a status."""
        self._names: dict[ref[Task], tuple[PartyName, PartyName | None, float]] = {}
        """Each task's name, the call it is part of, and when it first acted (0: never; a look also names such tasks)."""
        self._acted: dict[ref[Any], float] = {}
        """When each thread first acted (monotonic)."""
        self._taken: dict[PartyName, ref[Task]] = {}
        self._threads: dict[PartyName, ref[threading.Thread]] = {}
        self._resources: dict[str, ref[object]] = {}
        self._numbers = itertools.count(1)

    @property
    def process(self) -> ProcessName:
        """The prefix of every name."""
        return self._process

    def current(self) -> PartyName:
        """The current party."""
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the documented way that does not raise
            task = asyncio.current_task()
            if task is not None:
                return self.of_current(task)
        here = self.here
        if here.serving is not None:
            return here.serving.party
        own = here.own
        if own is None:
            thread = threading.current_thread()
            own = here.own = self.of_thread(thread)
            acted = self._acted
            acted[OwnRef(thread, lambda weak: acted.pop(weak, None))] = monotonic()
        return own

    def of_running_task(self) -> PartyName | None:
        """The party of the running task, or None outside a task. A faster :meth:`of_current`."""
        loop = asyncio._get_running_loop()  # noqa: SLF001 - the documented way that does not raise
        task = None if loop is None else current_task_of(loop)
        if task is None:
            return None
        root = self.root.get()
        if root is not None and root.task is task:
            return root.served.party
        known = self._names.get(ref(task))
        return known[0] if known is not None and known[2] else self.of_current(task)

    def serving(self) -> ServerCall | None:
        """The call that the current party serves, or None."""
        served = self.here.serving
        if served is None and asyncio._get_running_loop() is not None:  # noqa: SLF001 - as above
            root = self.root.get()
            if root is not None and root.task is asyncio.current_task():
                return root.served
        return served

    def of_current(self, task: Task) -> PartyName:
        """The party of ``task``, which must be the current task."""
        root = self.root.get()
        if root is not None and root.task is task:
            return root.party
        known = self._names.get(weak := ref(task))
        if known is not None:
            if not known[2]:
                self._names[weak] = (known[0], known[1], monotonic())
            return known[0]
        served = self.here.serving
        if served is None or (root is not None and root.served is served):
            return self._name_task(task, root, acts=True)
        root = Root(task, served)
        if not runs_loop(task):
            return self._name_task(task, self.roots.get(served.party, root), acts=True)
        self.root.set(root)
        self.roots[served.party] = root
        return served.party

    def of_task(self, task: Task, root: Root | None) -> PartyName:
        """The party of any task. A task that has never called or waited is named now, as part of ``root``."""
        if root is not None and root.task is task:
            return root.party
        known = self._names.get(ref(task))
        return known[0] if known is not None else self._name_task(task, root)

    def of_any_task(self, task: Task) -> PartyName:
        """As :meth:`of_task`: the call that the task serves, if it serves one."""
        return self.of_task(task, next((root for root in list(self.roots.values()) if root.task is task), None))

    def root_of(self, task: Task, party: PartyName) -> Root | None:
        """The served call that ``task`` (whose party is ``party``) serves or was started by."""
        own = self.roots.get(party)
        if own is not None and own.task is task:
            return own
        known = self._names.get(ref(task))
        return None if known is None or known[1] is None else self.roots.get(known[1])

    def tasks(self) -> list[tuple[Task, PartyName]]:
        """Every live task that has a name. Safe while other threads run."""
        found = {root.task: root.party for root in list(self.roots.values()) if not root.task.done()}
        for weak, (name, _, _) in items_of(self._names):
            task = weak()
            if task is not None and not task.done():
                found.setdefault(task, name)  # one that serves a call may have had a name before
        return list(found.items())

    def knows(self, who: threading.Thread | Task) -> bool:
        """Whether this thread or task has called, waited or served. A name given by a look does not count."""
        if isinstance(who, threading.Thread):
            return OwnRef(who) in self._acted
        known = self._names.get(ref(who))
        return bool(known is not None and known[2]) or any(root.task is who for root in list(self.roots.values()))

    def first_acted(self, who: threading.Thread | Task) -> float | None:
        """When this thread or task first called or waited by itself, serving no call (monotonic); None: never."""
        if isinstance(who, threading.Thread):
            return self._acted.get(OwnRef(who))
        known = self._names.get(ref(who))
        return known[2] or None if known is not None else None

    def belongs_to_other_agent(self, who: threading.Thread | Task) -> bool:
        """Whether only another agent of this process knows this thread or task, so that it is a party there."""
        others = [other for weak in list(_instances) if (other := weak()) is not None and other is not self]
        return bool(others) and not self.knows(who) and any(other.knows(who) for other in others)

    def threads(self) -> list[tuple[PartyName, threading.Thread]]:
        """Every live thread that has a name. Safe while other threads run."""
        return [(name, thread) for name, weak in items_of(self._threads) if (thread := weak()) is not None]

    def name_resource(self, kind: str, name: str, owner: object) -> str:
        """A globally unique name for a resource of this process, reserved for as long as ``owner`` lives."""
        plain = f"{self._process}/{kind}:{name or next(self._numbers)}"
        return _claim(self._resources, plain, owner, "~")

    def _name_task(self, task: Task, root: Root | None, *, acts: bool = False) -> PartyName:
        plain = f"{self._process}/task:{task.get_name()}" if root is None else f"{root.party}.{task.get_name()}"
        weak = OwnRef(task, self._forget)
        name = PartyName(plain)
        count = 1
        while self._taken.setdefault(name, weak) is not weak:
            count += 1
            name = PartyName(f"{plain}~{count}")
        return self._names.setdefault(weak, (name, None if root is None else root.party, monotonic() if acts else 0.0))[0]

    def _forget(self, weak: ref[Task]) -> None:
        """Forget a task that is gone. Runs in a finalizer: single dictionary operations only."""
        known = self._names.pop(weak, None)
        if known is not None and self._taken.get(known[0]) is weak:
            self._taken.pop(known[0], None)

    def of_thread(self, thread: threading.Thread) -> PartyName:
        """The party of ``thread`` while it serves no call. A thread that has never called or waited is named now."""
        for name, weak in items_of(self._threads):
            if weak() is thread:
                return name
        return PartyName(_claim(self._threads, f"{self._process}/thread:{thread.name}", thread, "-"))


def end_of_current(by_task: bool = True) -> Callable[[], bool]:
    """A function that returns whether the current task (if ``by_task`` and there is one) or else the thread has ended."""
    task = asyncio.current_task() if by_task and asyncio._get_running_loop() is not None else None  # noqa: SLF001
    if task is not None:
        weak = OwnRef(task)
        return lambda: (still := weak()) is None or still.done()
    thread = threading.current_thread()
    return lambda: not thread.is_alive()


def _claim(names: dict[Any, ref[Any]], plain: str, owner: Any, separator: str) -> str:
    """Reserve ``plain``, with a number appended if a live party has that name, until ``owner`` is gone."""

    def forget(weak: ref[Any]) -> None:  # runs in a finalizer: single dictionary operations only
        if names.get(name) is weak:
            names.pop(name, None)

    weak, name, count = OwnRef(owner, forget), plain, 1
    while (other := names.setdefault(name, weak)) is not weak:
        if other() is None:  # gone, but not forgotten yet
            if names.get(name) is other:
                names.pop(name, None)
            continue
        count += 1
        name = f"{plain}{separator}{count}"
    return name


def runs_loop(task: Task) -> bool:
    """Whether a thread is blocked in ``run_until_complete`` for this task; False if unknown."""
    callbacks = getattr(task, "_callbacks", None) or ()
    return is_uvloop_main_task(task) or any(
        getattr(entry[0], "__name__", "") == "_run_until_complete_cb" for entry in callbacks
    )
