"""Huffman-coded strings (RFC 7541, 5.2), decoded a byte at a time: pairs of hpack's half-byte steps, joined on first use."""

from __future__ import annotations

from functools import lru_cache

from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE

_Step = tuple[int, bytes, bool]
_STEPS: dict[int, _Step] = {}
"""From ``state * 256 + byte`` to the next state, the output, and whether a string may end there; at most 65,536."""


@lru_cache(maxsize=4096)
def unpacked(text: bytes) -> bytes:
    """Decode ``text``; raises ``ValueError``."""
    state, complete = 0, True
    out: list[bytes] = []
    for octet in text:
        key = state << 8 | octet
        step = _STEPS.get(key)
        if step is None:
            step = _STEPS[key] = _join(state, octet)
        state, put, complete = step
        out.append(put)
    if not complete:
        raise ValueError("a truncated Huffman string")
    return b"".join(out)


def _join(state: int, octet: int) -> _Step:
    put, flags = bytearray(), 0
    for half in (octet >> 4, octet & 0x0F):
        state, flags, symbol = HUFFMAN_TABLE[state * 16 + half]
        if flags & HUFFMAN_FAIL:
            raise ValueError("an invalid Huffman string")
        if flags & HUFFMAN_EMIT_SYMBOL:
            put.append(symbol)
    return state, bytes(put), bool(flags & HUFFMAN_COMPLETE)
