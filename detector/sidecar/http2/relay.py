"""The relay: forwards frames between a caller's HTTP/2 connection and a connection to the server, with the same stream ids.

DATA, flow control, PING, GOAWAY, RST_STREAM and SETTINGS pass through, so windows, limits, keepalives, half-closes and
cancellations work end to end. Only header blocks are decoded and re-encoded, since each connection has its own compression
table, and stamps are added and removed on the way. The relay makes no decisions: it reports to its :class:`CallObserver`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from detector.ops.address import Address
from detector.sidecar.failures import RelayFailure, left_unanswered, speaks_tls
from detector.sidecar.http2.connection import Connection, connection_pair
from detector.sidecar.http2.frames import (
    ACK,
    END_STREAM,
    HEADER_TABLE_SIZE,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    SETTINGS,
    BrokenFrameError,
    ErrorCode,
    data_content,
    frame,
    goaway,
    header_frames,
    reset,
    settings_frame,
    settings_of,
    window_update,
)
from detector.sidecar.http2.hpack import Headers, write_headers
from detector.sidecar.http2.messages import MessageCounter
from detector.sidecar.tls import Tls
from detector.sidecar.tracking.observer import CallObserver, TrackedCall, refusal

STREAM_MAX = 2**31 - 1
LINGER_SECONDS = 5.0
"""How long a connection stays open after all its streams were refused, so that the caller can read the reason."""


class Route(Protocol):
    """Decides where a relay leads."""

    @property
    def direction(self) -> str:
        """Whether the calls are inbound or outbound."""

    @property
    def address(self) -> Address | None:
        """The server's address, once it is known."""

    @property
    def tls(self) -> Tls | None:
        """The TLS of the connection to the server; None: plaintext."""

    def begin(self, relay: Relay) -> None:
        """The caller has connected."""

    def choose(self, relay: Relay, headers: Headers) -> CallObserver | str:
        """A request arrived; return its observer, or the reason why it cannot proceed."""


@dataclass(slots=True, eq=False)
class Stream:
    """One stream of a relay."""

    call: TrackedCall | None
    request: MessageCounter = field(default_factory=MessageCounter)
    reply: MessageCounter = field(default_factory=MessageCounter)
    request_ended: bool = False
    reply_ended: bool = False


