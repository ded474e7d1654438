"""Locks and places that are never given back: who took them has ended."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="left_lock",
        source="told everywhere",
        library="threading",
        what="A thread fails between `acquire()` and `release()`; the lock stays taken for good.",
        near={
            "slow": "the thread that has the lock is only slow",
            "unlocked": "a module has a function that releases whatever lock it is given",
        },
        predicate="orphaned-resource",
    ),
    Entry(
        program="fork_lock",
        source="told everywhere",
        library="threading, os.fork",
        what="A process forks while another of its threads has a lock; in the child the lock stays taken for good.",
        near={
            "before": "the lock was given back before the fork",
            "kept": "the thread had kept how the lock is left, and a thread of the child leaves it later",
            "in_time": "who wants the lock in the child waits for a time",
        },
        predicate="orphaned-resource",
    ),
    Entry(
        program="left_place",
        source="told everywhere",
        library="asyncio",
        what="A coroutine returns early with a place of a semaphore; the last place is gone for good.",
        near={
            "slow": "one of those that have a place is only slow",
            "called_back": "a done callback gives the place back",
        },
        predicate="orphaned-resource",
    ),
)
