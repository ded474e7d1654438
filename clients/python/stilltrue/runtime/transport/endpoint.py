"""One recorded server as gRPC's core knows it: its number in the core's books, the loop or thread that runs it, its options.

An interceptor is told of none of these. The remote end of one of its first calls tells which of the core's servers it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from weakref import ref

from stilltrue.runtime.calls.server_options import AGE_OPTION
from stilltrue.runtime.introspection.frames import frames_of_this_thread, variables_of
from stilltrue.runtime.transport.channelz import Servers, peer_address

STREAMS_OPTION = "grpc.max_concurrent_streams"
MISSES_MAX = 3
"""Readings that do not show the remote end of a call, which may be older than the call, until that of another is taken."""
ATTEMPTS_MAX = 10
"""Calls that do not tell their remote end, until no more are asked."""


class Endpoint:
    """What is learnt of one server; nothing is kept alive by it."""

    __slots__ = ("_attempts", "_misses", "loop", "options", "peer", "server", "state")

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._attempts = 0
        self._misses = 0
        self.options: dict[str, Any] = {}
        self.loop: ref[asyncio.AbstractEventLoop] | None = None
        """The loop that runs a server of grpc.aio."""
        self.state: ref[Any] | None = None
        """What gRPC's thread of any other server keeps of it."""
        self.peer: str | None = None
        self.server: int | None = None
        """Its number in the core's books, never given twice."""

    @property
    def wants_peer(self) -> bool:
        """Whether a call would help to find it in the core's books."""
        return self.server is None and self.peer is None and self._attempts < ATTEMPTS_MAX

    @property
    def ends_connections(self) -> bool:
        """Whether it ends its connections by itself: calls that wait for one then go over another."""
        return AGE_OPTION in self.options

    @property
    def streams_max(self) -> int | None:
        """How many calls one connection may carry at once."""
        known = self.options.get(STREAMS_OPTION)
        return known if isinstance(known, int) and known > 0 else None

    def held_by(self, loop: Any, state: Any, interceptor: Any) -> str:
        """What of it is held, in words, by who holds this loop, or gRPC's thread with this state; empty: nothing.

        Of the thread only where ``interceptor``, ours, is the first to see each call.
        """
        if loop is not None and self.loop is not None and self.loop() is loop:
            return "the event loop of its server"
        if state is None or self.state is None or self.state() is not state:
            return ""
        pipeline = getattr(getattr(state, "interceptor_pipeline", None), "interceptors", ())
        return "its server's thread that accepts calls" if pipeline and pipeline[0] is interceptor else ""

    def given(self, options: Iterable[Any]) -> None:
        """The server's options were found."""
        self.options = {str(one[0]): one[1] for one in options if isinstance(one, tuple) and len(one) == 2}

    def heard_from(self, context: Any) -> None:
        """A call of a server of grpc.aio begins in the loop that runs this line."""
        loop = asyncio._get_running_loop()  # noqa: SLF001 - the documented way that does not raise
        if loop is not None:
            self.loop = ref(loop)
            self.peer = peer_address(context.peer())
        self._attempts += self.peer is None

    def runs_here(self) -> None:
        """gRPC's thread of the server runs this line: a call has arrived."""
        self._attempts += 1  # unless it succeeds
        for frame in frames_of_this_thread():
            names = variables_of(frame)
            event, state = names.get("rpc_event"), names.get("state")
            if self.peer is None and event is not None:
                self.peer = peer_address(event.call.peer().decode())
            if hasattr(state, "completion_queue"):
                self.state = ref(state)
                self._attempts -= self.peer is not None
                return

    def find(self, servers: Servers) -> None:
        """Look for it in the core's books by the remote end of its call; where that is gone or no name, by a later call's."""
        if self.server is not None or self.peer is None:
            return
        found = [number for number, connections in servers.items() if self.peer in connections]
        self._misses += 1
        if len(found) == 1:
            self.server = found[0]
        if self.server is not None or self._misses >= MISSES_MAX:
            self.peer, self._misses = None, 0