class Relay:
    """Two joined connections, to the ``caller`` and to the ``server``."""

    def __init__(
        self,
        route: Route,
        *,
        fault: Callable[[str], None],
        warn: Callable[[RelayFailure], None],
        closed: Callable[[Relay], None],
    ) -> None:
        """``fault`` is called if our own code fails (the call goes on untracked), ``warn`` if a peer breaks the protocol."""
        self._route = route
        self._closed = closed
        self._observer: CallObserver | None = None
        self._own_settings = 0
        self._fault = fault
        self._warn = warn
        self.streams: dict[int, Stream] = {}
        self.refused: set[int] = set()
        self.newest = 0
        self._server_leaves = False
        self.caller, self.server = connection_pair(self)

    # -- from the connections -------------------------------------------------------------------------------------------

    def made(self, end: Connection) -> None:
        """A connection is established."""
        if end.faces_caller:
            self._route.begin(self)

    def headers(self, end: Connection, number: int, headers: Headers, ends: bool) -> bytes:
        """A header block arrived on ``end``; return the frames to forward."""
        to = end.other
        if end.faces_caller:
            if number > self.newest:
                return self._open(number, headers, ends)
            stream = self.streams.get(number)
            if stream is None:
                return b""  # trailers of a request that was refused or has ended
            block = to.first_block() + write_headers(headers)
            if ends:
                self._request_ended(number, stream)
            return header_frames(number, block, ends=ends)
        stream = self.streams.get(number)
        call = None if stream is None else stream.call
        if ends and call is not None:
            headers = self._trailers(call, headers, to.list_bytes_max)
            stream.call = None  # type: ignore[union-attr]  # a call is a stream's
        elif self._observer is not None:
            headers = self._observer.stripped(headers)
        if ends and stream is not None:
            self._reply_ended(number, stream)
        return header_frames(number, to.first_block() + write_headers(headers), ends=ends)

    def data(self, end: Connection, number: int, flags: int, payload: bytes) -> bool:
        """A DATA frame arrived on ``end``; return whether to forward it."""
        stream = self.streams.get(number)
        if stream is None:
            if number in self.refused:
                self._discard_data(number, flags, len(payload))
                return False
            return True
        ends = bool(flags & END_STREAM)
        if end.faces_caller:
            if stream.call is not None:
                self._request_data(stream, flags, payload)
            if ends:
                self._request_ended(number, stream)
        else:
            if stream.call is not None:
                self._reply_data(stream, flags, payload)
            if ends:
                self._break(stream, by_caller=False)  # a reply without trailers is not gRPC
                self._reply_ended(number, stream)
        return True

    def reset(self, end: Connection, number: int) -> bool:
        """RST_STREAM arrived on ``end``; return whether to forward it."""
        stream = self.streams.pop(number, None)
        if stream is not None:
            self._break(stream, by_caller=end.faces_caller)
        if number in self.refused:
            self.refused.discard(number)
            return False
        return True

    def settings(self, end: Connection, flags: int, payload: bytes) -> bytes:
        """SETTINGS arrived on ``end``; return the frame to forward, without the table size, which applies to one connection."""
        if flags & ACK:
            if end.faces_caller and self._own_settings:
                self._own_settings -= 1
                return b""
            return frame(SETTINGS, ACK, 0)
        kept = []
        for name, value in settings_of(payload):
            if name == MAX_HEADER_LIST_SIZE:
                end.list_bytes_max = value
            if name == MAX_FRAME_SIZE:
                end.other.frame_bytes_max = max(end.other.frame_bytes_max, value)
            if name != HEADER_TABLE_SIZE:
                kept.append((name, value))
        return settings_frame(kept)

    def leaves(self, end: Connection) -> None:
        """A peer closes its connection once the calls on it have ended; the server may end them before that."""
        if not end.faces_caller:
            self._leave()

    def broken(self, end: Connection, why: str) -> None:
        """A peer violated the protocol; log it."""
        text = f"a connection from the {'caller' if end.faces_caller else 'server'} was closed: {why}"
        self._warn(RelayFailure(direction=self._route.direction, peer=self._peer(end), text=text))

    def spoke_tls(self, end: Connection) -> None:
        """A peer speaks TLS, and the sidecar does not; log it."""
        self._warn(speaks_tls(self._route.direction, self._peer(end), calls=end.faces_caller))

    def lost(self, end: Connection, error: Exception | None) -> None:
        """A connection is lost: end its calls and the other connection."""
        if not (end.faces_caller or end.heard or end.left):
            route = self._route
            self._warn(left_unanswered(route.direction, self._peer(end), error, tls=route.tls is not None))
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            self._break(stream, by_caller=end.faces_caller)
        end.other.close()
        if self.caller.gone and (self.server.gone or not self.server.made):
            self._closed(self)

    def _peer(self, end: Connection) -> str:
        return end.peer if end.faces_caller else str(self._route.address)

    # -- streams -------------------------------------------------------------------------------------------------------

    def _open(self, number: int, headers: Headers, ends: bool) -> bytes:
        self.newest = number
        observer = self._route.choose(self, headers)
        if isinstance(observer, str):
            self.refuse(number, observer, request_ended=ends)
            return b""
        self._observer = observer
        call: TrackedCall | None = None
        try:
            headers, call = observer.opened(headers, self.server.list_bytes_max)
        except Exception:  # noqa: BLE001 - fail open
            self._fault("opening a call")
            headers = observer.stripped(headers)
        stream = self.streams[number] = Stream(call)
        if self._server_leaves:
            self._may_end(stream)
        if ends:
            self._request_ended(number, stream)
        return header_frames(number, self.server.first_block() + write_headers(headers), ends=ends)

    def greet(self) -> None:
        """Send default settings: callers wait for settings before they send a request."""
        self._own_settings += 1
        self.caller.write(settings_frame([]))

    def refuse(self, number: int, why: str, *, request_ended: bool) -> None:
        """Fail a call that cannot proceed, in the way gRPC servers do."""
        caller = self.caller
        caller.write(header_frames(number, caller.first_block() + write_headers(refusal(why)), ends=True))
        if not request_ended:
            self.refused.add(number)
            caller.write(reset(number, ErrorCode.NO_ERROR))

    def refuse_all(self, why: str) -> None:
        """The server cannot be reached: fail all calls, and make the caller reconnect."""
        for number, stream in self.streams.items():
            self._break(stream, by_caller=False)
            self.refuse(number, why, request_ended=stream.request_ended)
        self.streams.clear()
        self.caller.write(goaway(self.newest, why))
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self.caller.close)

    def drain(self) -> None:
        """Tell the caller to stop opening streams here."""
        self._leave()
        self.caller.write(goaway(STREAM_MAX))

    def close(self) -> None:
        """Close both connections."""
        self.caller.close()
        self.server.close()

    def _discard_data(self, number: int, flags: int, octets: int) -> None:
        if octets:
            self.caller.write(window_update(0, octets))
        if flags & END_STREAM:
            self.refused.discard(number)

    # -- to the observer -----------------------------------------------------------------------------------------------

    def _request_data(self, stream: Stream, flags: int, payload: bytes) -> None:
        call = stream.call
        if call is None:
            return
        try:
            if stream.request.feed(data_content(flags, payload)):
                call.request_message(stream.request.count)
        except BrokenFrameError:
            raise
        except Exception:  # noqa: BLE001 - fail open
            self._fault("a request message")

    def _reply_data(self, stream: Stream, flags: int, payload: bytes) -> None:
        call = stream.call
        if call is None:
            return
        try:
            content = data_content(flags, payload)
            if content:
                call.reply_begun()
            if stream.reply.feed(content):
                call.reply_message(stream.reply.count)
        except BrokenFrameError:
            raise
        except Exception:  # noqa: BLE001 - fail open
            self._fault("a reply message")

    def _request_ended(self, number: int, stream: Stream) -> None:
        stream.request_ended = True
        if stream.call is not None:
            try:
                stream.call.request_ended()
            except Exception:  # noqa: BLE001 - fail open
                self._fault("the end of a request")
        if stream.reply_ended:
            self.streams.pop(number, None)

    def _reply_ended(self, number: int, stream: Stream) -> None:
        stream.reply_ended = True
        if stream.request_ended:
            self.streams.pop(number, None)

    def _leave(self) -> None:
        if not self._server_leaves:
            self._server_leaves = True
            for stream in self.streams.values():
                self._may_end(stream)

    def _may_end(self, stream: Stream) -> None:
        if stream.call is not None:
            try:
                stream.call.server_leaves()
            except Exception:  # noqa: BLE001 - fail open
                self._fault("a server that leaves")

    def _trailers(self, call: TrackedCall, headers: Headers, limit: int | None) -> Headers:
        try:
            return call.trailers(headers, limit)
        except Exception:  # noqa: BLE001 - fail open
            self._fault("the end of a reply")
            return headers if self._observer is None else self._observer.stripped(headers)

    def _break(self, stream: Stream, *, by_caller: bool) -> None:
        call, stream.call = stream.call, None
        if call is not None:
            try:
                call.broken(by_caller=by_caller)
            except Exception:  # noqa: BLE001 - fail open
                self._fault("a broken call")
