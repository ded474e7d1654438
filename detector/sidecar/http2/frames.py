"""HTTP/2's frames (RFC 9113): their numbers, how they are written, and the few of them that a relay has to look into."""

from __future__ import annotations

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
FRAME_BYTES_MAX = 16_384
"""Bytes in a frame that every peer takes (RFC 9113, section 4.2)."""

HEADER_BLOCK_BYTES_MAX = 2**20
"""Bytes in one header block at the most; far above what any gRPC implementation takes."""

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
MAX_HEADER_LIST_SIZE = 0x6

_HEAD = struct.Struct(">HBBBL")
_SETTING = struct.Struct(">HL")


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9


class BrokenFrameError(Exception):
    """A frame that no correct peer sends: the connection cannot go on. The peer's fault."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    length = len(payload)
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def header_frames(stream: int, block: bytes, *, ends: bool) -> bytes:
    """A header block as HEADERS and, where it is long, CONTINUATION. ``ends``: nothing follows on the stream."""
    flags = END_STREAM if ends else 0
    if len(block) <= FRAME_BYTES_MAX:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    parts = [block[at : at + FRAME_BYTES_MAX] for at in range(0, len(block), FRAME_BYTES_MAX)]
    frames = [frame(HEADERS, flags, stream, parts[0])]
    frames += [frame(CONTINUATION, 0, stream, part) for part in parts[1:-1]]
    frames.append(frame(CONTINUATION, END_HEADERS, stream, parts[-1]))
    return b"".join(frames)


def reset(stream: int, code: ErrorCode) -> bytes:
    """The end of one stream, without a reply."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway(last_stream: int, text: str = "") -> bytes:
    """No stream above ``last_stream`` will be served; the peer opens another connection."""
    payload = last_stream.to_bytes(4, "big") + ErrorCode.NO_ERROR.to_bytes(4, "big") + text.encode()
    return frame(GOAWAY, 0, 0, payload)


def window_update(stream: int, octets: int) -> bytes:
    """The peer may send so many more bytes (stream 0: on all streams together)."""
    return frame(WINDOW_UPDATE, 0, stream, octets.to_bytes(4, "big"))


def block_fragment(flags: int, payload: bytes) -> bytes:
    """What a HEADERS frame holds of its header block, without padding and the old priority."""
    start, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise BrokenFrameError("HEADERS: padded, but empty")
        start, end = 1, end - payload[0]
    if flags & PRIORITY:
        start += 5
    if start > end:
        raise BrokenFrameError("HEADERS: more padding than there is frame")
    return payload[start:end]


def data_content(flags: int, payload: bytes) -> bytes:
    """What a DATA frame holds without its padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise BrokenFrameError("DATA: more padding than there is frame")
    return payload[1 : len(payload) - payload[0]]


def settings_of(payload: bytes) -> list[tuple[int, int]]:
    """The settings in a frame, in order."""
    if len(payload) % _SETTING.size:
        raise BrokenFrameError("SETTINGS: cut short")
    return list(_SETTING.iter_unpack(payload))


def settings_frame(settings: list[tuple[int, int]]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(name, value) for name, value in settings))
