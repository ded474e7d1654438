"""Processes: waits of a process for the end of its child."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="child_calls_back",
        source="widely known",
        library="subprocess, gRPC",
        what="A handler runs a child process and waits for it; the child calls the same server, which has no free worker.",
        near={
            "patience": "`communicate` has a timeout",
            "deadline": "the child's call has a deadline",
            "worker": "the server has one more worker",
            "killed": "another thread kills the child later",
            "signalled": "another thread sends a signal to the child's process id later",
            "stranger": "the child has no agent, and ends later",
        },
    ),
)
