"""Encodes a report as its difference from the previous one: runs of the same fields, and new fields. Exact to the byte.

A report without its heading (process, snapshot, after, cut_at) is a sequence of fields, one for each call, wait and so on. Most
of them stay the same from one snapshot to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from stilltrue.protocol.wire.values import MalformedError
from stilltrue.v1 import agent_pb2 as pb

_MORE, _BITS, _WIRE_TYPE = 0x80, 7, 0x7
_VARINT_BYTES_MAX = 10


def fields_of(body: bytes) -> list[bytes]:
    """Split an encoded message into its fields, tags included. Raises :class:`MalformedError`."""
    found, at = [], 0
    while at < len(body):
        end = _end(body, at)
        if end > len(body):
            raise MalformedError("fields: a truncated field")
        found.append(body[at:end])
        at = end
    return found


def pieces_of(before: Sequence[bytes], fields: Iterable[bytes]) -> list[pb.Piece]:
    """Express ``fields`` as runs of the fields ``before`` and new ones; an empty list if nothing has changed."""
    new = list(fields)
    if new == list(before):
        return []
    places = {field: at for at, field in enumerate(before)}
    found: list[pb.Piece] = []
    fresh: list[bytes] = []
    for field in new:
        at = places.get(field)
        last = found[-1] if found and not fresh else None
        if at is None:
            fresh.append(field)
        elif last is not None and last.count and last.first + last.count == at:
            last.count += 1
        else:
            _put(found, fresh)
            found.append(pb.Piece(first=at, count=1))
    _put(found, fresh)
    return found or [pb.Piece()]


def patched(before: Sequence[bytes], pieces: Sequence[pb.Piece], bytes_max: int) -> bytes:
    """Join the fields that ``pieces`` describe. Raises :class:`MalformedError`, also for more than ``bytes_max`` bytes."""
    if not pieces:
        return b"".join(before)
    parts, length = [], 0
    for part in _parts(before, pieces):
        length += len(part)
        if length > bytes_max:
            raise MalformedError(f"pieces: more than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)


def _parts(before: Sequence[bytes], pieces: Iterable[pb.Piece]) -> Iterator[bytes]:
    for piece in pieces:
        if piece.first + piece.count > len(before):
            raise MalformedError(f"pieces: {piece.count} fields from {piece.first} on, of {len(before)}")
        yield from before[piece.first : piece.first + piece.count]
        yield piece.fields


def _put(found: list[pb.Piece], fresh: list[bytes]) -> None:
    """Attach new fields to the piece that they follow."""
    if fresh and found:
        found[-1].fields = b"".join(fresh)
    elif fresh:
        found.append(pb.Piece(fields=b"".join(fresh)))
    fresh.clear()


def _end(body: bytes, at: int) -> int:
    """The offset of the end of the field that begins at ``at``."""
    tag, at = _varint(body, at)
    match tag & _WIRE_TYPE:
        case 0:
            return _varint(body, at)[1]
        case 1:
            return at + 8
        case 2:
            length, at = _varint(body, at)
            return at + length
        case 5:
            return at + 4
        case kind:
            raise MalformedError(f"fields: unknown wire type {kind}")


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Decode a base-128 number; returns it and the offset after it."""
    number = 0
    for place in range(_VARINT_BYTES_MAX):
        if at + place >= len(body):
            break
        byte = body[at + place]
        number |= (byte & ~_MORE) << _BITS * place
        if byte < _MORE:
            return number, at + place + 1
    raise MalformedError("fields: an unterminated number")
