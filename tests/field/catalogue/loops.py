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
        program="aiomqtt_174",
        source="empicano/aiomqtt 174",
        library="asyncio",
        what="A callback of an event loop blocks until the same loop has run a coroutine.",
        near={
            "limit": "the blocking call has a timeout",
            "in_a_thread": "a thread of the executor runs the callback, and the loop keeps running",
            "cancelled": "another thread cancels the coroutine later",
        },
    ),
    Entry(
        program="first_results",
        source="widely known",
        library="asyncio",
        what="A task takes its children's results by `as_completed`, within the semaphore that the children need.",
        near={
            "limit": "`as_completed` has a timeout",
            "one_more": "the semaphore has one more permit",
            "cancelled": "a timer cancels one of the children later",
        },
    ),
    Entry(
        program="pydle_112",
        source="shizmob/pydle 112",
        library="asyncio",
        what="The task that reads a connection awaits a handler, which asks a question and awaits the answer on it.",
        near={
            "limit": "the answer is awaited in `asyncio.timeout`",
            "tasks": "handlers are tasks of their own, and the answer is slow",
            "fails": "another task fails all questions later",
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
    Entry(
        program="asgiref_in_handler",
        source="widely known",
        library="asgiref, grpcio (aio)",
        what="A handler runs code by `sync_to_async`, which has one thread for all; that code calls the same server.",
        near={
            "deadline": "the inner call has a deadline",
            "limit": "the handler waits in `asyncio.wait_for`",
            "slow": "the code is slow, and does not call yet",
            "threads": "each call has a thread of the executor, and the inner call is slow",
            "dropped": "another thread shuts asgiref's executor down later, with `cancel_futures`",
            "drained": "another thread takes an item out of that executor's queue later, and cancels it",
            "may_cancel": "a request may cancel the handlers",
        },
    ),
    Entry(
        program="asyncio_439",
        source="python/asyncio 439",
        library="asyncio",
        what="A coroutine awaits, inside a lock, a method that acquires the same lock; asyncio's locks are not reentrant.",
        near={
            "limit": "the method runs in `asyncio.wait_for`",
            "slow": "the coroutine is slow, and does not call the method yet",
            "another_lock": "the method acquires another lock",
            "watchdog": "a timer releases the lock later",
        },
    ),
    Entry(
        program="tasks_in_circle",
        source="widely known",
        library="asyncio",
        what="Two tasks of an initialization await each other.",
        near={
            "limit": "one of them awaits the other in `asyncio.wait_for`",
            "slow": "one of them is slow, and does not await the other yet",
            "watchdog": "another task cancels one of them later",
        },
    ),
    Entry(
        program="lines_288",
        source="aosabook/500lines 288",
        library="asyncio",
        what="A producer's exception ends its task unnoticed; the consumer waits for the next item of their queue.",
        near={
            "limit": "the consumer waits in `asyncio.wait_for`",
            "slow": "the producer has not failed, but is slow",
        },
    ),
    Entry(
        program="loop_in_lock",
        source="widely known",
        library="asyncio, threading",
        what="A client holds its lock while it runs a coroutine by `asyncio.run`, a thread of which needs the lock.",
        near={
            "limit": "the thread's wait for the lock has a timeout",
            "timeout": "the coroutine waits in `asyncio.timeout`",
            "slow": "the coroutine is slow, and needs no thread yet",
            "cancelled": "another task cancels the coroutine later",
            "stopped": "another task stops the loop later",
            "left": "another task exits the loop later (`sys.exit`)",
        },
    ),
    Entry(
        program="audible_cli_271",
        source="mkb79/audible-cli 271",
        library="asyncio",
        what="Each consumer of a queue ends with its first failure; the program waits until the rest of the queue is done.",
        near={
            "limit": "the program waits in `asyncio.timeout`",
            "slow": "the consumers have not failed, but are slow",
            "another": "another task takes the rest later",
        },
    ),
    Entry(
        program="trio_810",
        source="python-trio/trio 810",
        library="AnyIO",
        what="All threads of a limiter run coroutines on the loop, which need a thread of the same limiter.",
        near={
            "limit": "the coroutine has a deadline (`fail_after`)",
            "other": "the coroutine needs a thread of another limiter",
            "more": "there is one more thread",
        },
        modules=("anyio",),
    ),
    Entry(
        program="task_group_event",
        source="widely known",
        library="asyncio, grpcio (aio)",
        what="A task of a group waits for an event that is set once the group has ended, and the group ends with its tasks.",
        near={
            "limit": "the task waits in `asyncio.wait_for`",
            "another": "another task of the group sets the event later",
            "inside": "the event is set in the group's block, later",
        },
    ),
    Entry(
        program="own_queue_join",
        source="widely known",
        library="asyncio, grpcio (aio)",
        what="A consumer waits until all items of its queue are done, one of which it has in hand itself.",
        near={
            "limit": "the consumer waits in `asyncio.wait_for`",
            "slow": "the consumer is slow, and does not wait for the queue yet",
            "another": "another task reports the item as done later",
        },
    ),
    Entry(
        program="loop_asks_itself",
        source="widely known",
        library="FastAPI, uvicorn, requests",
        what="A coroutine of a web application makes a blocking request to the same application, whose event loop it blocks.",
        near={
            "limit": "the request has a timeout",
            "thread": "the function is not a coroutine, and a thread runs it",
        },
        modules=("fastapi", "requests", "uvicorn"),
    ),
    Entry(
        program="hendrix_140",
        source="hendrix/hendrix 140",
        library="Twisted",
        what="A function in the reactor's thread calls `blockingCallFromThread`, which waits for that thread.",
        near={
            "in_a_thread": "a thread of the reactor's pool calls it",
            "slow": "a thread calls it, and the function in the reactor's thread is slow",
            "later": "a thread calls it, and the function returns a `Deferred` that has not fired yet",
        },
        modules=("twisted",),
    ),
    Entry(
        program="home_assistant_45807",
        source="home-assistant/core 45807",
        library="asyncio, concurrent.futures",
        what="An executor's shutdown waits for a job that waits for a callback on an event loop which has stopped.",
        near={
            "patience": "`result` has a timeout",
            "slow": "the job is slow, and does not ask the loop yet",
            "run_later": "another thread runs the loop later",
            "timer": "a `threading.Timer` runs the loop later",
        },
    ),
    Entry(
        program="client_loop",
        source="widely known",
        library="asyncio, gRPC",
        what="A handler calls an asynchronous client on an event loop of its own, whose thread has ended.",
        near={
            "patience": "`result` has a timeout",
            "slow": "the loop's thread has not ended, and the client is slow",
            "runs_again": "the loop's thread runs the loop again later",
            "method": "another method of the server runs the loop",
        },
    ),
)
