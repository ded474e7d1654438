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
    Entry(
        program="grpc_node_1024",
        source="grpc/grpc-node 1024",
        library="grpcio (aio)",
        what="A server with one event loop calls another without giving up the loop, and that calls back.",
        near={
            "deadline": "the call back has a deadline",
            "in_a_thread": "the call blocks a thread, and the loop goes on",
        },
        processes=("shop", "bank"),
    ),
)
