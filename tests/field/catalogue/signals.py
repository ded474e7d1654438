"""Threads that wait for what other threads set, feed, empty or come to, which wait themselves."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="events",
        source="widely known",
        library="threading",
        what="Two threads wait for each other's event before they set their own.",
        near={
            "time_out": "`wait` has a timeout",
            "watchdog": "a watchdog sets one of the events later",
            "timer": "a `threading.Timer` sets one",
            "on_signal": "a signal handler sets one",
            "by_name": "the main thread reads commands, one of which sets one",
            "at_end": "the main thread sets one after it has read a line",
            "typed": "the main thread runs code that a user types",
        },
    ),
    Entry(
        program="full_queues",
        source="widely known",
        library="queue",
        what="A producer puts all of its items before it takes results; both queues fill up, and all threads wait for space.",
        near={
            "time_out": "`put` has a timeout",
            "room": "the queue of results is unbounded",
            "drained": "another thread takes results, slowly",
        },
    ),
    Entry(
        program="barrier",
        source="widely known",
        library="threading",
        what="A thread joins workers that wait at a barrier, which the thread would reach only afterwards.",
        near={
            "time_out": "the barrier has a timeout",
            "join_in_time": "`join` has a timeout",
            "late": "another thread reaches the barrier later",
        },
    ),
    Entry(
        program="asks_back",
        source="widely known",
        library="threading, gRPC",
        what="A call waits for an event that its helper sets after a call, which calls back to a server with no free worker.",
        near={
            "time_out": "`wait` has a timeout",
            "deadline": "the helper's call has a deadline",
            "one_more": "the server has one more worker",
        },
        processes=("orders", "stock"),
    ),
    Entry(
        program="dbt_core_5602",
        source="dbt-labs/dbt-core 5602",
        library="queue",
        what="A worker fails and never reports its item as done; `Queue.join()` waits for that.",
        near={
            "slow": "the worker does not fail, but is slow",
            "restarted": "another worker processes the rest later",
        },
    ),
    Entry(
        program="release_services_2228",
        source="mozilla/release-services 2228",
        library="asyncio, queue",
        what="A coroutine blocks its event loop in `queue.get()`; another coroutine of the same loop would put the item.",
        near={
            "time_out": "`get` has a timeout",
            "in_thread": "`get` runs in a thread, and the loop keeps running",
            "fed_by_thread": "a thread puts an item later",
        },
    ),
    Entry(
        program="computer_vision_46",
        source="UWARG/computer-vision-python 46",
        library="queue, threading",
        what="A worker puts into a full queue while it holds a lock; the queue's only reader takes that lock first.",
        near={
            "time_out": "`put` has a timeout",
            "dumped": "another thread reads the queue without the lock later",
        },
    ),
    Entry(
        program="asgiref_282",
        source="django/asgiref 282",
        library="asyncio, concurrent.futures",
        what="The only thread of an executor waits for an event that the executor's next item would set.",
        near={
            "time_out": "`wait` has a timeout",
            "two_threads": "the executor has one more thread",
            "by_thread": "another thread sets the event later",
        },
    ),
    Entry(
        program="crawler_queue",
        source="widely known",
        library="queue",
        what="Workers put what they find into the bounded queue that only they read; all of them wait for room.",
        near={
            "limit": "`put` has a timeout",
            "unbounded": "the queue is unbounded",
            "drained": "another thread reads from the queue later",
        },
    ),
    Entry(
        program="lost_wakeup",
        source="widely known",
        library="threading",
        what="A producer notifies a condition before its consumer waits for it, and never again.",
        near={
            "limit": "`wait` has a timeout",
            "again": "the producer notifies it again later",
        },
    ),
    Entry(
        program="tilequeue_131",
        source="tilezen/tilequeue 131",
        library="queue, threading",
        what="A program takes as many results as it has given tasks to its worker, which has failed at one of them.",
        near={
            "limit": "`get` has a timeout",
            "slow": "the worker has not failed, but is slow",
            "later": "another thread puts a result later",
            "interrupt": "the program takes results until Ctrl-C, for which it has an `except` clause",
        },
    ),
    Entry(
        program="one_sentinel",
        source="widely known",
        library="queue",
        what="Two workers take items from a `SimpleQueue` until they get a sentinel, and are joined; there is one sentinel.",
        near={
            "limit": "`get` has a timeout",
            "later": "another thread puts another sentinel later",
        },
    ),
    Entry(
        program="stop_joins",
        source="widely known",
        library="queue",
        what="A worker is stopped by a flag and joined; it would see the flag after the next item, for which it waits.",
        near={
            "limit": "`get` has a timeout",
            "fed": "another thread puts an item later",
        },
    ),
    Entry(
        program="failed_thread",
        source="widely known",
        library="concurrent.futures",
        what="A thread fails before it completes the future for which another thread waits.",
        near={
            "limit": "`result` has a timeout",
            "slow": "the thread does not fail yet, but is slow",
            "later": "another thread completes the future later",
        },
    ),
    Entry(
        program="block_exit",
        source="widely known",
        library="queue, threading",
        what="A block fails before it tells its worker to stop, and the block's exit joins the worker.",
        near={
            "limit": "`get` has a timeout",
            "joined": "`join` has a timeout",
            "stopped": "another thread tells the worker to stop later",
        },
    ),
)
