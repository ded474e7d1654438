"""Decodes Huffman-coded strings (RFC 7541, 5.2) a byte at a time, by pairs of hpack's half-byte steps."""

from __future__ import annotations

from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE

_Step = tuple[int, bytes, bool]
_STEPS: dict[int, _Step] = {}
"""Maps ``state * 256 + byte`` to the next state, the output, and whether a string may end there; at most 65,536 entries."""
CACHE: dict[bytes, bytes] = {}
"""Decoded short strings."""
CACHE_MAX = 4096
CACHED_BYTES_MAX = 512


def decode(text: bytes) -> bytes:
    """Decode ``text``, and cache it if it is short; raises ``ValueError``."""
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
    decoded = b"".join(out)
    if len(text) <= CACHED_BYTES_MAX:
        if len(CACHE) >= CACHE_MAX:
            CACHE.clear()
        CACHE[text] = decoded
    return decoded


def _join(state: int, octet: int) -> _Step:
    put, flags = bytearray(), 0
    for half in (octet >> 4, octet & 0x0F):
        state, flags, symbol = HUFFMAN_TABLE[state * 16 + half]
        if flags & HUFFMAN_FAIL:
            raise ValueError("an invalid Huffman string")
        if flags & HUFFMAN_EMIT_SYMBOL:
            put.append(symbol)
    return state, bytes(put), bool(flags & HUFFMAN_COMPLETE)
