"""What a resolver is given, and what it returns: where a party stands, what that waits for, and which parties can end the wait.

Rules for resolvers:

1. They read frames and attributes only, never take a lock, never run code of the application, never change anything.
2. A wait has all its enders or none: if another party could end it, or that cannot be known, ``enders`` is None. Then people
   are shown what the party is blocked in, and it counts as active.
3. ``on`` is the same object as long as the wait is. It must allow weak references.
4. ``handles`` are what ends the wait when cancelled, closed or set: the second look searches for the parties that hold one and
   whose code mentions ending things. ``undone``: those that can reach it, and whose code names one of ``by``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, TypeVar

from stilltrue.model import PartyName
from stilltrue.protocol.report import ResourceTarget

T = TypeVar("T")


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class EndedHolder:
    """A holder that has ended without giving back what it held, as nothing refers to that any more; ``name`` says what."""

    name: str


Task = asyncio.Task[Any]
Ender = int | threading.Thread | Task | Future[Any] | PartyName | EndedHolder
"""What ends a wait: a thread (or its identity), a task, what completes a future, a party by name, or an ended holder."""
Enders = tuple[Ender | ResourceTarget, ...]
"""All that can end a wait; the holder of a resource may be another process's party."""


@dataclass(frozen=True, slots=True, eq=False)
class CallStack:
    """Where a thread (``ident``) or a suspended ``task`` stands: its ``frames``, innermost first.

    ``future`` is what the task is suspended on; ``coroutines`` are those of its frames.
    """

    frames: tuple[FrameType, ...]
    ident: int = 0
    task: Task | None = None
    future: Any = None
    coroutines: tuple[Any, ...] = ()

    @property
    def who(self) -> Ender:
        """The thread or task."""
        return self.ident if self.task is None else self.task


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeenWait:
    """A wait until ``needs`` (None: all) of ``enders`` have acted; ``enders`` None: it is unknown who ends it.

    ``on``: what is waited for (rule 3); ``once``: nobody waits for it twice (a future), so the same object is the same wait;
    ``same`` tells of a thread whether it is in this very wait, where it runs now and then (else it must not run at all).
    ``until``: when (epoch) it ends by itself. ``what``: what is awaited, for people; ``{}`` stands for the enders' names.
    ``handles``: see rule 4. ``shares``: what ends the wait when it is given back, by whoever has it, whatever its code says;
    first, what they are shares of. ``owners``: what ends the wait when somebody comes to close it;
    ``helpers`` are the library's own threads and tasks, which never do so by themselves. ``reached``: the enders are those who
    can reach ``on`` (:mod:`stilltrue.runtime.seen.reachability`), which the second look proves anew.
    """

    on: Any
    enders: Enders | None
    needs: int | None = 1
    until: float | None = None
    what: str = ""
    handles: tuple[Any, ...] = ()
    shares: tuple[Any, ...] = ()
    owners: tuple[Any, ...] = ()
    helpers: tuple[Ender, ...] = ()
    undone: tuple[Any, ...] = ()
    by: frozenset[str] = frozenset()
    once: bool = False
    reached: bool = False
    same: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Queued:
    """An item in a queue: its future, the threads of which one must end first, and their executor (None: it is gone)."""

    future: Any
    workers: tuple[int, ...]
    executor: Any


class Scene(Protocol):
    """The threads and tasks of the process at one moment."""

    @property
    def now(self) -> float:
        """The time (epoch)."""
        ...

    def epoch(self, monotonic: float) -> float:
        """The time (epoch) of a reading of ``time.monotonic()``."""
        ...

    def stacks(self) -> Mapping[int, CallStack]:
        """Every thread but the one that looks, by its identity."""
        ...

    def stacks_of_tasks(self) -> Mapping[Task, CallStack]:
        """The tasks of all loops that run (the first few thousand): a task that runs has no frames here."""
        ...

    def holders(self, things: Iterable[Any]) -> Mapping[int, frozenset[Ender]]:
        """By ``id`` of each of these, the threads and tasks in whose frames it is found."""
        ...

    def found(self, wanted: Callable[[Any], bool], far: int = ...) -> list[tuple[Any, frozenset[Ender]]]:
        """The objects in the frames of threads and tasks for which ``wanted`` says so, and in whose frames they are.

        ``far``: how many objects of each are opened, those of its own code first; with few, of that alone.
        """
        ...

    def once(self, key: object, make: Callable[[], T]) -> T:
        """What ``make`` has made for this key in this scene; it is asked the first time only."""
        ...

    def inside(self, lock: Any) -> tuple[Ender, ...]:
        """The threads and tasks that stand inside a ``with`` or ``async with`` block of this lock or semaphore, and have it.

        Whoever stands in two of its blocks is there twice.
        """
        ...

    def exit_stacks(self, lock: Any) -> tuple[Any, ...]:
        """Through which ``ExitStack`` those have entered this lock or semaphore who are inside: who leaves it gives back."""
        ...

    def is_had_by_nobody_else(self, lock: Any, stack: CallStack) -> bool:
        """Whether it is proved that nobody has this lock or semaphore but those inside.

        Somebody waits for it who stands there.
        """
        ...

    def queued(self, future: Any) -> Queued | None:
        """The item of this future in the queue of an executor all of whose threads are busy; None if it is in none."""
        ...

    def runs_item(self, future: Any) -> int | None:
        """The thread that runs the executor's item of this future."""
        ...


@dataclass(frozen=True, slots=True)
class Resolver:
    """Reads one kind of wait.

    ``places``: the functions (end of the file's name, qualified name) in whose frames such waits stand; empty: anywhere.
    ``read`` is given where somebody stands, the index of such a frame (0 if anywhere) and the scene; it answers None if this
    is not such a wait.
    """

    places: tuple[tuple[str, str], ...]
    read: Callable[[CallStack, int, Scene], SeenWait | None]
