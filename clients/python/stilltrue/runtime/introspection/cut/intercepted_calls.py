"""Finds the calls that the application's interceptors on an event loop work on, and when gRPC ends each of them.

Rules:

1. Between a call's arrival and the start of its handler, gRPC's task for the call runs the interceptors. While it is suspended
   there, it serves the call as a handler does: the caller's wait ends when the task goes on.
2. A handler's context knows the call's deadline, but there is none yet, so it is read from gRPC's own object. If that fails,
   the call may end at any moment.
"""

from __future__ import annotations

from stilltrue.model import PartyName
from stilltrue.protocol.books.call_state import ServerState
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.parties import Parties


def intercepted_calls(parties: Parties, now: float) -> dict[PartyName, float | None]:
    """These calls by party, each with its deadline (epoch; None: it has none), at ``now`` (epoch)."""
    found: dict[PartyName, float | None] = {}
    for root in list(parties.roots.values()):
        served = root.served
        if served.state is ServerState.QUEUED and not served.pool and blocking_future(root.task) is not None:
            try:
                left = compat.aio_seconds_left(root.task)
            except (AttributeError, LookupError, TypeError):
                left = 0.0
            found[root.party] = None if left is None else now + left
    return found
