"""Finds the line of a value in a JSON text, for error messages."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line (from 1) of the value at ``path`` in the JSON ``text``, or of its innermost existing parent."""
    at = _skip(text, 0)
    for step in path:
        found = _inside(text, at, step)
        if found is None:
            break
        at = found
    return text.count("\n", 0, at) + 1


def _inside(text: str, at: int, step: str | int) -> int | None:
    """The offset of the member or element ``step`` of the value at offset ``at``; the last one for a duplicate key."""
    if text[at : at + 1] != ("{" if isinstance(step, str) else "["):
        return None
    found, index = None, 0
    at = _skip(text, at + 1)
    while text[at : at + 1] not in ("}", "]", ""):
        key: str | int = index
        if isinstance(step, str):
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        if key == step:
            found = at
            if isinstance(step, int):
                return found
        at = _skip(text, _DECODER.raw_decode(text, at)[1])
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        index += 1
    return found


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
