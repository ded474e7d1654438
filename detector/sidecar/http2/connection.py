"""One end of a relay: a connection, cut into frames. What passes untouched is passed on in one piece."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from detector.sidecar.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
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
from detector.sidecar.http2.headers import HeaderReader, Headers

NO_TABLE = b"\x20"
"""Said once, before the first header block: we use no compression table, whatever size the peer allows (RFC 7541, 4.2)."""


class ConnectionPair(Protocol):
    """What joins two ends."""

    def made(self, end: Connection) -> None:
        """The connection is made."""

    def headers(self, end: Connection, number: int, headers: Headers, ends: bool) -> bytes:
        """A header block came: the frames to send on."""

    def data(self, end: Connection, number: int, flags: int, payload: bytes) -> bool:
        """A DATA frame came: whether it passes."""

    def reset(self, end: Connection, number: int) -> bool:
        """RST_STREAM came: whether it passes."""

    def settings(self, end: Connection, flags: int, payload: bytes) -> bytes:
        """SETTINGS came: the frame to send on."""

    def lost(self, end: Connection) -> None:
        """The connection is gone."""

    def broken(self, end: Connection, why: str) -> None:
        """The peer broke the protocol; the connection is being closed."""


class Connection(asyncio.Protocol):
    """A connection of a relay. It is written to from :meth:`ConnectionPair` and by its other end."""

    def __init__(self, pair: ConnectionPair, faces_caller: bool) -> None:
        """``faces_caller``: the peer is who calls, and begins with HTTP/2's preface."""
        self._pair = pair
        self.faces_caller = faces_caller
        self.other: Connection = self
        self.list_bytes_max: int | None = None
        self.made = False
        self.gone = False
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._reader = HeaderReader()
        self._rest = b""
        self._expects_preface = faces_caller
        self._said_no_table = False
        self._block: bytearray | None = None
        self._block_number = 0
        self._block_ends = False
        self._held = False

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """What was written before now goes out."""
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
        """Cut into frames, look, pass on."""
        try:
            passed = self._take(data)
        except BrokenFrameError as error:
            self._pair.broken(self, str(error))
            self.close()
            self.other.close()
            return
        if passed:
            self.other.write(passed)

    def connection_lost(self, _: Exception | None) -> None:
        """The connection is gone."""
        self.gone = True
        self._pair.lost(self)

    def pause_writing(self) -> None:
        """The peer reads slowly: read no more of what is meant for it."""
        self.other.hold(True)

    def resume_writing(self) -> None:
        """The peer has read."""
        self.other.hold(False)

    # -- what the joint and the other end do ---------------------------------------------------------------------------

    def write(self, frames: bytes) -> None:
        """Send frames; before the connection is made, as soon as it is."""
        if self._transport is None:
            if not self.gone:
                self._waiting.append(frames)
        elif not self._transport.is_closing():
            self._transport.write(frames)

    def hold(self, held: bool) -> None:
        """Stop or go on reading."""
        self._held = held
        self._read_or_not()

    def close(self) -> None:
        """Close, after what was written; or never open."""
        if self._transport is not None:
            self._transport.close()
        elif not self.gone:
            self.gone = True
            self._waiting.clear()

    def abort(self) -> None:
        """Close at once, as a peer that is not there."""
        if self._transport is not None:
            self._transport.abort()

    def first_block(self) -> bytes:
        """What must stand before the first header block that is sent here; nothing later."""
        if self._said_no_table:
            return b""
        self._said_no_table = True
        return NO_TABLE

    def _read_or_not(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if self._held:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # -- frames --------------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> bytes:
        """The bytes to pass on for the bytes that came."""
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        if self._expects_preface:
            if not PREFACE.startswith(data[: len(PREFACE)]):
                raise BrokenFrameError("not HTTP/2: no preface")
            if size < len(PREFACE):
                self._rest = data
                return b""
            self._expects_preface = False
            at = len(PREFACE)
            self.other.write(PREFACE)
        passed: list[bytes] = []
        start = at
        while size - at >= HEAD_BYTES:
            end = at + HEAD_BYTES + (data[at] << 16 | data[at + 1] << 8 | data[at + 2])
            if end > size:
                break
            changed = self._frame(data, at, end)
            if changed is not None:
                if start < at:
                    passed.append(data[start:at])
                passed.append(changed)
                start = end
            at = end
        if start < at:
            passed.append(data[start:at])
        self._rest = data[at:]
        return b"".join(passed)

    def _frame(self, data: bytes, at: int, end: int) -> bytes | None:
        """What goes on instead of the frame at ``data[at:end]``; None: the frame itself."""
        kind, flags = data[at + 3], data[at + 4]
        number = int.from_bytes(data[at + 5 : at + 9], "big") & 0x7FFF_FFFF
        if self._block is not None and kind != CONTINUATION:
            raise BrokenFrameError("a header block is cut off")
        if kind == DATA:
            return None if self._pair.data(self, number, flags, data[at + HEAD_BYTES : end]) else b""
        if kind == HEADERS:
            self._block_number, self._block_ends = number, bool(flags & END_STREAM)
            return self._fragment(block_fragment(flags, data[at + HEAD_BYTES : end]), flags)
        if kind == CONTINUATION:
            if self._block is None or number != self._block_number:
                raise BrokenFrameError("CONTINUATION: of nothing")
            return self._fragment(data[at + HEAD_BYTES : end], flags)
        if kind == SETTINGS:
            return self._pair.settings(self, flags, data[at + HEAD_BYTES : end])
        if kind == RST_STREAM:
            return None if self._pair.reset(self, number) else b""
        if kind == PUSH_PROMISE:
            raise BrokenFrameError("PUSH_PROMISE: gRPC knows none")
        return None

    def _fragment(self, fragment: bytes, flags: int) -> bytes:
        block = fragment
        if self._block is not None:
            self._block += fragment
            block = bytes(self._block)
        if not flags & END_HEADERS:
            self._block = self._block if self._block is not None else bytearray(fragment)
            if len(self._block) > HEADER_BLOCK_BYTES_MAX:
                raise BrokenFrameError("a header block that is too long")
            return b""
        self._block = None
        return self._pair.headers(self, self._block_number, self._reader.read(block), self._block_ends)


def connection_pair(pair: ConnectionPair) -> tuple[Connection, Connection]:
    """Two ends of one joint: towards the caller, and towards the server."""
    caller, server = Connection(pair, True), Connection(pair, False)
    caller.other, server.other = server, caller
    return caller, server
