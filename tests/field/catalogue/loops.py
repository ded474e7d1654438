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
            "in_a_thread": "the call blocks a thread of the executor, and the loop runs on",
        },
    ),
)
