"""The application's declaration that it does not act spontaneously: when it was made, and what it covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import CodeType
from weakref import ref

from stilltrue.runtime import compat


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """It covers the ``threads`` (native ids) and ``tasks`` that existed at ``since`` (epoch), and the ``alarms`` that were set.

    ``scheduled``: the code of what event loops had scheduled, which may schedule itself anew.
    ``waiting``: the threads (identities) and tasks that were waiting then, and where. One woken since acts on what came.
    ``standing``: where all threads stood.
    """

    since: float
    threads: frozenset[int]
    tasks: frozenset[ref[compat.Task]] = frozenset()
    alarms: frozenset[int] = frozenset()
    scheduled: frozenset[CodeType] = frozenset()
    waiting: Mapping[int, compat.Where] = field(default_factory=dict)
    standing: Mapping[int, compat.Where] = field(default_factory=dict)
    waiting_tasks: Mapping[ref[compat.Task], compat.Where] = field(default_factory=dict)


def word_of_first_call(now: float) -> Word:
    """The declaration of a reactive process: it covers the threads and tasks that existed before its first call."""
    tasks = {ref(task): where for task, where in compat.waiting_tasks().items()}
    standing = compat.standing_threads()
    return replace(word_of_idle(now), waiting=compat.waiting_threads(), standing=standing, waiting_tasks=tasks)


def word_of_idle(now: float) -> Word:
    """The declaration that ``idle()`` makes."""
    tasks = frozenset(map(ref, compat.tasks_of_all_loops()))
    alarms = frozenset(compat.alarms())
    return Word(since=now, threads=compat.native_ids(), tasks=tasks, alarms=alarms, scheduled=compat.codes_scheduled())
