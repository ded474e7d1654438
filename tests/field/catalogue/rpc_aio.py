"""Handlers and clients on event loops, and what a service of theirs shares with its own callers."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="aio_both_read",
        source="grpc/grpc 2048",
        library="grpcio (aio)",
        what="A client reads from a stream before it writes, and so does the server: each waits for the other's message.",
        near={
            "deadline": "the call has a deadline",
            "limit": "the client reads in `asyncio.wait_for`",
            "task": "another task writes a request later",
            "timer": "a timer lets a task write a request later",
            "thread": "another thread writes a request later",
            "module": "a module has the call, too",
        },
    ),
    Entry(
        program="aio_feeder",
        source="widely known",
        library="asyncio, grpcio (aio)",
        what="A task writes as requests what another has read as replies; the server replies only to requests.",
        near={
            "slow": "the server is slow, and does not read yet",
            "greets": "another task passes on a first request later",
            "timer": "a timer passes on a first request later",
        },
    ),
    Entry(
        program="aio_generator",
        source="widely known",
        library="asyncio, grpcio (aio)",
        what="An asynchronous generator sends as requests what the reader of the replies passes on; the server reads first.",
        near={
            "slow": "the server is slow, and does not read yet",
            "greets": "the generator itself sends a first request later",
            "task": "another task passes on a first request later",
            "timer": "a timer passes on a first request later",
            "module": "a module has the queue, too",
            "cancels": "another task cancels the call later",
            "watched": "another task cancels the reader later",
            "deadline": "the call has a deadline",
        },
    ),
    Entry(
        program="aio_upload",
        source="widely known",
        library="grpcio (aio)",
        what="A client awaits the reply to a stream that it has not ended, and the server reads on.",
        near={
            "deadline": "the call has a deadline",
            "limit": "the client awaits the reply in `asyncio.wait_for`",
            "later": "another task ends the stream later",
            "timer": "a timer cancels the call later",
        },
    ),
    Entry(
        program="grpc_34530",
        source="grpc/grpc 34530",
        library="grpcio (aio)",
        what="An interceptor awaits the status of a stream whose requests gRPC keeps until the interceptor has returned.",
        elsewhere={"files": 1},  # gRPC's own task, which sends the requests
        near={
            "deadline": "the call has a deadline",
            "limit": "the interceptor awaits the status in `asyncio.wait_for`",
            "canceller": "a timer cancels the call later",
            "iterator": "the requests come from a generator, which gRPC asks at once",
        },
    ),
    Entry(
        program="aio_to_thread",
        source="hatchet-dev/hatchet 4803",
        library="asyncio, gRPC",
        what="Handlers on a loop call their own server by `asyncio.to_thread`; those calls need threads of the same executor.",
        near={
            "deadline": "the inner calls have a deadline",
            "limit": "the handlers wait in `asyncio.wait_for`",
            "thread": "the executor has one more thread, which is slow",
        },
    ),
    Entry(
        program="aio_permits",
        source="widely known",
        library="asyncio, grpcio (aio)",
        what="An interceptor takes a permit for each call; a handler calls its own server, which has no permit left.",
        near={
            "deadline": "the inner call has a deadline",
            "permit": "there is one more permit, and the inner call is slow",
        },
    ),
    Entry(
        program="aio_single_flight",
        source="widely known",
        library="asyncio, grpcio (aio)",
        what="The first caller of a key computes it while others await its future; the computation needs the same key.",
        near={
            "time_out": "the others wait in `asyncio.timeout`",
            "deadline": "the computation's calls have a deadline",
            "slow": "the computation is slow, and does not need the key",
            "unshielded": "the others do not shield the future: one of them that is cancelled would cancel it",
        },
    ),
    Entry(
        program="aio_actors",
        source="widely known",
        library="asyncio, grpcio (aio)",
        what="Two actors ask each other, and each awaits the reply while it reads no mail.",
        near={
            "time_out": "they wait in `asyncio.timeout`",
            "timer": "a timer cancels each reply",
            "slow": "one of them is slow, and does not ask the other",
            "beside": "another task reads the mailbox, too",
            "watched": "a watchdog cancels one of them later",
        },
    ),
    Entry(
        program="asyncmy_157",
        source="long2ice/asyncmy 157",
        library="asyncio, grpcio (aio)",
        what="A pool is terminated while a handler's task waits until it is drained; nobody notifies the task.",
        near={
            "limit": "the handler waits in `asyncio.wait_for`",
            "released": "another task returns the connection later, which notifies the task",
        },
    ),
    Entry(
        program="log_over_grpc",
        source="Significant-Gravitas/AutoGPT 10634",
        library="logging, gRPC",
        what="A log handler calls a service under its lock, and the service logs through the same handler.",
        near={
            "deadline": "the handler's call has a deadline",
            "slow": "the service is slow, and does not log yet",
            "quiet": "the service does not log",
        },
    ),
    Entry(
        program="redis_aio_pool",
        source="widely known",
        library="redis-py (asyncio), grpcio (aio), Redis",
        what="A handler sends a command within a pipeline that holds its pool's only connection.",
        near={
            "limit": "the pool has a timeout",
            "one_more": "there is one more connection",
            "slow": "the handler is slow, and does not send the command yet",
        },
        servers=("redis",),
        modules=("redis",),
    ),
    Entry(
        program="aio_queue_pool",
        source="widely known",
        library="asyncio, grpcio (aio)",
        what="A handler has the only session of a pool that is a queue, and calls its service, which needs a session.",
        near={
            "limit": "the session is used in `asyncio.timeout`",
            "slow": "the handler is slow, and does not call yet",
            "another": "another task adds a session later",
            "timer": "a timer adds a session later",
        },
    ),
    Entry(
        program="traced_locks",
        source="widely known",
        library="asyncio, grpcio (aio), opentelemetry-instrumentation-grpc",
        what="Each of two traced services holds a lock while it calls the other, which needs its own.",
        near={
            "deadline": "the calls have a deadline",
            "cancelled": "another task cancels the calls later",
            "intercepted": "a further interceptor waits for a time only",
        },
        processes=("orders", "stock"),
    ),
)
