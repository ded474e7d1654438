"""The application's declaration that it does not act spontaneously: when it was made and what it covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import CodeType
from weakref import ref

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.child_processes import child_processes


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleDeclaration:
    """Covers the ``threads`` (native ids), ``tasks`` and ``children`` (processes, by :attr:`ChildProcess.key`) that existed at
    ``since`` (epoch), and the ``alarms`` that were set.

    ``scheduled``: the code of the callbacks that event loops had scheduled, which may schedule themselves again.
    ``waiting``, ``waiting_tasks``: the threads (identities) and tasks that were waiting, and where. One that has woken since
    acts on a message that came. ``standing``: where each thread was.
    """

    since: float
    threads: frozenset[int]
    tasks: frozenset[ref[compat.Task]] = frozenset()
    alarms: frozenset[int] = frozenset()
    children: frozenset[tuple[int, int]] = frozenset()
    scheduled: frozenset[CodeType] = frozenset()
    waiting: Mapping[int, compat.Where] = field(default_factory=dict)
    standing: Mapping[int, compat.Where] = field(default_factory=dict)
    waiting_tasks: Mapping[ref[compat.Task], compat.Where] = field(default_factory=dict)


def declaration_at_first_call(now: float) -> IdleDeclaration:
    """The declaration of a reactive process: covers the threads and tasks that existed before its first call."""
    tasks = {ref(task): where for task, where in compat.waiting_tasks().items()}
    standing = compat.standing_threads()
    return replace(declaration_at_idle(now), waiting=compat.waiting_threads(), standing=standing, waiting_tasks=tasks)


def declaration_at_idle(now: float) -> IdleDeclaration:
    """The declaration that ``idle()`` makes."""
    tasks = frozenset(map(ref, compat.tasks_of_all_loops()))
    alarms = frozenset(compat.alarms())
    children = frozenset(child.key for child in child_processes())
    return IdleDeclaration(
        since=now,
        threads=compat.native_ids(),
        tasks=tasks,
        alarms=alarms,
        children=children,
        scheduled=compat.codes_scheduled(),
    )
