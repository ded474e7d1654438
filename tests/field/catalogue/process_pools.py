"""Pools of processes: their items, their workers, and what a killed worker was running."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="process_pool_calls_back",
        source="widely known",
        library="concurrent.futures, gRPC",
        what="A handler waits for an item of its pool of processes; the item calls the same server, which has no free thread.",
        near={
            "patience": "`result` has a timeout",
            "deadline": "the item's call has a deadline",
            "worker": "the server has one more thread",
            "killed": "another thread kills the pool's workers later",
            "all_killed": "another thread terminates all active children later",
            "completed": "another thread completes the future later",
            "ends": "another thread ends the process later",
            "stranger": "the worker has no agent, and ends later",
        },
    ),
    Entry(
        program="pool_after_fork",
        source="widely known",
        library="multiprocessing, threading",
        what="A pool is forked while a thread holds a lock, which nobody releases in the workers; no result ever comes.",
        near={
            "slow": "the workers are slow, and do not acquire the lock yet",
            "limit": "the workers acquire the lock with a timeout",
            "patience": "the wait for the results has a timeout",
            "ended": "another thread terminates the pool later",
            "killed": "another thread kills the workers later",
        },
    ),
    Entry(
        program="cpython_155890",
        source="python/cpython 155890",
        library="concurrent.futures, importlib",
        what="A module waits, during its import, for an item whose function it defines; to pickle that, a thread imports it.",
        near={
            "time_out": "`result` has a timeout",
            "elsewhere": "the function is in another module, and is slow",
            "killed": "another thread kills the pool's workers later",
            "all_killed": "another thread terminates all active children later",
        },
        elsewhere={"tables": 1},
    ),
    Entry(
        program="cpython_115634",
        source="python/cpython 115634",
        library="concurrent.futures",
        what="A pool's last worker has run as many items as it may, and no other one is started for the queued items.",
        near={
            "patience": "`result` has a timeout",
            "slow": "the next worker has been started, and is slow",
            "submits": "another thread submits one more item later",
            "cancels": "another thread completes the future later",
        },
        predicate="orphaned-resource",
    ),
    Entry(
        program="opensfm_190",
        source="mapillary/OpenSfM 190",
        library="multiprocessing.pool",
        what="A pool's worker is killed (out of memory) while it works on a part of a result, which never comes.",
        near={
            "patience": "`get` has a timeout",
            "slow": "the worker is not killed, but slow",
            "completed": "another thread sets the missing part later",
            "replaced": "another thread sets all missing parts later",
        },
        predicate="orphaned-resource",
    ),
    Entry(
        program="pool_lock",
        source="widely known",
        library="multiprocessing.pool",
        what="A process locks a lock of multiprocessing and waits for its pool, whose worker needs the lock.",
        near={
            "patience": "`get` has a timeout",
            "limit": "the worker's wait for the lock has a timeout",
            "slow": "the worker does not need the lock yet",
            "other_thread": "another thread releases the lock later",
            "completed": "another thread sets the result later",
            "all_terminated": "another thread terminates all active children later",
        },
    ),
    Entry(
        program="imap_calls_back",
        source="widely known",
        library="multiprocessing.pool, gRPC",
        what="A handler iterates over a pool's results; an item of the pool calls the same server, which has no free thread.",
        near={
            "patience": "`next` has a timeout",
            "deadline": "the item's call has a deadline",
            "worker": "the server has one more thread",
            "killed": "another thread kills the pool's workers later",
            "lazy": "the iterator that gives the pool its items has yet to end",
        },
    ),
    Entry(
        program="left_pool",
        source="widely known",
        library="multiprocessing.pool",
        what="The block of a pool is left, which terminates the pool, before its results have been asked for: they never come.",
        near={
            "patience": "`get` has a timeout",
            "inside": "the results are asked for in the block, and the items are slow",
            "completed": "another thread sets the result later",
        },
        predicate="orphaned-resource",
    ),
)
