"""One gRPC stream over a connection of its own, its HTTP/2 frames written by hand: thousands of members fit into one process.

A client of ``grpc.aio`` takes as much processor as the detector that it is to measure. The detector's side is gRPC's own.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterator

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_STREAM = 1
_WINDOW, _WINDOW_MAX = 65_535, 2**31 - 1
_INITIAL_WINDOW_SIZE = 4
_FRAME_BYTES_MAX = 16_384
_HEAD_BYTES, _PREFIX_BYTES = 9, 5
_BUFFER = memoryview(bytearray(64 * 1024))


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """One frame (RFC 9113, 4.1)."""
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _opening(authority: str, path: str) -> bytes:
    """What opens a connection and its only stream: as much as it wants may be sent to it, for good."""
    headers = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": authority, "te": "trailers",
        "content-type": "application/grpc",
    }  # fmt: skip
    packed = b"".join(b"\0" + _counted(name) + _counted(text) for name, text in headers.items())
    wide = frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _WINDOW_MAX - _WINDOW))
    settings = frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, _WINDOW_MAX))
    return _PREFACE + settings + wide + frame(_HEADERS, _END_HEADERS, _STREAM, packed)


def _counted(text: str) -> bytes:
    """A string as HPACK has it where it is not compressed (RFC 7541, 5.2)."""
    return bytes([len(text)]) + text.encode()


class FramedStream(asyncio.BufferedProtocol):
    """A stream of messages, as bytes; ``heard`` gets each that comes."""

    def __init__(self, authority: str, path: str, heard: Callable[[bytes], None]) -> None:
        self._opening = _opening(authority, path)
        self._heard = heard
        self._came = bytearray()
        self._parts = bytearray()
        self._unsent: deque[bytes] = deque()
        self._room = {0: _WINDOW, _STREAM: _WINDOW}
        self._window = _WINDOW
        self._transport: asyncio.Transport | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is opened at once."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._opening)

    def connection_lost(self, _: Exception | None) -> None:
        """Also after :meth:`_end`."""
        if not self.over.done():
            self.over.set_result(None)

    def send(self, message: bytes) -> None:
        """Send a message as soon as the other side has room for it."""
        whole = struct.pack(">BI", 0, len(message)) + message
        self._unsent.extend(whole[at : at + _FRAME_BYTES_MAX] for at in range(0, len(whole), _FRAME_BYTES_MAX))
        self._flush()

    def _flush(self) -> None:
        assert self._transport is not None
        room = self._room
        while self._unsent and len(self._unsent[0]) <= min(room[0], room[_STREAM]) and not self._transport.is_closing():
            part = self._unsent.popleft()
            room[0] -= len(part)
            room[_STREAM] -= len(part)
            self._transport.write(frame(_DATA, 0, _STREAM, part))

    def get_buffer(self, sizehint: int) -> memoryview:
        """One for all streams: what comes is taken out of it at once."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Take all whole frames."""
        self._came += _BUFFER[:nbytes]
        for kind, flags, stream, body in self._frames():
            self._take(kind, flags, stream, body)

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        while len(self._came) >= _HEAD_BYTES:
            end = _HEAD_BYTES + int.from_bytes(self._came[:3])
            if len(self._came) < end:
                return
            stream, body = int.from_bytes(self._came[5:_HEAD_BYTES]), bytes(self._came[_HEAD_BYTES:end])
            kind, flags = self._came[3], self._came[4]
            del self._came[:end]
            yield kind, flags, stream, body

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        assert self._transport is not None
        if kind == _DATA:
            self._parts += body
            for message in self._messages():
                self._heard(message)
        elif kind == _WINDOW_UPDATE:
            self._room[stream] += int.from_bytes(body)
            self._flush()
        elif kind == _PING and not flags & _ACK:
            self._transport.write(frame(_PING, _ACK, 0, body))
        elif kind == _SETTINGS and not flags & _ACK:
            self._set(body)
            self._transport.write(frame(_SETTINGS, _ACK, 0))
            self._flush()
        if kind in {_RESET, _GOAWAY} or (kind in {_DATA, _HEADERS} and flags & _END_STREAM):
            self._transport.close()

    def _set(self, body: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", body):
            if name == _INITIAL_WINDOW_SIZE:
                self._room[_STREAM] += value - self._window
                self._window = value

    def _messages(self) -> Iterator[bytes]:
        while len(self._parts) >= _PREFIX_BYTES:
            end = _PREFIX_BYTES + int.from_bytes(self._parts[1:_PREFIX_BYTES])
            if len(self._parts) < end:
                return
            message = bytes(self._parts[_PREFIX_BYTES:end])
            del self._parts[:end]
            yield message
