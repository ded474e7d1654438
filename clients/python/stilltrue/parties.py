"""Who acts now: the call that this thread or task serves, else the task, else the thread itself.

A thread that serves a call is found by thread, a task by task, never by what a context variable alone says: a thread or task
that a handler starts copies its context, and must not be taken for the handler, whose waits are its own.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from stilltrue.model import PartyName, ProcessName

Task = asyncio.Task[Any]


class Root:
    """The task that serves a call, the party it is, and the application's coroutine in it (None until it runs)."""

    __slots__ = ("coroutine", "party", "task")

    def __init__(self, task: Task, party: PartyName) -> None:
        """``task`` serves the call; ``party`` is the call's name."""
        self.task = task
        self.party = party
        self.coroutine: Any = None


class Parties:
    """Names for the parties of one process."""

    def __init__(self, process: ProcessName) -> None:
        """``process`` begins every name."""
        self.root: ContextVar[Root | None] = ContextVar("stilltrue_root", default=None)
        self.restart(process)

    def restart(self, process: ProcessName) -> None:
        """Begin anew, as after a fork."""
        self._process = process
        self.here = threading.local()
        """``here.serving`` is the party that this thread serves a call as, or None."""
        self._names: WeakKeyDictionary[Task, PartyName] = WeakKeyDictionary()
        self._tasks: WeakValueDictionary[PartyName, Task] = WeakValueDictionary()
        self._threads: dict[PartyName, threading.Thread] = {}
        self._lock = threading.Lock()

    def now(self) -> PartyName:
        """The party that runs this line."""
        here = self.here
        try:
            serving: PartyName | None = here.serving
        except AttributeError:
            here.serving = serving = None
            here.own = None
        if serving is not None:
            return serving
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the documented way that does not raise
            task = asyncio.current_task()
            if task is not None:
                return self.of_current(task)
        own: PartyName | None = here.own
        if own is None:
            own = here.own = self._name_thread()
        return own

    def of_current(self, task: Task) -> PartyName:
        """The party of ``task``, which is the one that runs this line."""
        root = self.root.get()
        if root is not None and root.task is task:
            return root.party
        name = self._names.get(task)
        if name is not None:
            return name
        return self._name_task(task, f"{self._process}/task:" if root is None else f"{root.party}.")

    def of(self, task: Task) -> PartyName:
        """The party of any task; one that never called or waited is named here and now."""
        name = self._names.get(task)
        return name if name is not None else self._name_task(task, f"{self._process}/task:")

    def adopt(self, task: Task, party: PartyName) -> None:
        """``task`` is the party ``party``: it serves that call."""
        self._names[task] = party
        self._tasks[party] = task

    def task_of(self, party: PartyName) -> Task | None:
        """The live task that is this party, if one is."""
        return self._tasks.get(party)

    def tasks(self) -> list[tuple[Task, PartyName]]:
        """Every live task that is known by name."""
        return list(self._names.items())

    def _name_task(self, task: Task, prefix: str) -> PartyName:
        with self._lock:
            name = plain = PartyName(prefix + task.get_name())
            count = 1
            while self._tasks.get(name, task) is not task:
                count += 1
                name = PartyName(f"{plain}~{count}")
            self.adopt(task, name)
            return name

    def _name_thread(self) -> PartyName:
        thread = threading.current_thread()
        with self._lock:
            name = PartyName(f"{self._process}/thread:{thread.name}")
            other = self._threads.get(name)
            if other is not None and other is not thread and other.is_alive():
                return PartyName(f"{name}-{thread.ident}")
            self._threads[name] = thread
            return name
