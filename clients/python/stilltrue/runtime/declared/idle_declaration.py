"""The application's declaration that it does not act spontaneously: when it was made and what it covers."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from types import CodeType

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.introspection.linux.child_processes import boot_ticks, child_processes, joined_at
from stilltrue.runtime.introspection.linux.child_threads import THREADS_MAX, ChildThreads, polls_without_end, threads_of
from stilltrue.runtime.introspection.linux.own_timers import armed_timers, threads_of_libraries
from stilltrue.runtime.introspection.tasks import is_timed, woken_by_timers
from stilltrue.runtime.own_ref import OwnRef

TASKS_MAX = 1_000
"""Beyond it, tasks' positions are not read: the first call waits for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleDeclaration:
    """Covers the ``threads`` (native ids), ``tasks`` and ``children`` (processes, by :attr:`ChildProcess.key`) that existed at
    ``since`` (epoch; ``since_ticks``: clock ticks since the machine booted), the ``alarms`` and timer ``descriptors`` that were
    set, the threads of ``libraries``, and the ``pool_items`` on which process pools worked.

    ``handles``: the callbacks that event loops had scheduled, by ``id`` (comparing two would run the application's code).
    ``scheduled``: their code, which may schedule itself again. ``standing``, ``standing_tasks``: where the threads (identities)
    and tasks stood. One that is elsewhere since acts on a message that came.
    ``standing_children``: likewise for the threads of the ``children``. ``members``: the children that had joined a detector.
    ``untimed``, ``untimed_tasks``: the threads and tasks that waited without a timeout; ``polling``: the threads (native ids)
    that so waited for descriptors. ``foreign_loops``: by thread (identity), the loops of libraries other than asyncio.
    ``declaring``: the threads (identities) and tasks (``id``) that have called ``active()`` or ``busy()``; ``by``: the one that
    called ``idle()``, if any. ``made_at``: like ``since``, by the monotonic clock.
    """

    since: float
    threads: frozenset[int]
    tasks: frozenset[OwnRef] = frozenset()
    alarms: frozenset[int] = frozenset()
    descriptors: frozenset[int] = frozenset()
    libraries: frozenset[int] = frozenset()
    since_ticks: int = 0
    children: frozenset[tuple[int, int]] = frozenset()
    members: frozenset[tuple[int, int]] = frozenset()
    pool_items: frozenset[tuple[int, int]] = frozenset()
    handles: dict[int, OwnRef] = field(default_factory=dict)
    scheduled: frozenset[CodeType] = frozenset()
    standing: dict[int, compat.Where] = field(default_factory=dict)
    standing_tasks: dict[OwnRef, compat.Where] = field(default_factory=dict)
    standing_children: dict[tuple[int, int], ChildThreads] = field(default_factory=dict)
    foreign_loops: dict[int, compat.ForeignLoop] = field(default_factory=dict)
    untimed: frozenset[int] = frozenset()
    untimed_tasks: frozenset[OwnRef] = frozenset()
    polling: frozenset[int] = frozenset()
    declaring: Container[int] = frozenset()
    by: int = 0
    made_at: float = inf

    def covers(self, handle: asyncio.Handle) -> bool:
        """Whether this callback was scheduled then."""
        known = self.handles.get(id(handle))
        return known is not None and known() is handle


def declaration(now: float, declaring: Container[int], by: int = 0) -> IdleDeclaration:
    """The declaration that ``idle()`` makes, or that a reactive process makes by its first call."""
    since_ticks = boot_ticks()  # first: a process that begins meanwhile is not covered
    tasks = list(compat.tasks_of_all_loops())
    read = tasks[:TASKS_MAX]
    timed = frozenset().union(*map(woken_by_timers, {task.get_loop() for task in read}))
    children = child_processes()
    frames = frames_of_threads()
    threads = compat.native_ids()
    handles = compat.handles_of_running_loops()
    codes = (compat.code_behind(compat.callback_of(handle)[0])[0] for handle in handles)
    return IdleDeclaration(
        since=now,
        threads=threads,
        tasks=frozenset(map(OwnRef, tasks)),
        alarms=frozenset(compat.alarms()),
        descriptors=frozenset(armed_timers()),
        libraries=frozenset(thread for thread, _ in threads_of_libraries(threads)),
        since_ticks=since_ticks,
        children=frozenset(child.key for child in children),
        members=frozenset(child.key for child in children if joined_at(child) is not None),
        pool_items=frozenset().union(*(compat.pool_items(frame) for those in frames.values() for frame in those)),
        handles={id(handle): OwnRef(handle) for handle in handles},
        scheduled=frozenset(code for code in codes if code is not None),
        standing=compat.standing_threads(),
        standing_tasks={OwnRef(task): where for task, where in compat.standing_tasks(read).items()},
        standing_children=threads_of(children),
        foreign_loops={ident: loop for ident, those in frames.items() if (loop := compat.foreign_loop(those)) is not None},
        untimed=compat.untimed_threads(),
        untimed_tasks=frozenset(OwnRef(task) for task in read if not is_timed(task, timed)),
        polling=frozenset(thread for thread in sorted(threads)[:THREADS_MAX] if polls_without_end(thread)),
        declaring=declaring,
        by=by,
        made_at=monotonic(),
    )
