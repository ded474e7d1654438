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
            "one_more": "the server has one more thread",
            "another_server": "the inner call goes to another server in the process",
        },
    ),
    Entry(
        program="grpc_8603",
        source="grpc/grpc 8603",
        library="grpcio",
        what="Three servers call each other in a cycle; all threads of each wait for the next.",
        near={"deadline": "the calls of one server have a deadline", "one_more": "one server has one more thread"},
        processes=("ring-a", "ring-b", "ring-c"),
    ),
    Entry(
        program="grpc_node_1024",
        source="grpc/grpc-node 1024",
        library="grpcio (aio)",
        what="A server with one event loop blocks the loop while it calls another server, which calls back.",
        near={
            "deadline": "the call back has a deadline",
            "in_a_thread": "the call blocks a thread, and the loop keeps running",
        },
        processes=("shop", "bank"),
    ),
    Entry(
        program="stream_asks",
        source="widely known",
        library="grpcio",
        what="A server's only worker reads a stream, whose client asks that server before it sends the next request.",
        near={
            "limit": "the client's question has a deadline",
            "deadline": "the call with the stream has a deadline",
            "cancelled": "no thread waits for the call with the stream, and one cancels it later",
            "watched": "a thread waits for the call with the stream, and another cancels it later",
            "worker": "the server has one more worker",
        },
        processes=("shop", "client"),
    ),
    Entry(
        program="server_barrier",
        source="widely known",
        library="threading, gRPC",
        what="Three workers meet at a barrier in a server, which has only two threads.",
        near={
            "time_out": "the barrier has a timeout",
            "interceptor": "an interceptor of the server, which needs no thread, aborts the barrier for one of the methods",
            "hung_up": "the barrier is aborted if a caller hangs up",
        },
    ),
    Entry(
        program="approvals",
        source="grpc/grpc 8616",
        library="concurrent.futures, gRPC",
        what="Requests wait for futures that another method completes, and have all threads of the server.",
        near={
            "time_out": "`result` has a timeout",
            "one_more": "the server has one more thread, and the other method is slow",
            "hung_up": "the future is cancelled if its caller hangs up",
            "rejected": "another thread cancels the futures later",
        },
    ),
    Entry(
        program="write_behind",
        source="widely known",
        library="queue, gRPC",
        what="Handlers put into a full queue; the thread that empties it calls the same server, which has no free thread.",
        near={
            "time_out": "`put` has a timeout",
            "deadline": "the call has a deadline",
            "slow": "the thread is slow, and does not call yet",
            "unbounded": "the queue is unbounded, and the handlers are slow",
            "drained": "another thread takes an item later",
        },
    ),
    Entry(
        program="rpc_reader",
        source="widely known",
        library="threading, gRPC",
        what="Each end of a connection runs requests in the thread that reads it; a request asks back, and waits.",
        near={
            "time_out": "`wait` has a timeout",
            "slow": "one of the requests is slow, and does not ask yet",
            "in_a_thread": "each request runs in a thread of its own, and one is slow",
            "method": "a method of the server sets the events",
            "ended": "another thread sets the events later",
        },
    ),
    Entry(
        program="single_flight",
        source="widely known",
        library="concurrent.futures, gRPC",
        what="The first caller of a key computes it while others wait for its future; the computation needs the same key.",
        near={
            "time_out": "`result` has a timeout",
            "deadline": "the computation's calls have a deadline",
            "slow": "the computation is slow, and does not need the key",
            "timer": "a timer fails the computations later",
            "swept": "another thread fails the computations later",
            "request": "a request may fail the computations",
        },
    ),
    Entry(
        program="actors",
        source="widely known",
        library="concurrent.futures, queue, gRPC",
        what="Two actors ask each other, and each waits for the reply while it reads no mail.",
        near={
            "time_out": "`result` has a timeout",
            "timer": "a timer cancels each reply",
            "slow": "one of them is slow, and does not ask the other",
            "supervised": "another thread fails what is in a mailbox later",
        },
    ),
    Entry(
        program="queue_pool",
        source="widely known",
        library="queue, gRPC",
        what="A handler has the only connection of a pool that is a queue, and calls its service, which needs a connection.",
        near={
            "time_out": "`get` has a timeout",
            "deadline": "the call has a deadline",
            "one_more": "there is one more connection, and the inner call is slow",
            "slow": "the handler is slow, and does not call yet",
            "another": "another thread adds a connection later",
            "timer": "a timer adds a connection later",
            "request": "a request may add a connection",
        },
    ),
    Entry(
        program="bottle_757",
        source="bottlepy/bottle 757",
        library="Bottle, wsgiref, urllib",
        what="A web application, on a server with one thread, asks itself.",
        near={
            "limit": "the inner request has a timeout",
            "threads": "the server has a thread for each request",
            "later": "another thread serves the inner request later",
            "closed": "a timer closes the server later, which refuses the inner request",
        },
        modules=("bottle",),
    ),
    Entry(
        program="supvisors_28",
        source="julien6387/supvisors 28",
        library="xmlrpc",
        what="Two XML-RPC servers, with one thread each, ask each other while they handle a call.",
        near={
            "limit": "the call of one of them has a timeout",
            "threads": "one of them has a thread for each call",
        },
        processes=("one", "two"),
    ),
)
