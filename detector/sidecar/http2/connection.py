"""One connection of a relay, split into frames; runs of unchanged frames are forwarded in one piece."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from detector.sidecar.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES_MAX,
    GOAWAY,
    HEAD_BYTES,
    HEADER_BLOCK_BYTES_MAX,
    HEADERS,
    PREFACE,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    BrokenFrameError,
    block_fragment,
)
from detector.sidecar.http2.hpack import HeaderReader, Headers

TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""How an alert and a handshake begin: neither is the beginning of HTTP/2."""

NO_TABLE = b"\x20"
"""Sent once, before the first header block, to set the size of our compression table to 0 (RFC 7541, 4.2)."""


class ConnectionPair(Protocol):
    """The two connections of a relay, as the handler of their frames."""

    def made(self, end: Connection) -> None:
        """The connection is established."""

    def headers(self, end: Connection, number: int, headers: Headers, ends: bool) -> bytes:
        """A header block arrived; return the frames to forward."""

    def data(self, end: Connection, number: int, flags: int, payload: bytes) -> bool:
        """A DATA frame arrived; return whether to forward it."""

    def reset(self, end: Connection, number: int) -> bool:
        """RST_STREAM arrived; return whether to forward it."""

    def settings(self, end: Connection, flags: int, payload: bytes) -> bytes:
        """SETTINGS arrived; return the frame to forward."""

    def leaves(self, end: Connection) -> None:
        """GOAWAY arrived; it is forwarded."""

    def lost(self, end: Connection, error: Exception | None) -> None:
        """The connection is lost."""

    def broken(self, end: Connection, why: str) -> None:
        """The peer violated the protocol; the connection is being closed."""

    def spoke_tls(self, end: Connection) -> None:
        """The peer speaks TLS on a plaintext connection, which is being closed."""


