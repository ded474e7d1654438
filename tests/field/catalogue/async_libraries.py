"""Streams and locks of libraries for coroutines."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="crawler_stream",
        source="widely known",
        library="AnyIO",
        what="Tasks send what they find into the bounded stream that only they read; all of them wait for room.",
        near={
            "limit": "`send` has a deadline (`fail_after`)",
            "unbounded": "the stream is unbounded",
            "drained": "another task reads from the stream later",
        },
    ),
    Entry(
        program="anyio_permits",
        source="widely known",
        library="AnyIO",
        what="Each request takes a permit, and so does each page within it; there are as many requests as permits.",
        near={
            "limit": "the inner `acquire` has a deadline (`fail_after`)",
            "one_more": "there is one more permit, and the pages are slow",
            "slow": "the requests are slow, and have yet to ask for their second permit",
            "released": "another task gives a permit back later",
        },
    ),
    Entry(
        program="readers_and_writers",
        source="widely known",
        library="aiorwlock",
        what="Two tasks each lock one table for writing and then the other for reading.",
        near={
            "limit": "the wait for the reader's lock has a timeout",
            "own_table": "one of them reads the table that it has locked for writing, and is slow",
            "cancelled": "another task cancels one of them later",
        },
        modules=("aiorwlock",),
    ),
)
