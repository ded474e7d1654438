"""Estimates the size of a decoded message from its bytes, before it is decoded.

A field of two bytes becomes an object of hundreds: 15 MB of small entries took gigabytes. The walk stops as soon as there are
too many, so its cost is bounded, too. Messages that are too short to reach the limit are not walked.

Rules:

1. A message, a string and bytes count as one each, at any depth; unknown fields are not entered.
2. Eight numbers, packed or not, count as one.
3. Malformed bytes count up to the error; the decoder reports it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NUMBERS_PER_ENTRY = 8
FIELDS_PER_ENTRY = 10
"""Maximum number of fields of a wait or call in the reports of an ordinary process."""
_BYTES_MIN = 2
_CONTINUED = bytes(range(0x80, 0x100))
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


@cache
def _kinds(message: Any) -> tuple[dict[int, Any], frozenset[int]]:
    """The message types among the fields, by number; and the numbers of the numeric fields, which may be packed."""
    messages = {field.number: field.message_type for field in message.fields if field.message_type is not None}
    numbers = (field.number for field in message.fields if field.message_type is None and field.type not in _TEXTS)
    return messages, frozenset(numbers)


def too_heavy(data: bytes, message: type[Message], most: int) -> bool:
    """Whether ``data``, decoded as ``message``, would weigh more than ``most``."""
    return len(data) > most * _BYTES_MIN and weight(data, message, most) > most


def weight(data: bytes, message: type[Message], most: int) -> int:
    """The total weight, or any number above ``most``."""
    found = numbers = 0
    todo: list[tuple[int, int, Any]] = [(0, len(data), message.DESCRIPTOR)]
    while todo:
        at, end, kind = todo.pop()
        messages, packed = _kinds(kind)
        while at < end and found + numbers // NUMBERS_PER_ENTRY <= most:
            try:
                tag, at = _number(data, at)
                if tag & 7 != 2:
                    numbers += 1
                    at = _after_number(data, at, tag & 7)
                    continue
                length, at = _number(data, at)
            except (IndexError, ValueError):
                break
            found += 1
            field = tag >> 3
            if field in messages and length:
                todo.append((at, min(at + length, end), messages[field]))
            elif field in packed:
                numbers += len(data[at : at + length].translate(None, _CONTINUED))
            at += length
    return found + numbers // NUMBERS_PER_ENTRY


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint; returns it and the offset after it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number is too long")
    return number, at + 1


def _after_number(data: bytes, at: int, wire: int) -> int:
    match wire:
        case 0:
            return _number(data, at)[1]
        case 1:
            return at + 8
        case 5:
            return at + 4
        case _:
            raise ValueError("groups are not used")
