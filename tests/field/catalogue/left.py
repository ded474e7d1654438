"""Locks and places that are never given back: who took them has ended."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="left_lock",
        source="widely known",
        library="threading",
        what="A thread fails between `acquire()` and `release()`; the lock is never released.",
        near={
            "slow": "the thread that holds the lock is only slow",
            "unlocked": "a function of another module, which releases any lock passed to it, is called later",
        },
        predicate="orphaned-resource",
    ),
    Entry(
        program="fork_lock",
        source="widely known",
        library="threading, os.fork",
        what="A process forks while another of its threads holds a lock; in the child the lock is never released.",
        near={
            "before": "the lock was released before the fork",
            "kept": "the thread had stored the lock's `__exit__`, and a thread of the child calls it later",
            "in_time": "the wait for the lock in the child has a timeout",
        },
        predicate="orphaned-resource",
    ),
    Entry(
        program="executor_after_fork",
        source="widely known",
        library="concurrent.futures, os.fork",
        what="A process forks after its executor has started threads; none of them runs in the child, and an item waits there.",
        near={
            "limit": "`result` has a timeout",
            "submits": "another thread of the child submits an item later, which starts a thread",
            "own": "the child has an executor of its own, which is slow",
        },
        predicate="orphaned-resource",
    ),
    Entry(
        program="left_place",
        source="widely known",
        library="asyncio",
        what="A coroutine returns early without releasing a semaphore; its last permit is lost.",
        near={
            "slow": "one of the permit holders is only slow",
            "called_back": "a done callback releases the permit",
        },
        predicate="orphaned-resource",
    ),
    Entry(
        program="birdnet_73",
        source="birdnet-team/birdnet 73",
        library="multiprocessing",
        what="A worker is killed while it holds a lock of multiprocessing; the lock is never released.",
        near={
            "slow": "the worker that holds the lock is only slow",
            "limit": "the wait for the lock has a timeout",
            "unlocked": "the program has a function that releases any lock passed to it",
            "stranger": "a process without an agent has the lock, too, and might hold it",
        },
        predicate="orphaned-resource",
    ),
    Entry(
        program="cpython_96062",
        source="python/cpython 96062",
        library="multiprocessing.pool",
        what="A pool's worker is killed while it waits for a task with the queue's lock; its successor waits for the lock.",
        near={
            "idle": "the worker is not killed: a second one waits for the lock until there is a task",
            "unlocked": "the program has a function that releases any lock passed to it",
        },
        predicate="orphaned-resource",
        elsewhere={"worker": 1},
    ),
)
