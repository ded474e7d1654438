"""A recorded server as gRPC's core knows it: its channelz number, the loop or thread that runs it, and its options.

gRPC does not pass these to an interceptor. The remote address of one of its first calls identifies the server in channelz.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from stilltrue.runtime.calls.server_options import AGE_OPTION
from stilltrue.runtime.introspection.frames import frames_of_this_thread, variables_of
from stilltrue.runtime.transport.channelz import Servers, peer_address

STREAMS_OPTION = "grpc.max_concurrent_streams"
MISSES_MAX = 3
"""Number of readings without a call's remote address, each perhaps older than the call, before another call is tried."""
ATTEMPTS_MAX = 10
"""Number of calls without a readable remote address before the search ends."""


@dataclass(slots=True, eq=False)
class Endpoint:
    """What is known about one server; nothing at first. Holds only weak references."""

    options: dict[str, Any] = field(default_factory=dict)
    loop: ref[asyncio.AbstractEventLoop] | None = None
    """The loop that runs a server of grpc.aio."""
    state: ref[Any] | None = None
    """The state that gRPC's thread of any other server keeps."""
    peer: str | None = None
    server: int | None = None
    """Its channelz number, which is never reused."""
    _attempts: int = 0
    _misses: int = 0

    @property
    def wants_peer(self) -> bool:
        """Whether a call's remote address would help to find it in channelz."""
        return self.server is None and self.peer is None and self._attempts < ATTEMPTS_MAX

    @property
    def ends_connections(self) -> bool:
        """Whether it ends its connections by itself: calls that wait for one then use another."""
        return AGE_OPTION in self.options

    @property
    def streams_max(self) -> int | None:
        """Maximum number of concurrent calls on a connection; None: unlimited."""
        known = self.options.get(STREAMS_OPTION)
        return known if isinstance(known, int) and known > 0 else None

    def part_blocked_by(self, loop: Any, state: Any, interceptor: Any) -> str:
        """The part of it, as text, that a party blocks by blocking this loop, or gRPC's thread with this state; empty: none.

        The thread counts only if ``interceptor``, ours, is the first to see each call.
        """
        if loop is not None and self.loop is not None and self.loop() is loop:
            return "the event loop of its server"
        if state is None or self.state is None or self.state() is not state:
            return ""
        pipeline = getattr(getattr(state, "interceptor_pipeline", None), "interceptors", ())
        return "its server's thread that accepts calls" if pipeline and pipeline[0] is interceptor else ""

    def set_options(self, options: Iterable[Any]) -> None:
        """The server's options were found."""
        self.options = {str(one[0]): one[1] for one in options if isinstance(one, tuple) and len(one) == 2}

    def learn_from_call(self, context: Any) -> None:
        """Learn the loop and the remote address from a call of a grpc.aio server that begins in the running loop."""
        loop = asyncio._get_running_loop()  # noqa: SLF001 - the documented way that does not raise
        if loop is not None:
            self.loop = ref(loop)
            self.peer = peer_address(context.peer())
        self._attempts += self.peer is None

    def learn_from_thread(self) -> None:
        """Learn from the current thread, which is gRPC's thread of the server and has just accepted a call."""
        self._attempts += 1  # taken back on success
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
        """Look it up in channelz by its call's remote address; if that is gone or ambiguous, try a later call's."""
        if self.server is not None or self.peer is None:
            return
        found = [number for number, connections in servers.items() if self.peer in connections]
        self._misses += 1
        if len(found) == 1:
            self.server = found[0]
        if self.server is not None or self._misses >= MISSES_MAX:
            self.peer, self._misses = None, 0
