"""Calls whose handler has ended without a status: gRPC sends none, and the caller waits for ever.

Rules:

1. Under ``grpc.aio`` this is a handler that ends by ``CancelledError`` while gRPC has not cancelled its call: it awaited a task
   that somebody cancelled. On a thread it is one that raises anything but an ``Exception`` (``sys.exit()``).
2. gRPC keeps such a call until its caller, its connection or its server ends. On a loop, a task of gRPC waits for that and
   refers to the task of the handler. If gRPC has cancelled the handler, that task has ended before.
3. Code that has the context of the call can still abort it. So nobody can answer the call only once no context is left.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from asyncio import current_task
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Protocol

from stilltrue.model import ENDED, PartyName, ProcessName, party
from stilltrue.protocol.books.ledger import ServedContext, ServerCall
from stilltrue.runtime import compat
from stilltrue.runtime.compat import Task
from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.own_ref import OwnRef

PAUSE_SECONDS_MIN = 1.0
"""Between two searches for a context of the same call, at first."""
UNANSWERED_MAX = 1_000
"""Maximum number of such calls that are kept; further ones count as answered."""
_SHARE_OF_TIME = 0.002


class LeavesUnanswered(Protocol):
    """The record of such calls."""

    def left_unanswered(self, served: ServerCall, context: ServedContext) -> bool:
        """As of the recorder."""
        ...


def party_of_ended_handler(served: ServerCall) -> PartyName:
    """The party that stands for the handler of a call, once that has ended."""
    process, _, name = served.party.partition("/")
    return party(ProcessName(process), f"{ENDED}{name}")


class UnansweredCall(ABC):
    """Such a call, as far as both kinds of servers have it in common. ``since`` is monotonic."""

    __slots__ = ("__weakref__", "served", "since")

    def __init__(self, served: ServerCall) -> None:
        self.served = served
        self.since = time.monotonic()

    @property
    def party(self) -> PartyName:
        """The party that stands for the handler that has ended."""
        return party_of_ended_handler(self.served)

    @property
    def task(self) -> Task | None:
        """gRPC's task that waits for the end of the call, if it is known."""
        return None

    @property
    def context(self) -> Any:
        """The context of the call, if it is kept."""
        return None

    def search(self) -> None:  # noqa: B027 - on threads there is nothing to find out
        """Find out what a cut has no time for."""

    @abstractmethod
    def has_ended(self) -> bool:
        """Whether the call is over, as far as it is known."""

    @abstractmethod
    def is_final(self) -> bool:
        """Whether it is sure that nobody can answer the call, unless the server is stopped."""


class UnansweredOnLoop(UnansweredCall):
    """A call that a task has served."""

    __slots__ = ("_is_left", "_next", "_pause_seconds", "_waiting")

    def __init__(self, served: ServerCall, waiting: Task) -> None:
        """``waiting``: gRPC's task that waits for the end of the call."""
        super().__init__(served)
        self._waiting = OwnRef(waiting)
        self._is_left = False
        self._next = self.since
        self._pause_seconds = PAUSE_SECONDS_MIN

    @property
    def task(self) -> Task | None:
        """gRPC's task that waits for the end of the call."""
        return self._waiting()

    def search(self) -> None:
        """Find out whether a context is left; each time after twice the pause."""
        waiting, now = self.task, time.monotonic()
        if waiting is None or self._is_left or now < self._next:
            return
        self._is_left = compat.is_call_left_to_grpc(waiting)
        self._next, self._pause_seconds = now + self._pause_seconds, 2 * self._pause_seconds

    def has_ended(self) -> bool:
        """Whether gRPC's task has ended (rule 2)."""
        waiting = self.task
        return waiting is None or waiting.done()

    def is_final(self) -> bool:
        """Whether no context is left (rule 3)."""
        return self._is_left and not self.has_ended()


class UnansweredOnThread(UnansweredCall):
    """A call that a thread has served."""

    __slots__ = ("_kept",)

    def __init__(self, served: ServerCall, context: Any) -> None:
        """``context`` is gRPC's own."""
        super().__init__(served)
        self._kept = [context]

    @property
    def context(self) -> Any:
        """Stands for the context, to which nothing else may refer."""
        return SimpleNamespace(_state=self._kept[0]._state)  # noqa: SLF001 - what finds the server of a context

    def has_ended(self) -> bool:
        """Whether gRPC has run the callbacks for the end of the call."""
        return bool(self._kept[0].has_ended())

    def is_final(self) -> bool:
        """Whether nothing else refers to the context (rule 3)."""
        return compat.is_only_reference(self._kept) and not self.has_ended()


class UnansweredCalls:
    """Those of one process."""

    def __init__(self) -> None:
        self._known: dict[PartyName, UnansweredCall] = {}
        self._perhaps: deque[tuple[OwnRef, ServerCall]] = deque(maxlen=UNANSWERED_MAX)
        self._not_before = 0.0

    def __iter__(self) -> Iterator[UnansweredCall]:
        return iter([one for _, one in items_of(self._known)])

    def of(self, party: PartyName) -> UnansweredCall | None:
        """The call for whose ended handler ``party`` stands."""
        return self._known.get(party)

    def perhaps(self, served: ServerCall) -> None:
        """The current task, which serves a call, ends by ``CancelledError``: gRPC has cancelled it, or no status is sent."""
        task = current_task()
        if task is not None:
            self._perhaps.append((OwnRef(task), served))

    def add(self, live: LeavesUnanswered, one: UnansweredCall) -> None:
        """Record such a call."""
        if len(self._known) < UNANSWERED_MAX and live.left_unanswered(one.served, one):
            self._known[one.party] = one

    def search(self, live: LeavesUnanswered) -> None:
        """Find such calls, and forget those that are over. Takes at most a small share of processor time."""
        for key, one in items_of(self._known):
            one.search()
            if one.has_ended():
                self._known.pop(key, None)
        if not self._perhaps or time.monotonic() < self._not_before:
            return
        begun = time.thread_time()
        perhaps = [self._perhaps.popleft() for _ in range(len(self._perhaps))]
        known = [(task, served) for weak, served in perhaps if (task := weak()) is not None]
        self._perhaps.extend((OwnRef(task), served) for task, served in known if not task.done())
        handlers = {id(task): (task, served) for task, served in known if task.done()}
        for loop in {task.get_loop() for task, _ in handlers.values()}:
            for waiting, handler in compat.tasks_that_await_ends(loop):
                if id(handler) in handlers:
                    self.add(live, UnansweredOnLoop(handlers[id(handler)][1], waiting))
        self._not_before = time.monotonic() + (time.thread_time() - begun) / _SHARE_OF_TIME
