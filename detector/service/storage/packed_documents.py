"""Snapshot documents as compressed JSON. A large part that is the same object as in the last snapshot is not written again.

A document is ``zlib`` data like any other: each part is compressed by itself, up to a byte boundary and without reference to
those before it (``Z_FULL_FLUSH``, RFC 1951), so that the compressed parts can be put together, with one checksum for all.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

import numpy as np

from detector.core.document.reader import write_document
from detector.core.snapshot import NO_WAITS, Snapshot
from detector.core.times import write_time
from detector.graph.columns import NO_NUMBER, WaitColumns

_LEVEL = 3
_HEAD = b"\x78\x5e"
"""A zlib stream with a window of 32 KiB, compressed quickly."""
_RAW = -15
_END = b"\x03\x00"
"""An empty last block."""
_LARGE = ("processes", "waits", "in_transit")


@dataclass(frozen=True, slots=True)
class _Part:
    """The text of one value, and what it compresses to. ``of``: the value."""

    of: object
    text: bytes
    packed: bytes


class PackedDocuments:
    """Packs the documents of one snapshot after the other; for any thread."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._lock = threading.Lock()

    def pack(self, snapshot: Snapshot) -> bytes:
        """The document of a snapshot, compressed."""
        with self._lock:
            return self._pack(snapshot)

    def _pack(self, snapshot: Snapshot) -> bytes:
        rest = write_document(replace(snapshot, processes={}, waits=NO_WAITS, in_transit=()))
        packed, total, small = [_HEAD], 1, "{"
        for key, value in rest.items():
            small += f"{'' if small == '{' else ','}{quoted(key)}:"
            if key not in _LARGE:
                small += _json(value)
                continue
            for part in (_part(small.encode()), self._large(key, snapshot)):
                total = zlib.adler32(part.text, total)
                packed.append(part.packed)
            small = ""
        last = _part(f"{small}}}".encode())
        total = zlib.adler32(last.text, total)
        return b"".join((*packed, last.packed, _END, total.to_bytes(4, "big")))

    def _large(self, key: str, snapshot: Snapshot) -> _Part:
        value = getattr(snapshot, key)
        known = self._parts.get(key)
        if known is None or known.of is not value:
            known = self._parts[key] = replace(_part(_TEXTS[key](snapshot).encode()), of=value)
        return known


def unpacked(document: bytes) -> str:
    """The JSON of a packed document."""
    return zlib.decompress(document).decode()


def _part(text: bytes) -> _Part:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
    return _Part(None, text, packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _processes(snapshot: Snapshot) -> str:
    return _json(write_document(Snapshot(processes=snapshot.processes))["processes"])


def _in_transit(snapshot: Snapshot) -> str:
    return _json(write_document(Snapshot(in_transit=snapshot.in_transit))["in_transit"])


def _waits(snapshot: Snapshot) -> str:
    return f"[{','.join(waits_as_json(snapshot.waits))}]"


_TEXTS: dict[str, Callable[[Snapshot], str]] = {"processes": _processes, "waits": _waits, "in_transit": _in_transit}


def waits_as_json(waits: WaitColumns) -> Iterator[str]:
    """Each wait as :func:`write_document` writes it, straight from the columns."""
    names = [quoted(name) for name in waits.names]
    targets = list(map(names.__getitem__, waits.targets.tolist()))
    ends = waits.indptr.tolist()
    known = {at: f'"{write_time(at)}"' for column in (waits.deadline, waits.since) for at in column[~np.isnan(column)].tolist()}
    columns = zip(
        waits.waiter.tolist(), waits.needs.tolist(), ends[:-1], ends[1:], waits.deadline.tolist(), waits.since.tolist(),
        waits.number.tolist(), waits.uncoloured.tolist(), waits.what or [""] * len(waits), strict=True,
    )  # fmt: skip
    for waiter, needs, begin, end, deadline, since, number, uncoloured, what in columns:
        among = targets[begin] if end == begin + 1 else ",".join(targets[begin:end])
        text = f'{{"waiter":{names[waiter]},"needs":{needs},"among":[{among}]'
        if deadline in known:
            text += f',"deadline":{known[deadline]}'
        if since in known:
            text += f',"since":{known[since]}'
        if number != NO_NUMBER:
            text += f',"number":{number}'
        if uncoloured:
            text += ',"uncoloured":true'
        yield f'{text},"what":{quoted(what)}}}' if what else f"{text}}}"
