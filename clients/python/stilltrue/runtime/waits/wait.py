"""The input and output of resolvers: a party's call stack, and the wait that it is in with the parties that can end it.

Rules for resolvers:

1. They only read frames and attributes: they never take a lock, run the application's code or change anything.
2. A wait has all its enders or none: if another party could end it, or that is unknown, ``enders`` is None. Then people are
   shown what the party is blocked in, and the party counts as active.
3. ``on`` is the same object for as long as the wait lasts. It must support weak references.
4. Cancelling, closing or setting one of the ``handles`` ends the wait: the second look searches for the parties that hold one
   and whose code mentions doing so. For ``ended_through`` it searches for the parties that can reach one of these objects and
   whose code mentions one of the ``ending_names``, and for all whose code mentions one of the ``ending_names_anywhere``: they
   may find it by a name, like a file by its path.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Protocol, TypeVar

from stilltrue.model import PartyName, ProcessName
from stilltrue.protocol.report import CallTarget, ResourceTarget

T = TypeVar("T")


class Referable:
    """The base of classes with slots whose instances have weak references; Python 3.10 has no ``weakref_slot``."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True, eq=False)
class EndedHolder(Referable):
    """A holder that has ended without releasing what it held, and to which nothing refers any more; ``name`` describes it."""

    name: str


Task = asyncio.Task[Any]
Ender = int | threading.Thread | Task | Future[Any] | PartyName | EndedHolder
"""Ends a wait: a thread (or its identity), a task, whatever completes a future, a party by name, or an ended holder."""
Elsewhere = ResourceTarget | CallTarget
"""Ends a wait from another process: the holder of a resource, or who serves a call."""
Enders = tuple[Ender | Elsewhere, ...]
"""All that can end a wait."""


