"""Threads that wait for locks which they have themselves, or for each other's."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="lock_signals",
        source="widely known",
        library="threading",
        what="Two workers take turns by two locks, each released by the other one; nobody has released the first one.",
        near={
            "limit": "`acquire` has a timeout",
            "slow": "one of the workers is slow, and does not wait yet",
            "timer": "a `threading.Timer` releases one of the locks",
            "handler": "a signal handler releases one of the locks",
        },
    ),
    Entry(
        program="keyed_locks",
        source="widely known",
        library="threading, contextlib",
        what="Two threads lock two accounts in opposite orders, each by key, through a function under `contextmanager`.",
        near={
            "time_out": "`acquire` has a timeout",
            "one_order": "all lock the accounts in the same order",
            "watched": "a watchdog releases the locks later",
        },
    ),
    Entry(
        program="locking_methods",
        source="widely known",
        library="threading",
        what="Two transfers lock two accounts in opposite orders, through the account's methods `lock()` and `unlock()`.",
        near={
            "time_out": "`acquire` has a timeout",
            "before": "the first lock is released before the second is acquired",
            "watched": "a watchdog releases a lock later",
        },
    ),
    Entry(
        program="told_to_wait",
        source="widely known",
        library="threading",
        what="Two transfers lock two accounts in opposite orders, by `acquire(True)` and `acquire(blocking=True)`.",
        near={
            "time_out": "one of the calls has a timeout",
            "may_fail": "one of them does not wait for its first lock (`acquire(False)`), and does something else",
            "watched": "a watchdog releases a lock later",
        },
    ),
    Entry(
        program="polls_thread",
        source="widely known",
        library="threading",
        what="A thread stops its worker under a lock that the worker needs, by `while worker.is_alive(): worker.join(0.5)`.",
        near={
            "time_out": "it asks for a limited time",
            "interrupted": "it would stop asking at Ctrl-C",
            "slow": "the worker is slow, and does not need the lock yet",
        },
    ),
    Entry(
        program="exit_stack",
        source="widely known",
        library="threading, contextlib",
        what="Transfers lock all of their accounts in a loop, through an `ExitStack`, in different orders.",
        near={
            "time_out": "`acquire` has a timeout",
            "one_order": "all lock the accounts in the same order",
            "watched": "a watchdog closes the stack later",
        },
    ),
    Entry(
        program="exit_callback",
        source="widely known",
        library="threading, contextlib, gRPC",
        what="A handler leaves the release of a lock to an `ExitStack`, and calls its service, which needs the lock.",
        near={
            "time_out": "`acquire` has a timeout",
            "before": "the stack is closed before the call",
            "watched": "a watchdog closes the stack later",
        },
    ),
    Entry(
        program="texera_4794",
        source="apache/texera 4794",
        library="threading",
        what="A method reads a property of its object under the lock that the property takes; the lock is not reentrant.",
        near={"time_out": "the property's wait has a timeout", "reentrant": "the lock is an `RLock`"},
    ),
    Entry(
        program="rich_90",
        source="Textualize/rich 90",
        library="threading",
        what="A display that stops joins its refresh thread while holding the lock that this thread takes.",
        near={
            "time_out": "`join` has a timeout",
            "after": "the thread is joined after the lock has been released",
            "unlocked": "the thread does not need the lock, but is slow",
        },
    ),
    Entry(
        program="sentry_803",
        source="getsentry/sentry-python 803",
        library="queue, gc",
        what="Garbage collection under a queue's lock runs a destructor that puts something into the same queue.",
        near={"simple": "the queue is a `SimpleQueue`", "another": "the destructor reports to another queue"},
    ),
    Entry(
        program="kirocrew_11245",
        source="kirodotdev/KiroCrew 11245",
        library="weakref",
        what="A finalizer that returns a lease runs on the thread that holds the lock of the leases.",
        near={"reentrant": "the lock is an `RLock`", "kept": "the handle is still in use"},
    ),
    Entry(
        program="cpython_151482",
        source="python/cpython 151482",
        library="concurrent.futures, signal",
        what="A signal handler shuts an executor down while `submit` holds its lock, on the same thread.",
        near={"later": "the handler only sets an event", "thread": "the handler starts a thread that shuts it down"},
    ),
    Entry(
        program="cpython_96727",
        source="python/cpython 96727",
        library="logging",
        what="A handler requests a logger during a reconfiguration of logging, which waits for the handler's lock.",
        near={
            "slow": "the handler does not request a logger, but is slow",
            "same_thread": "the handler itself reconfigures logging: both locks are reentrant",
        },
    ),
    Entry(
        program="h5py_2064",
        source="h5py/h5py 2064",
        library="threading, functools",
        what="A cached property needs the library's lock under its own; another thread holds that one and needs the property.",
        near={"time_out": "the wait for the library's lock has a timeout", "unlocked": "the property has no lock"},
    ),
    Entry(
        program="waggle_67",
        source="Abhigyan-Shekhar/Waggle-mcp 67",
        library="threading (a hand-made readers-writer lock)",
        what="A thread that is reading wants to write, and waits until all readers have finished.",
        near={
            "time_out": "the writer's wait has a timeout",
            "before": "it stops reading before it writes",
            "slow": "another thread is reading, and is slow",
            "watched": "a watchdog resets the number of readers later",
        },
    ),
    Entry(
        program="minemeld_295",
        source="PaloAltoNetworks/minemeld-core 295",
        library="threading (a hand-made readers-writer lock)",
        what="A reader acquires the lock again while a writer waits for it; waiting writers have precedence over new readers.",
        near={
            "time_out": "the writer's wait has a timeout",
            "at_once": "the reader does not read again",
            "slow": "the reader does not read again, but is slow",
            "watched": "a watchdog ends the read later",
        },
    ),
    Entry(
        program="nested_permits",
        source="widely known",
        library="threading",
        what="Each request takes a permit, and so does each step within it; there are as many requests as permits.",
        near={
            "limit": "the wait for the second permit has a timeout",
            "one_more": "there is one more permit",
            "slow": "the steps have not begun",
            "released": "another thread releases one more permit later",
        },
    ),
    Entry(
        program="keys_in_use",
        source="widely known",
        library="threading, gRPC",
        what="Two requests mark an account as in use, and each calls the service for the other's account.",
        near={
            "limit": "the inner call has a deadline",
            "slow": "the inner calls are for other accounts, and are slow",
            "freed": "another thread frees an account later",
        },
    ),
    Entry(
        program="cached_recursion",
        source="widely known",
        library="cachetools",
        what="A cached function, computed by one caller at a time for each key, calls itself for a key that is being computed.",
        near={
            "slow": "the function does not call itself for that key, but is slow",
            "in_time": "a thread calls it for that key, and `join` has a timeout",
        },
        modules=("cachetools",),
    ),
    Entry(
        program="dogpile_recursion",
        source="widely known",
        library="dogpile.cache",
        what="A cached function, computed by one caller at a time for each key, calls itself for a key that is being computed.",
        near={
            "slow": "the function does not call itself for that key, but is slow",
            "in_time": "a thread calls it for that key, and `join` has a timeout",
            "released": "another thread releases the key's lock later",
        },
        modules=("dogpile.cache",),
    ),
    Entry(
        program="reader_writes",
        source="elarivie/pyReaderWriterLock 12",
        library="readerwriterlock",
        what="A thread that is reading wants to write; none of the library's locks can be upgraded.",
        near={
            "limit": "the writer's wait has a timeout",
            "slow": "it has yet to ask to write",
            "released_before": "it stops reading before it writes; another reader is slow",
            "rescued": "another thread releases the reader's lock later",
        },
        modules=("readerwriterlock",),
    ),
    Entry(
        program="cachebox_54",
        source="awolverp/cachebox 54",
        library="cachebox",
        what="A cached function, which logs, is called by the log's handler for the key that it is computing.",
        near={
            "slow": "the function is slow, and logs nothing yet",
            "other_key": "the handler calls it for another key, which is slow",
            "in_time": "another thread logs, and is joined with a timeout",
        },
        modules=("cachebox",),
    ),
    Entry(
        program="generator_lock",
        source="widely known",
        library="threading",
        what="A generator yields items under their collection's lock; the loop over them calls a method that needs the lock.",
        near={
            "limit": "the method's `acquire` has a timeout",
            "copied": "the items are copied under the lock and yielded without it, and the loop is slow",
            "closed": "another thread has the generator, and closes it later",
        },
    ),
)
