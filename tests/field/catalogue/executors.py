"""Thread pools whose items wait for items of the same pool, and threads that wait for imports."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="bounded_executor",
        source="widely known",
        library="concurrent.futures",
        what="An executor's queue is limited by a semaphore that each item's end releases; the items submit further ones.",
        near={
            "limit": "the wait for room has a timeout",
            "released": "another thread makes room later",
            "more_room": "there is more room, and the items go on",
            "slow": "the items have not submitted anything yet",
        },
    ),
    Entry(
        program="tiledb_1757",
        source="TileDB-Inc/TileDB 1757",
        library="concurrent.futures",
        what="Every thread of a pool waits for an item that is still queued in the same pool.",
        near={
            "time_out": "`result` has a timeout",
            "one_more": "the pool has one more thread",
            "another_pool": "the inner items run in another pool",
            "cancelled": "a watchdog cancels the inner items",
            "shut_down": "a watchdog shuts the pool down with `cancel_futures`",
        },
    ),
    Entry(
        program="dask_4224",
        source="dask/distributed 4224",
        library="asyncio, concurrent.futures",
        what="An actor calls another actor of the same worker, which has one thread for all its actors.",
        near={
            "time_out": "`result` has a timeout",
            "two_threads": "the worker has two threads for its actors",
            "another_worker": "the other actor has its own thread",
        },
    ),
    Entry(
        program="async_pool_4",
        source="jwiegley/async-pool 4",
        library="multiprocessing.pool",
        what="A function mapped by a pool maps another function on the same pool, and every thread of the pool does so.",
        near={
            "time_out": "`get` has a timeout",
            "one_more": "the pool has one more thread",
            "another_pool": "the inner items run in another pool",
        },
    ),
    Entry(
        program="import_waits",
        source="widely known",
        library="importlib",
        what="During its import, a module starts a thread and waits for it; the thread imports the module.",
        near={
            "time_out": "`join` has a timeout",
            "by_argument": "the thread does not import the module, but is slow",
        },
    ),
    Entry(
        program="cpython_141617",
        source="python/cpython 141617",
        library="concurrent.futures",
        what="Two items wait for each other's future, as in the documentation of `concurrent.futures`.",
        near={
            "time_out": "`result` has a timeout",
            "works": "one of the items is working",
            "completed": "a watchdog completes one of the futures",
        },
    ),
    Entry(
        program="cpython_92001",
        source="python/cpython 92001",
        library="concurrent.futures",
        what="A future was cancelled as its executor was shut down, and `wait` waits for it; nobody tells it any more.",
        near={
            "limit": "`wait` has a timeout",
            "slow": "the cancelled future is in the executor's queue, and its thread is slow",
            "told": "another thread tells the cancelled futures later (`set_running_or_notify_cancel`)",
        },
    ),
    Entry(
        program="xorq_2243",
        source="xorq-labs/xorq 2243",
        library="concurrent.futures",
        what="Exchanges run in a pool, and each waits for its writer and its reader, which need threads of the same pool.",
        near={
            "time_out": "`result` has a timeout",
            "one_more": "the pool has one more thread",
            "another_pool": "writers and readers run in another pool",
        },
    ),
    Entry(
        program="fastapi_3205",
        source="fastapi/fastapi 3205",
        library="AnyIO, SQLAlchemy 2",
        what="Requests hold connections and need a thread; all threads are taken by requests that need a connection.",
        near={
            "one_more": "there is one more thread",
            "overflow": "the connection pool may overflow",
            "at_once": "each request takes, uses and closes its connection in one thread",
        },
        predicate="gridlock",
    ),
    Entry(
        program="pika_1686",
        source="pika/pika 1686",
        library="threading",
        what="A consumer's callback closes its connection: it joins the loop's thread, which joins the callback's thread.",
        near={
            "time_out": "`join` has a timeout",
            "at_once": "`close` does not wait for the loop",
            "from_outside": "another thread closes the connection; the callback is slow",
        },
    ),
    Entry(
        program="run_in_run",
        source="widely known",
        library="asyncio, concurrent.futures",
        what="An item of an executor runs its own event loop, and a coroutine there needs a thread of the same executor.",
        near={
            "time_out": "the coroutine waits in `asyncio.wait_for`",
            "two_threads": "the executor has one more thread",
            "elsewhere": "the coroutine needs a thread of another executor",
            "cancelled": "a watchdog cancels the coroutine later",
            "stopped": "a watchdog stops the inner loop later",
        },
    ),
    Entry(
        program="cpython_83978",
        source="python/cpython 83978",
        library="socketserver, http.server",
        what="A request handler shuts its server down, and waits until the server has finished the request.",
        near={
            "slow": "another thread shuts the server down; the handler is slow",
            "by_a_thread": "the handler lets a thread shut it down",
            "threads": "the server handles each request in its own thread",
        },
    ),
    Entry(
        program="asks_itself",
        source="widely known",
        library="Flask, requests",
        what="A web server with one thread asks itself: the request waits for the thread that makes it.",
        near={
            "limit": "the request has a timeout",
            "threads": "the server has a thread for each request",
            "slow": "the function is slow, and asks nobody",
        },
        modules=("flask", "requests"),
    ),
    Entry(
        program="cpython_83371",
        source="python/cpython 83371",
        library="multiprocessing.pool",
        what="A callback of a pool raises, which ends the pool's thread for results; no result comes any more.",
        near={
            "patience": "`get` has a timeout",
            "slow": "the callback does not raise yet, but is slow",
            "completed": "another thread sets the result later",
        },
        predicate="orphaned-resource",
    ),
    Entry(
        program="pool_callback",
        source="widely known",
        library="multiprocessing.pool",
        what="A callback of a pool waits for the same pool, whose thread for results runs it and would pass the answer on.",
        near={
            "patience": "`get` has a timeout",
            "slow": "the callback is slow, and does not wait yet",
            "another": "the callback waits for another pool, which is slow",
            "completed": "another thread sets the result later",
        },
    ),
    Entry(
        program="pool_join",
        source="widely known",
        library="multiprocessing.pool",
        what="A pool of threads is closed and joined; two of the items that it runs wait for each other's event.",
        near={
            "limit": "one of the waits has a timeout",
            "slow": "one of the items is slow, and does not wait",
            "later": "another thread sets one of the events later",
        },
    ),
    Entry(
        program="nested_imap",
        source="widely known",
        library="multiprocessing.pool",
        what="A function that a pool of one thread runs iterates over results of the same pool, which are queued behind it.",
        near={
            "patience": "`next` has a timeout",
            "one_more": "the pool has one more thread, which is slow",
            "another": "another pool runs the parts, slowly",
            "completed": "another thread sets an item later",
        },
    ),
)
