"""Header blocks (HPACK, RFC 7541): read with the peer's dynamic table, written without one.

A gRPC call has three short blocks, mostly references into a table. Reading them is most of the relay's work, so this code
creates no objects and caches what it decoded and encoded. Long values are not cached: a peer could fill the cache with them.
"""

from __future__ import annotations

from collections import deque

from hpack.table import HeaderTable

from detector.sidecar.http2.frames import BrokenFrameError
from detector.sidecar.http2.huffman import CACHE, decode

Header = tuple[bytes, bytes]
Headers = list[Header]

TABLE_BYTES_MAX = 4096
"""The size of the peer's dynamic table: the HTTP/2 default, since we announce no other."""

HEADERS_BYTES_MAX = 2**20
KNOWN_MAX = 64
KNOWN_BYTES_MAX = 4096
"""Longer blocks are not cached."""
WRITTEN_MAX = 4096
WRITTEN_BYTES_MAX = 512
"""The most encoded headers that are cached, and the largest size of one."""
_ENTRY_BYTES = 32
_STATIC: tuple[Header, ...] = tuple((bytes(name), bytes(value)) for name, value in HeaderTable.STATIC_TABLE)
_STATIC_PAIRS = {pair: index for index, pair in reversed(list(enumerate(_STATIC, 1))) if pair[1]}
_STATIC_NAMES = {name: index for index, (name, _) in reversed(list(enumerate(_STATIC, 1)))}


def size_of(headers: Headers) -> int:
    """Return the size of a header list as SETTINGS_MAX_HEADER_LIST_SIZE defines it."""
    size = _ENTRY_BYTES * len(headers)
    for name, value in headers:
        size += len(name) + len(value)
    return size


class HeaderReader:
    """Reads the header blocks of one direction of one connection, in order.

    While the table does not change, equal blocks mean equal headers, so a server's repeated replies are decoded once.
    """

    __slots__ = ("_bytes", "_bytes_max", "_entries", "_known")

    def __init__(self) -> None:
        self._entries: deque[Header] = deque()
        self._bytes = 0
        self._bytes_max = TABLE_BYTES_MAX
        self._known: dict[bytes, Headers] = {}

    def read(self, block: bytes) -> Headers:
        """Decode a block; do not modify the result. After :class:`BrokenFrameError` the connection is unusable."""
        known = self._known.get(block)
        if known is not None:
            return known
        try:
            headers, same = self._read(block)
        except (IndexError, ValueError, KeyError) as error:
            raise BrokenFrameError(f"unreadable header block: {error}") from None
        if not same or len(self._known) >= KNOWN_MAX:
            self._known.clear()
        if same and len(block) <= KNOWN_BYTES_MAX:
            self._known[block] = headers
        return headers

    def _read(self, block: bytes) -> tuple[Headers, bool]:
        """Return the headers, and whether the table is unchanged."""
        headers: Headers = []
        same = True
        at, end, total = 0, len(block), 0
        while at < end:
            first = block[at]
            if first & 0x80:
                index, at = (first & 0x7F, at + 1) if first & 0x7F != 0x7F else _integer(block, at, 0x7F)
                pair = self._at(index)
            elif first & 0xEF == 0 and block[at + 1] < 0x7F and block[after := at + 2 + block[at + 1]] < 0x7F:
                # by far the most common literal: a short name and a short value as they are, not to be indexed
                at, named = after + 1 + block[after], block[at + 2 : after]
                if at > end:
                    raise IndexError("a truncated string")
                pair = (named, block[after + 1 : at])
            elif first & 0xE0 == 0x20:
                size, at = _integer(block, at, 0x1F)
                self._resize(size)
                same = False
                continue
            else:
                indexed = first & 0x40
                index, at = _integer(block, at, 0x3F if indexed else 0x0F)
                name, at = (self._at(index)[0], at) if index else _string(block, at)
                value, at = _string(block, at)
                pair = (name, value)
                if indexed:
                    self._add(pair)
                    same = False
            headers.append(pair)
            total += len(pair[0]) + len(pair[1]) + _ENTRY_BYTES
            if total > HEADERS_BYTES_MAX:
                raise ValueError("too long")
        return headers, same

    def _at(self, index: int) -> Header:
        if index <= len(_STATIC):
            if not index:
                raise IndexError("index 0")
            return _STATIC[index - 1]
        return self._entries[index - len(_STATIC) - 1]

    def _add(self, pair: Header) -> None:
        size = len(pair[0]) + len(pair[1]) + _ENTRY_BYTES
        self._entries.appendleft(pair)
        self._bytes += size
        self._evict()

    def _resize(self, size: int) -> None:
        if size > TABLE_BYTES_MAX:
            raise ValueError(f"a dynamic table of {size} bytes")
        self._bytes_max = size
        self._evict()

    def _evict(self) -> None:
        while self._bytes > self._bytes_max:
            name, value = self._entries.pop()
            self._bytes -= len(name) + len(value) + _ENTRY_BYTES


def write_headers(headers: Headers) -> bytes:
    """Encode a header block that does not use the dynamic table."""
    return b"".join([_WRITTEN.get(pair) or _write(pair) for pair in headers])


_WRITTEN: dict[Header, bytes] = {}


def _write(pair: Header) -> bytes:
    written = _encoded(pair)
    if len(written) <= WRITTEN_BYTES_MAX:
        if len(_WRITTEN) >= WRITTEN_MAX:
            _WRITTEN.clear()
        _WRITTEN[pair] = written
    return written


def _encoded(pair: Header) -> bytes:
    index = _STATIC_PAIRS.get(pair)
    if index is not None:
        return bytes((0x80 | index,))
    name, value = pair
    index = _STATIC_NAMES.get(name)
    head = _write_integer(index, 0x0F, 0x00) if index is not None else b"\x00" + _write_integer(len(name), 0x7F, 0) + name
    return head + _write_integer(len(value), 0x7F, 0) + value


def _write_integer(value: int, full: int, first: int) -> bytes:
    if value < full:
        return bytes((first | value,))
    written = bytearray((first | full,))
    value -= full
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _integer(block: bytes, at: int, full: int) -> tuple[int, int]:
    value = block[at] & full
    at += 1
    if value < full:
        return value, at
    shift = 0
    while True:
        octet = block[at]
        at += 1
        value += (octet & 0x7F) << shift
        shift += 7
        if not octet & 0x80:
            return value, at
        if shift > 28:
            raise ValueError("an unterminated integer")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    huffman = block[at] & 0x80
    length, at = _integer(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise IndexError("a truncated string")
    text = block[at:end]
    return ((CACHE.get(text) or decode(text)) if huffman else text), end
