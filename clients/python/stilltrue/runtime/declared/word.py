"""The application's declaration that it does not act spontaneously: when it was made, and what it covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import ref

from stilltrue.runtime import compat


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """It covers the ``threads`` (native ids) that existed at ``since`` (epoch).

    ``waiting``: the threads (identities) and tasks that were waiting then, and where. One woken since acts on what came.
    """

    since: float
    threads: frozenset[int]
    waiting: Mapping[int, compat.Where] = field(default_factory=dict)
    waiting_tasks: Mapping[ref[compat.Task], compat.Where] = field(default_factory=dict)


def word_of_first_call(now: float) -> Word:
    """The declaration of a reactive process: it covers the threads and tasks that existed before its first call."""
    tasks = {ref(task): where for task, where in compat.waiting_tasks().items()}
    return Word(since=now, threads=compat.native_ids(), waiting=compat.waiting_threads(), waiting_tasks=tasks)


def word_of_idle(now: float) -> Word:
    """The declaration that ``idle()`` makes."""
    return Word(since=now, threads=compat.native_ids())
