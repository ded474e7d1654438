"""How much of its process the agent covers: the recorded servers and channels, and those that were made before the agent."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

from grpc import _channel, _server
from grpc.aio import _channel as _aio_channel
from grpc.aio import _server as _aio_server

from stilltrue.runtime.concurrent_reads import items_of, live_members
from stilltrue.runtime.locked_recorder import LockedRecorder

_CHANNELS = (_channel.Channel, _aio_channel.Channel)
_SERVERS = (_server._Server, _aio_server.Server)  # noqa: SLF001 - the class of grpc.server()


class Sight:
    """Counts the current objects without keeping them alive."""

    def __init__(self, live: LockedRecorder) -> None:
        """``live`` counts the calls."""
        self._live = live
        self.unexplained: Callable[[], int | None] = lambda: None
        """The number of parties that have not moved for a while and are in no known wait."""
        self.unexplained_calls: Callable[[], int | None] = lambda: None
        """The number of calls that such parties serve, whose reply is due; read after the above."""
        self.unexplained_waits: Callable[[], int | None] = lambda: None
        """The number of other parties that are stuck behind such parties, or behind unknown ones; read after the above."""
        self.instrumented = False
        """Whether every channel and server is recorded that is made from now on, not only those that the application wraps."""
        self.channels: WeakSet[Any] = WeakSet()
        """The methods of each recorded channel, which its stubs keep alive after it."""
        self.servers: WeakSet[Any] = WeakSet()
        """The interceptors of recorded servers."""
        self._channels_unseen: WeakSet[Any] = WeakSet()
        self._servers_unseen: WeakSet[Any] = WeakSet()
        self._others: dict[str, WeakSet[Any]] = {}

    def find_unrecorded(self) -> int:
        """Find the channels and servers that were made before the agent; return their number. Walks the heap once."""
        recorded = {id(methods.inner()) for methods in live_members(self.channels)}
        made = [thing for thing in gc.get_referrers(*_CHANNELS, *_SERVERS) if type(thing) in (*_CHANNELS, *_SERVERS)]
        self._channels_unseen.update(one for one in made if type(one) in _CHANNELS and id(one) not in recorded)
        self._servers_unseen.update(one for one in made if type(one) in _SERVERS and not _is_recorded(one, self.servers))
        return len(self._channels_unseen) + len(self._servers_unseen)

    def add_unrecorded(self, what: str, one: object) -> None:
        """Add a channel or server of a library that is not recorded; ``what`` describes it."""
        try:
            self._others.setdefault(what, WeakSet()).add(one)
        except Exception:  # noqa: BLE001 - fail open: it does not support weak references
            self._live.report_failure("noting an unrecorded library")

    def counts(self) -> dict[str, Any]:
        """The counts by their field names in the message to the detector."""
        return {
            "servers": len(self.servers),
            "channels": len(self.channels),
            "calls": self._live.recorder.calls,
            "servers_unseen": len(self._servers_unseen),
            "channels_unseen": len(self._channels_unseen),
            "blind": [_blind(len(there), what) for what, there in items_of(self._others) if len(there)],
            "unexplained": self.unexplained(),
            "unexplained_calls": self.unexplained_calls(),
            "unexplained_waits": self.unexplained_waits(),
            "instrumented": self.instrumented,
        }


def _is_recorded(server: Any, interceptors: Iterable[Any]) -> bool:
    """Whether one of our interceptors is in the server's pipeline; False if the pipeline cannot be read."""
    state = getattr(server, "_state", None)
    pipeline = getattr(getattr(state, "interceptor_pipeline", None), "interceptors", ())
    return any(one in interceptors for one in pipeline)


def _blind(count: int, what: str) -> str:
    owner, _, library = what.partition(" of ")
    return f"{count} {owner}{'s' if count > 1 else ''} of {library}, whose calls are not recorded"