# This and SeenWait are not frozen: a look makes thousands, and a frozen one takes three times as long to make.
@dataclass(slots=True, eq=False)
class CallStack:
    """The ``frames``, innermost first, of a thread (``ident``) or a suspended ``task``. It is not changed.

    ``future``: the future that the task is suspended on; ``coroutines``: the coroutines of its frames.
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


@dataclass(slots=True, kw_only=True, eq=False)
class SeenWait:
    """A wait until ``needs`` (None: all) of ``enders`` have acted; ``enders`` is None if they are unknown. It is not changed.

    ``on``: the object waited for (rule 3). ``once``: it is awaited only once (a future), so the same object is the same wait.
    ``same``: whether a thread that runs now and then is still in this wait (None: it must not run at all). ``until``: when the
    wait ends by itself (epoch). ``what``: the awaited thing as text, where ``{}`` stands for the enders' names.
    ``handles``, ``ended_through``, ``ending_names``, ``ending_names_anywhere``: see rule 4. ``has_own_share``: whether
    a method of a server undoes only what it has done itself, by its code and all that it may run. ``shares``: first a resource,
    then its shares; any holder that releases one ends the wait, whatever its code mentions. ``lines``: the library's objects in
    which its waiters' futures stand; only the library completes these. ``owners``: closing one of these ends the wait.
    ``helpers``: the library's own threads and tasks, which never do so by themselves. ``reached``: the enders are the parties
    that can reach ``on`` (:mod:`stilltrue.runtime.waits.reachability`), which the second look proves again. ``still``: what the
    second look asks besides whether this is the same wait. ``also``: another wait of the same party, which must end, too.
    ``parks``: another process ends it, by a message or by its end: to be in it is to be idle. ``at_child``: it is at a pipe of
    a child that waits for this process (:mod:`stilltrue.runtime.waits.pipes.child_files`). ``since``: when the party was first
    seen in it (epoch), if that was before this cut.
    """

    on: Any
    enders: Enders | None
    needs: int | None = 1
    until: float | None = None
    what: str = ""
    handles: tuple[Any, ...] = ()
    shares: tuple[Any, ...] = ()
    lines: tuple[Any, ...] = ()
    owners: tuple[Any, ...] = ()
    helpers: tuple[Ender, ...] = ()
    ended_through: tuple[Any, ...] = ()
    ending_names: frozenset[str] = frozenset()
    ending_names_anywhere: frozenset[str] = frozenset()
    has_own_share: Callable[[Sequence[CodeType]], bool] | None = None
    once: bool = False
    reached: bool = False
    same: Callable[[], bool] | None = None
    still: Callable[[], bool] | None = None
    also: SeenWait | None = None
    parks: bool = False
    at_child: bool = False
    since: float | None = None

    @property
    def is_released_by_others(self) -> bool:
        """Whether other parties may end it by releasing or undoing something."""
        return bool(self.shares or self.ended_through or self.ending_names_anywhere)


@dataclass(frozen=True, slots=True, eq=False)
class Queued:
    """A queued item: its future, the threads of which one must finish first, and their executor (None: gone).

    In a forked process ``workers`` may be those that were left behind.
    """

    future: Any
    workers: tuple[int, ...] | tuple[EndedHolder]
    executor: Any


class ProcessView(Protocol):
    """The threads and tasks of the process at one moment."""

    @property
    def now(self) -> float:
        """The time (epoch)."""
        ...

    @property
    def process(self) -> ProcessName:
        """The name of the process."""
        ...

    def epoch(self, monotonic: float) -> float:
        """The time (epoch) of a reading of ``time.monotonic()``."""
        ...

    def stacks(self) -> Mapping[int, CallStack]:
        """Every thread except the current one, by its identity."""
        ...

    def stacks_of_tasks(self) -> Mapping[Task, CallStack]:
        """The tasks of all running loops (the first thousand of each). A running task has no frames here."""
        ...

    def holders(self, things: Iterable[Any]) -> Mapping[int, frozenset[Ender]]:
        """By ``id`` of each thing, the threads and tasks whose frames refer to it."""
        ...

    def find(self, wanted: Callable[[Any], bool], far: int = ...) -> list[tuple[Any, frozenset[Ender]]]:
        """The objects in frames for which ``wanted`` is true, each with the threads and tasks whose frames refer to it.

        ``far``: how many objects are opened for each, first those of the application's own code; with few, only those.
        """
        ...

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """The result of ``make`` for this key, computed once per view."""
        ...

    def inside(self, lock: Any) -> tuple[Ender, ...]:
        """The threads and tasks that hold this lock or semaphore, inside one of its ``with`` or ``async with`` blocks.

        One that is inside two of its blocks occurs twice.
        """
        ...

    def shared_locks(self) -> list[tuple[Any, tuple[Ender, ...]]]:
        """The locks of multiprocessing and its managers that threads and tasks hold, each with its holders."""
        ...

    def exit_stacks(self, lock: Any) -> tuple[Any, ...]:
        """The ``ExitStack`` objects through which its holders entered this lock or semaphore; closing one releases it."""
        ...

    def has_no_other_holders(self, lock: Any, stack: CallStack) -> bool:
        """Whether it is proved that only the parties inside hold this lock or semaphore; ``stack`` waits for it."""
        ...

    def queued(self, future: Any) -> Queued | None:
        """The item of this future in the queue of an executor whose threads are all busy; None if there is none."""
        ...

    def thread_running(self, future: Any) -> int | None:
        """The thread that runs the executor's item of this future, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Resolver:
    """Reads one kind of wait.

    ``places``: the functions in whose frames such waits occur (end of the file name, qualified name); empty: any function.
    ``read`` gets the call stack, the index of such a frame (0 for any function) and the view; it returns None if this is not
    such a wait. ``of_shells``: its waits are gRPC's own, or are recorded by our shells as well, and it adds why they never end.
    """

    places: tuple[tuple[str, str], ...]
    read: Callable[[CallStack, int, ProcessView], SeenWait | None]
    of_shells: bool = False


def name_of(elsewhere: Elsewhere) -> str:
    """The resource or the call, as text."""
    return elsewhere.resource if isinstance(elsewhere, ResourceTarget) else f"call {elsewhere.number}"
