"""The names of the operations that end waits, by the kind of object. Code that mentions none of them ends no such wait."""

from __future__ import annotations

import asyncio

SETTING = frozenset({"set"})
"""Of an event."""
NOTIFYING = frozenset({"notify", "notify_all"})
"""Of a condition."""
RELEASE = frozenset({"release"})
"""Of a lock or a semaphore; ``resolvers.locks`` has further names that release a lock."""
AT_BARRIERS = frozenset({"wait", "reset", "abort"})
PUTTING = frozenset({"put", "put_nowait"})
"""Of a queue, for who waits for an item."""
TAKING = frozenset({"get", "get_nowait"})
"""Of a queue, for who waits for room."""
ACKNOWLEDGING = frozenset({"task_done"})
"""Of a queue, for who waits until all its items are done."""
SHUTTING = frozenset({"shutdown"}) if hasattr(asyncio.Queue, "shutdown") else frozenset[str]()
"""Of a queue, for any wait: since Python 3.13."""
COMPLETING = frozenset({"set_result", "set_exception"})
"""Of a future that runs, which cannot be cancelled."""
COMPLETING_OR_CANCELLING = COMPLETING | {"cancel"}
"""Of any future."""
