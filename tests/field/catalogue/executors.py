"""Thread pools whose items wait for items of the same pool, threads that wait for imports, and for each other's locks."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="tiledb_1757",
        source="TileDB-Inc/TileDB 1757",
        library="concurrent.futures",
        what="Every thread of a pool waits for an item that the same pool has yet to begin.",
        near={
            "time_out": "`result` has a timeout",
            "one_more": "the pool has one thread more",
            "another_pool": "the inner items run in another pool",
            "cancelled": "a watchdog cancels the inner items",
            "shut_down": "a watchdog shuts the pool down with `cancel_futures`",
        },
    ),
    Entry(
        program="dask_4224",
        source="dask/distributed 4224",
        library="asyncio, concurrent.futures",
        what="An actor calls an actor of the same worker, which has one thread for all of its actors.",
        near={
            "time_out": "`result` has a timeout",
            "two_threads": "the worker has two threads for its actors",
            "another_worker": "the other actor has a thread of its own",
        },
    ),
    Entry(
        program="async_pool_4",
        source="jwiegley/async-pool 4",
        library="multiprocessing.pool",
        what="A function that is mapped by a pool maps another one by the same pool, all of whose threads do so.",
        near={
            "time_out": "`get` has a timeout",
            "one_more": "the pool has one thread more",
            "another_pool": "the inner items run in another pool",
        },
    ),
    Entry(
        program="import_waits",
        source="told everywhere",
        library="importlib",
        what="A module starts a thread while it is imported, and waits for it; the thread imports the module.",
        near={
            "time_out": "`join` has a timeout",
            "by_argument": "the thread does not import, but is slow",
        },
    ),
    Entry(
        program="keyed_locks",
        source="told everywhere",
        library="threading, contextlib",
        what="Two threads lock two accounts in two orders, each by its key, by a function under `contextmanager`.",
        near={
            "time_out": "`acquire` has a timeout",
            "one_order": "all lock the accounts in one order",
            "watched": "a watchdog releases the locks later",
        },
    ),
)
