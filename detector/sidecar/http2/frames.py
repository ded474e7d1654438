"""HTTP/2 frames (RFC 9113): codes, writers, and parsers for the few that a relay must inspect."""

from __future__ import annotations

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
FRAME_BYTES_MAX = 16_384
"""The frame size that all peers accept (RFC 9113, section 4.2)."""

HEADER_BLOCK_BYTES_MAX = 2**20
"""The largest header block; far above the limits of gRPC implementations."""

DATA = 0x0
HEADERS = 0x1
RST_STREAM = 0x3
SETTINGS = 0x4
PUSH_PROMISE = 0x5
GOAWAY = 0x7
WINDOW_UPDATE = 0x8
CONTINUATION = 0x9

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20

HEADER_TABLE_SIZE = 0x1
MAX_FRAME_SIZE = 0x5
MAX_HEADER_LIST_SIZE = 0x6

_HEAD = struct.Struct(">HBBBL")
_SETTING = struct.Struct(">HL")


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0x0
    CANCEL = 0x8


class BrokenFrameError(Exception):
    """The peer sent an invalid frame: the connection cannot continue."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    length = len(payload)
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def header_frames(stream: int, block: bytes, *, ends: bool) -> bytes:
    """Return a header block as HEADERS and, if it is long, CONTINUATION frames. ``ends``: it ends the stream."""
    flags = END_STREAM if ends else 0
    if len(block) <= FRAME_BYTES_MAX:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    parts = [block[at : at + FRAME_BYTES_MAX] for at in range(0, len(block), FRAME_BYTES_MAX)]
    frames = [frame(HEADERS, flags, stream, parts[0])]
    frames += [frame(CONTINUATION, 0, stream, part) for part in parts[1:-1]]
    frames.append(frame(CONTINUATION, END_HEADERS, stream, parts[-1]))
    return b"".join(frames)


def reset(stream: int, code: ErrorCode) -> bytes:
    """Return the frame that resets a stream."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway(last_stream: int, text: str = "") -> bytes:
    """Return the frame that announces that no stream above ``last_stream`` will be served; the peer reconnects."""
    payload = last_stream.to_bytes(4, "big") + ErrorCode.NO_ERROR.to_bytes(4, "big") + text.encode()
    return frame(GOAWAY, 0, 0, payload)


def window_update(stream: int, octets: int) -> bytes:
    """Return the frame that allows the peer this many more bytes (stream 0: on the whole connection)."""
    return frame(WINDOW_UPDATE, 0, stream, octets.to_bytes(4, "big"))


def block_fragment(flags: int, payload: bytes) -> bytes:
    """Return the header block fragment of a HEADERS frame, without padding and priority."""
    start, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise BrokenFrameError("HEADERS: padded, but empty")
        start, end = 1, end - payload[0]
    if flags & PRIORITY:
        start += 5
    if start > end:
        raise BrokenFrameError("HEADERS: the padding exceeds the frame")
    return payload[start:end]


def data_content(flags: int, payload: bytes) -> bytes:
    """Return the content of a DATA frame, without padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise BrokenFrameError("DATA: the padding exceeds the frame")
    return payload[1 : len(payload) - payload[0]]


def settings_of(payload: bytes) -> list[tuple[int, int]]:
    """Return the settings of a frame, in order."""
    if len(payload) % _SETTING.size:
        raise BrokenFrameError("SETTINGS: truncated")
    return list(_SETTING.iter_unpack(payload))


def settings_frame(settings: list[tuple[int, int]]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(name, value) for name, value in settings))
