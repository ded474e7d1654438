"""The party that acts now: the call that this thread or task serves, else the task, else the thread itself.

A thread that serves a call is found by thread, a task by task, never by what a context variable alone says: a thread or task
that a handler starts copies its context, and must not be taken for the handler, whose waits are its own. A handler that runs
an event loop of its own (``asyncio.run``) is the task that it runs the loop for; that loop's other tasks are parties of their
own.

Nothing is kept of threads, tasks and resources that are gone.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet, ref

from stilltrue.model import PartyName, ProcessName
from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.runtime.changing import items_of
from stilltrue.runtime.compat import current_task_of, is_run_for
from stilltrue.runtime.own_ref import OwnRef

Task = asyncio.Task[Any]


class _Here(threading.local):
    """Thread-local state."""

    serving: ServerCall | None = None
    own: PartyName | None = None


class Root:
    """The task that serves a call, its party, and the application's coroutine in it (None until it runs)."""

    __slots__ = ("coroutine", "served", "task")

    def __init__(self, task: Task, served: ServerCall) -> None:
        """``task`` serves the call ``served``."""
        self.task = task
        self.served = served
        self.coroutine: Any = None

    @property
    def party(self) -> PartyName:
        """The party that serves the call."""
        return self.served.party

    @property
    def deadline(self) -> float | None:
        """When (epoch) gRPC cancels the task."""
        return self.served.deadline


_every: list[ref[Parties]] = []
"""Those of all agents of this process."""


class Parties:
    """Names for the parties of one process. No lock: names are also given at the cut, and in finalizers.

    So its dictionaries are read in single steps (:mod:`stilltrue.runtime.changing`).
    """

    def __init__(self, process: ProcessName) -> None:
        """``process`` begins every name."""
        self.root: ContextVar[Root | None] = ContextVar("stilltrue_root", default=None)
        self.restart(process)
        _every.append(ref(self, _every.remove))

    def restart(self, process: ProcessName) -> None:
        """Start again, as after a fork."""
        self._process = process
        self.here = _Here()
        """``here.serving`` is the call that this thread serves, or None."""
        self.roots: dict[PartyName, Root] = {}
        """The calls that are served by tasks, by party."""
        self._names: dict[ref[Task], tuple[PartyName, PartyName | None, bool]] = {}
        """Of each task its name, the call that it is a part of, and whether it has acted: a look names tasks that have not."""
        self._acted: WeakSet[threading.Thread] = WeakSet()
        self._taken: dict[PartyName, ref[Task]] = {}
        self._threads: dict[PartyName, ref[threading.Thread]] = {}
        self._resources: dict[str, ref[object]] = {}
        self._numbers = itertools.count(1)

    @property
    def process(self) -> ProcessName:
        """The prefix of every name."""
        return self._process

    def now(self) -> PartyName:
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
            self._acted.add(thread)
        return own

    def of_running_task(self) -> PartyName | None:
        """The party of the task that runs this line; None: no task does. As :meth:`of_current`, in one step."""
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
        """The party of ``task``, which is the current one."""
        root = self.root.get()
        if root is not None and root.task is task:
            return root.party
        known = self._names.get(weak := ref(task))
        if known is not None:
            if not known[2]:
                self._names[weak] = (known[0], known[1], True)
            return known[0]
        served = self.here.serving
        if served is None or (root is not None and root.served is served):
            return self._name_task(task, root, acts=True)
        root = Root(task, served)
        if not _runs_loop(task):
            return self._name_task(task, self.roots.get(served.party, root), acts=True)
        self.root.set(root)
        self.roots[served.party] = root
        return served.party

    def of(self, task: Task, root: Root | None) -> PartyName:
        """The party of any task; one that never called or waited is named now, as a part of ``root``."""
        if root is not None and root.task is task:
            return root.party
        known = self._names.get(ref(task))
        return known[0] if known is not None else self._name_task(task, root)

    def root_of(self, task: Task, party: PartyName) -> Root | None:
        """The call being served that ``task`` (which is ``party``) serves, or was started by."""
        own = self.roots.get(party)
        if own is not None and own.task is task:
            return own
        known = self._names.get(ref(task))
        return None if known is None or known[1] is None else self.roots.get(known[1])

    def tasks(self) -> list[tuple[Task, PartyName]]:
        """Every live task that is known by name. Safe while other threads go on."""
        found = [(root.task, root.party) for root in list(self.roots.values()) if not root.task.done()]
        for weak, (name, _, _) in items_of(self._names):
            task = weak()
            if task is not None and not task.done():
                found.append((task, name))
        return found

    def knows(self, who: threading.Thread | Task) -> bool:
        """Whether this thread or task has called, waited or served. A name that a look gave is not enough."""
        if isinstance(who, threading.Thread):
            return who in self._acted
        known = self._names.get(ref(who))
        return (known is not None and known[2]) or any(root.task is who for root in list(self.roots.values()))

    def is_anothers(self, who: threading.Thread | Task) -> bool:
        """Whether only another agent of this process knows this thread or task: it is a party there."""
        others = [other for weak in list(_every) if (other := weak()) is not None and other is not self]
        return bool(others) and not self.knows(who) and any(other.knows(who) for other in others)

    def threads(self) -> list[tuple[PartyName, threading.Thread]]:
        """Every thread that is known by name and not gone. Safe while other threads go on."""
        return [(name, thread) for name, weak in items_of(self._threads) if (thread := weak()) is not None]

    def name_resource(self, kind: str, name: str, owner: object) -> str:
        """A globally unique name for a lock of this process, as long as ``owner`` lives."""
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
        return self._names.setdefault(weak, (name, None if root is None else root.party, acts))[0]

    def _forget(self, weak: ref[Task]) -> None:
        """A task is gone. Runs in a finalizer: single steps of a dictionary only."""
        known = self._names.pop(weak, None)
        if known is not None and self._taken.get(known[0]) is weak:
            self._taken.pop(known[0], None)

    def of_thread(self, thread: threading.Thread) -> PartyName:
        """The party of ``thread`` when it serves no call; one that never called or waited is named now."""
        for name, weak in items_of(self._threads):
            if weak() is thread:
                return name
        return PartyName(_claim(self._threads, f"{self._process}/thread:{thread.name}", thread, "-"))


def _claim(names: dict[Any, ref[Any]], plain: str, owner: Any, joint: str) -> str:
    """``plain``, with a number appended if a live party already has that name; free again when ``owner`` is gone."""

    def forget(weak: ref[Any]) -> None:  # runs in a finalizer: single steps of a dictionary only
        if names.get(name) is weak:
            names.pop(name, None)

    weak, name, count = ref(owner, forget), plain, 1
    while (other := names.setdefault(name, weak)) is not weak:
        if other() is None:  # gone, and not forgotten yet
            if names.get(name) is other:
                names.pop(name, None)
            continue
        count += 1
        name = f"{plain}{joint}{count}"
    return name


def _runs_loop(task: Task) -> bool:
    """Whether a thread is blocked in ``run_until_complete`` for this very task; False if unknown."""
    callbacks = getattr(task, "_callbacks", None) or ()
    return is_run_for(task) or any(getattr(entry[0], "__name__", "") == "_run_until_complete_cb" for entry in callbacks)
