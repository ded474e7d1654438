"""Servers that call each other, or themselves."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="grpc_7052",
        source="grpc/grpc 7052",
        library="grpcio",
        what="Every thread of a server runs a handler that calls the same server.",
        near={
            "deadline": "the inner call has a deadline",
            "one_more": "the server has one thread more",
            "another_server": "the inner call goes to another server of the process",
        },
    ),
    Entry(
        program="grpc_8603",
        source="grpc/grpc 8603",
        library="grpcio",
        what="Three servers call each other in a circle; all threads of each wait for the next.",
        near={"deadline": "the calls of one server have a deadline", "one_more": "one server has one thread more"},
        processes=("ring-a", "ring-b", "ring-c"),
    ),
)
