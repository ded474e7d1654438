"""Locks, loops and queues of libraries, as reported to them."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="blivet_1500",
        source="storaged-project/blivet 1500",
        library="logging, threading",
        what="`__str__` needs the library's lock; a log handler calls it under its own lock, for which the lock's owner waits.",
        near={
            "patience": "the wait for the library's lock has a timeout",
            "slow": "`__str__` is slow, and does not take the lock yet",
        },
    ),
    Entry(
        program="prefect_7897",
        source="PrefectHQ/prefect 7897",
        library="asyncio, threading",
        what="A thread that sets an event waits for the loop of the waiter, which joins the thread.",
        near={
            "patience": "`result` has a timeout",
            "limit": "`join` has a timeout",
            "slow": "the thread is slow, and does not wait for the loop yet",
            "one_way": "the thread does not wait for the loop",
        },
    ),
    Entry(
        program="ml_compiler_opt_108",
        source="google/ml-compiler-opt 108",
        library="concurrent.futures, threading",
        what="A future is completed under a lock, and its callback makes a call that takes the lock.",
        near={
            "patience": "the wait for the lock has a timeout",
            "reentrant": "the lock is an `RLock`",
            "slow": "the callback is slow, and does not take the lock yet",
        },
    ),
    Entry(
        program="clustershell_145",
        source="clustershell/clustershell 145",
        library="queue",
        what="A task's queue is full, and the thread that fills it would read it only afterwards.",
        near={
            "patience": "`put` has a timeout",
            "unbounded": "the queue is unbounded",
            "engine": "another thread reads the queue later",
        },
    ),
    Entry(
        program="paho_346",
        source="eclipse-paho/paho.mqtt.python 346",
        library="threading",
        what="A client runs a callback under its lock, which takes the application's; another thread publishes under that one.",
        near={
            "patience": "the wait for the client's lock has a timeout",
            "slow": "the callback is slow, and does not take the lock yet",
            "outside": "the other thread publishes without the lock",
        },
    ),
    Entry(
        program="dynamiq_673",
        source="dynamiq-ai/dynamiq 673",
        library="asyncio, threading",
        what="A coroutine awaits while it holds a threading lock, and another coroutine blocks the loop at that lock.",
        near={
            "patience": "the wait for the lock has a timeout",
            "slow": "the other coroutine does not take the lock yet",
            "released": "another thread releases the lock later",
        },
    ),
    Entry(
        program="sh_564",
        source="amoffat/sh 564",
        library="threading",
        what="A callback runs under the lock of `wait()`, and asks for the command's text, which waits for the command.",
        near={
            "patience": "the wait for the lock has a timeout",
            "reentrant": "the lock is an `RLock`",
            "slow": "the callback is slow, and does not ask yet",
        },
    ),
    Entry(
        program="pyheos_58",
        source="andrewsayre/pyheos 58",
        library="asyncio",
        what="A command's failure calls a handler under the lock that every command takes; the handler sends a command.",
        near={
            "patience": "the handler's command has a timeout",
            "slow": "the handler is slow, and sends no command yet",
            "task": "the handler sends its command in a task, for which it waits with a timeout",
        },
    ),
)
