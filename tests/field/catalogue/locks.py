"""Threads that wait for locks which they have themselves, or for each other's."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
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
    Entry(
        program="locking_methods",
        source="told everywhere",
        library="threading",
        what="Two transfers lock two accounts in two orders, by methods of the account: `lock()` and `unlock()`.",
        near={
            "time_out": "`acquire` has a timeout",
            "before": "the first lock is given back before the second is wanted",
            "watched": "a watchdog gives a lock back later",
        },
    ),
    Entry(
        program="exit_stack",
        source="told everywhere",
        library="threading, contextlib",
        what="Transfers lock all of their accounts in a loop, through an `ExitStack`, in two orders.",
        near={
            "time_out": "`acquire` has a timeout",
            "one_order": "all lock the accounts in one order",
            "watched": "a watchdog closes the stack later",
        },
    ),
    Entry(
        program="texera_4794",
        source="apache/texera 4794",
        library="threading",
        what="A method reads a property of its object under the lock that the property takes; the lock is not reentrant.",
        near={"time_out": "the property gives up in time", "reentrant": "the lock is an `RLock`"},
    ),
    Entry(
        program="rich_90",
        source="Textualize/rich 90",
        library="threading",
        what="A display that ends joins the thread that refreshes it under the lock that this thread takes.",
        near={
            "time_out": "`join` has a timeout",
            "after": "it is joined after the lock has been released",
            "unlocked": "the thread does not want the lock, but is slow",
        },
    ),
    Entry(
        program="sentry_803",
        source="getsentry/sentry-python 803",
        library="queue, gc",
        what="A collection that begins within a queue's lock runs a destructor that puts something into the same queue.",
        near={"simple": "the queue is a `SimpleQueue`", "another": "the destructor reports to another queue"},
    ),
    Entry(
        program="kirocrew_11245",
        source="kirodotdev/KiroCrew 11245",
        library="weakref",
        what="A finalizer gives a lease back, and runs on the thread that has the lock of the leases.",
        near={"reentrant": "the lock is an `RLock`", "kept": "the handle is still in use"},
    ),
    Entry(
        program="cpython_151482",
        source="python/cpython 151482",
        library="concurrent.futures, signal",
        what="A signal's handler shuts an executor down while `submit` has its lock, on the same thread.",
        near={"later": "the handler only sets an event", "thread": "the handler starts a thread that shuts it down"},
    ),
    Entry(
        program="cpython_96727",
        source="python/cpython 96727",
        library="logging",
        what="A handler asks for a logger while logging is configured anew, which waits for the handler's lock.",
        near={
            "slow": "the handler does not want a logger, but is slow",
            "same_thread": "the handler itself configures logging anew: both locks are reentrant",
        },
    ),
    Entry(
        program="h5py_2064",
        source="h5py/h5py 2064",
        library="threading, functools",
        what="A cached property computes under its own lock, and wants the library's; another thread has that.",
        near={"time_out": "the property waits for the library's lock for a time", "unlocked": "the property has no lock"},
    ),
    Entry(
        program="waggle_67",
        source="Abhigyan-Shekhar/Waggle-mcp 67",
        library="threading (a hand-made readers-writer lock)",
        what="A thread that reads wants to write, and waits until all who read have ended.",
        near={
            "time_out": "the writer waits for a time",
            "before": "it has ended reading before it writes",
            "slow": "another thread reads, and is slow",
            "watched": "a watchdog sets the count of readers to nothing later",
        },
    ),
    Entry(
        program="minemeld_295",
        source="PaloAltoNetworks/minemeld-core 295",
        library="threading (a hand-made readers-writer lock)",
        what="A reader reads again while a writer waits for it; writers that wait have precedence over new readers.",
        near={
            "time_out": "the writer waits for a time",
            "at_once": "the reader does not read again",
            "slow": "the reader does not read again, but is slow",
            "watched": "a watchdog ends the reading later",
        },
    ),
)
