"""Snapshot documents as compressed JSON. A large part that is unchanged since the last snapshot is not compressed again.

A document is ordinary ``zlib`` data: each part is compressed separately, up to a byte boundary and without reference to
earlier parts (``Z_FULL_FLUSH``, RFC 1951), so that compressed parts can be concatenated, with one checksum for all.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
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
"""The zlib header for a window of 32 KiB and fast compression."""
_RAW = -15
_END = b"\x03\x00"
"""An empty final block."""
_LARGE = ("processes", "waits", "in_transit")


@dataclass(frozen=True, slots=True)
class _Part:
    """The JSON of one ``value``, plain and compressed."""

    value: object
    text: bytes
    packed: bytes


class PackedDocuments:
    """Packs the documents of consecutive snapshots; thread-safe."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._times: dict[float, str] = {}
        """Times in the last snapshot's waits as text, since most waits last."""
        self._lock = threading.Lock()

    def pack(self, snapshot: Snapshot) -> bytes:
        """Compress a snapshot's document."""
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
        if known is None or known.value is not value:
            known = self._parts[key] = replace(_part(self._text(key, snapshot).encode()), value=value)
        return known

    def _text(self, key: str, snapshot: Snapshot) -> str:
        if key != "waits":
            return _json(write_document(_ALONE[key](snapshot))[key])
        self._times = _times_as_text(snapshot.waits, self._times)
        return f"[{','.join(waits_as_json(snapshot.waits, self._times))}]"


def unpacked(document: bytes) -> str:
    """Unpack a document to JSON."""
    return zlib.decompress(document).decode()


def _part(text: bytes) -> _Part:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
    return _Part(None, text, packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


_ALONE: dict[str, Callable[[Snapshot], Snapshot]] = {
    "processes": lambda snapshot: Snapshot(processes=snapshot.processes),
    "in_transit": lambda snapshot: Snapshot(in_transit=snapshot.in_transit),
}


def _times_as_text(waits: WaitColumns, known: Mapping[float, str]) -> dict[float, str]:
    """The times in the waits as quoted text; ``known`` has some of them already."""
    moments = {at for column in (waits.deadline, waits.since) for at in column[~np.isnan(column)].tolist()}
    return {at: known[at] if at in known else f'"{write_time(at)}"' for at in moments}


def waits_as_json(waits: WaitColumns, times: Mapping[float, str]) -> Iterator[str]:
    """Each wait as JSON, as in :func:`write_document`, but straight from the columns. ``times``: all their times as text."""
    names = [quoted(name) for name in waits.names]
    targets = list(map(names.__getitem__, waits.targets.tolist()))
    ends = waits.indptr.tolist()
    columns = zip(
        waits.waiter.tolist(), waits.needs.tolist(), ends[:-1], ends[1:], waits.deadline.tolist(), waits.since.tolist(),
        waits.number.tolist(), waits.uncoloured.tolist(), waits.what or [""] * len(waits), strict=True,
    )  # fmt: skip
    for waiter, needs, begin, end, deadline, since, number, uncoloured, what in columns:
        among = targets[begin] if end == begin + 1 else ",".join(targets[begin:end])
        text = f'{{"waiter":{names[waiter]},"needs":{needs},"among":[{among}]'
        if deadline in times:
            text += f',"deadline":{times[deadline]}'
        if since in times:
            text += f',"since":{times[since]}'
        if number != NO_NUMBER:
            text += f',"number":{number}'
        if uncoloured:
            text += ',"uncoloured":true'
        yield f'{text},"what":{quoted(what)}}}' if what else f"{text}}}"
