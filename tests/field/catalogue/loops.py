"""Event loops that wait for themselves."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="shenyu_6612",
        source="apache/shenyu 6612",
        library="asyncio",
        what="A handler on an event loop blocks until the same loop has run a coroutine.",
        near={
            "time_out": "the blocking call has a timeout",
            "in_a_thread": "the call blocks a thread of the executor, and the loop keeps running",
        },
    ),
    Entry(
        program="multicall_93",
        source="banteg/multicall.py 93",
        library="asyncio",
        what="A batch acquires a semaphore, and so does each of its calls; there are as many batches as permits.",
        near={
            "time_out": "the batch waits for its calls in `asyncio.wait_for`",
            "one_more": "the semaphore has one more permit",
            "another": "the calls have their own semaphore",
            "grows": "a task of another module releases another permit later",
        },
    ),
    Entry(
        program="asgiref_calls_back",
        source="widely known",
        library="asgiref, gRPC",
        what="A handler runs a coroutine by `async_to_sync`, which calls the same server; that has no free worker.",
        near={
            "deadline": "the coroutine's call has a deadline",
            "limit": "the coroutine awaits the call in `asyncio.wait_for`",
            "cancelled": "another thread cancels the coroutine later",
            "worker": "the server has one more worker",
        },
    ),
)