class Connection(asyncio.Protocol):
    """A connection of a relay; the pair and the other connection write to it."""

    def __init__(self, pair: ConnectionPair, faces_caller: bool) -> None:
        """``faces_caller``: the peer is the caller, which begins with the HTTP/2 preface."""
        self._pair = pair
        self.faces_caller = faces_caller
        self.other: Connection = self
        self.list_bytes_max: int | None = None
        self.frame_bytes_max = FRAME_BYTES_MAX
        """The largest frame that the peer may send: the largest size that the other peer has announced."""
        self.made = False
        self.gone = False
        self.heard = False
        """Whether the peer has sent anything."""
        self.left = False
        """Whether we have ended the connection."""
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._reader = HeaderReader()
        self._rest = bytearray()
        self._wanted = 0
        """The number of bytes that complete the first frame of the rest."""
        self._expects_preface = faces_caller
        self._table_disabled = False
        self._block: bytearray | None = None
        self._block_number = 0
        self._block_ends = False
        self._held = False

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the frames that were written before."""
        self._transport = cast("asyncio.Transport", transport)
        self.made = True
        if self.gone:
            transport.close()
            return
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._transport.write(b"".join(waiting))
        self._read_or_not()
        self._pair.made(self)

    def data_received(self, data: bytes) -> None:
        """Split the bytes into frames, inspect and forward them."""
        if not self.heard:
            self.heard = True
            if data.startswith(TLS_RECORDS):
                self._pair.spoke_tls(self)
                self._close_both()
                return
        try:
            passed = self._take(data)
        except BrokenFrameError as error:
            self._pair.broken(self, str(error))
            self._close_both()
            return
        if passed:
            self.other.write(passed)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is lost."""
        self.gone = True
        self._pair.lost(self, error)

    def pause_writing(self) -> None:
        """The peer reads slowly: stop reading from the other connection."""
        self.other.hold(True)

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.other.hold(False)

    # -- for the pair and the other connection -------------------------------------------------------------------------

    def write(self, frames: bytes) -> None:
        """Send frames, now or when the connection is established."""
        if self._transport is None:
            if not self.gone:
                self._waiting.append(frames)
        elif not self._transport.is_closing():
            self._transport.write(frames)

    def hold(self, held: bool) -> None:
        """Pause or resume reading."""
        self._held = held
        self._read_or_not()

    def close(self) -> None:
        """Close after sending the frames written so far; do not open if not yet established."""
        self.left = True
        if self._transport is not None:
            self._transport.close()
        elif not self.gone:
            self.gone = True
            self._waiting.clear()

    def abort(self) -> None:
        """Close at once, like an unreachable peer."""
        self.left = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def peer(self) -> str:
        """The host of the peer."""
        return peer_host(self._transport)

    def first_block(self) -> bytes:
        """Return the bytes that must precede the first header block sent here; empty from the second call on."""
        if self._table_disabled:
            return b""
        self._table_disabled = True
        return NO_TABLE

    def _close_both(self) -> None:
        self.close()
        self.other.close()

    def _read_or_not(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if self._held:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # -- frames --------------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> bytes:
        """Return the bytes to forward for the bytes that arrived."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return b""
            data = bytes(self._rest)
        at = 0
        if self._expects_preface:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise BrokenFrameError("not HTTP/2: no preface")
            if len(data) < len(PREFACE):
                self._rest, self._wanted = bytearray(data), 0
                return b""
            self._expects_preface = False
            at = len(PREFACE)
            self.other.write(PREFACE)
        return self._frames(data, at)

    def _frames(self, data: bytes, at: int) -> bytes:
        """Return the bytes to forward for the complete frames from ``at``; keep the rest."""
        passed: list[bytes] = []
        start, size = at, len(data)
        while (end := self._end(data, at)) <= size:
            changed = self._frame(data, at, end)
            if changed is not None:
                if start < at:
                    passed.append(data[start:at])
                passed.append(changed)
                start = end
            at = end
        if start < at:
            passed.append(data[start:at])
        self._rest, self._wanted = bytearray(data[at:]), end - at
        return b"".join(passed)

    def _end(self, data: bytes, at: int) -> int:
        """Return the end of the frame at ``at``, or of its header while that is incomplete."""
        if len(data) - at < HEAD_BYTES:
            return at + HEAD_BYTES
        length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
        if length > self.frame_bytes_max:
            raise BrokenFrameError(f"a frame of {length} bytes exceeds the limit of {self.frame_bytes_max}")
        return at + HEAD_BYTES + length

    def _frame(self, data: bytes, at: int, end: int) -> bytes | None:
        """Return the bytes to forward instead of the frame at ``data[at:end]``; None: forward the frame itself."""
        kind, flags = data[at + 3], data[at + 4]
        number = int.from_bytes(data[at + 5 : at + 9], "big") & 0x7FFF_FFFF
        if self._block is not None and kind != CONTINUATION:
            raise BrokenFrameError("a header block is incomplete")
        if kind == DATA:
            return None if self._pair.data(self, number, flags, data[at + HEAD_BYTES : end]) else b""
        if kind == HEADERS:
            self._block_number, self._block_ends = number, bool(flags & END_STREAM)
            return self._fragment(block_fragment(flags, data[at + HEAD_BYTES : end]), flags)
        if kind == CONTINUATION:
            if self._block is None or number != self._block_number:
                raise BrokenFrameError("CONTINUATION without HEADERS")
            return self._fragment(data[at + HEAD_BYTES : end], flags)
        if kind == SETTINGS:
            return self._pair.settings(self, flags, data[at + HEAD_BYTES : end])
        if kind == RST_STREAM:
            return None if self._pair.reset(self, number) else b""
        if kind == GOAWAY:
            self._pair.leaves(self)
        if kind == PUSH_PROMISE:
            raise BrokenFrameError("PUSH_PROMISE is not used by gRPC")
        return None

    def _fragment(self, fragment: bytes, flags: int) -> bytes:
        if self._block is not None:
            self._block += fragment
        elif not flags & END_HEADERS:
            self._block = bytearray(fragment)
        if self._block is not None and len(self._block) > HEADER_BLOCK_BYTES_MAX:
            raise BrokenFrameError("a header block is too long")
        if not flags & END_HEADERS:
            return b""
        block = fragment if self._block is None else bytes(self._block)
        self._block = None
        return self._pair.headers(self, self._block_number, self._reader.read(block), self._block_ends)


def peer_host(transport: asyncio.BaseTransport | None) -> str:
    """Return the host of the peer; with its port, each line of the log would be a new one."""
    name = None if transport is None else transport.get_extra_info("peername")
    return str(name[0]) if name else "unknown"


def connection_pair(pair: ConnectionPair) -> tuple[Connection, Connection]:
    """Return a relay's connections to the caller and to the server."""
    caller, server = Connection(pair, True), Connection(pair, False)
    caller.other, server.other = server, caller
    return caller, server
