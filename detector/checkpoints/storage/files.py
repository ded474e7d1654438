"""The snapshot file format: a line with the version, a line with kind, length and checksum, and JSON.

.. code-block:: text

    stilltrue-snapshot 1
    point 1234 2f8a...  (kind, bytes of the body, SHA-256 of the body in hex)
    {"...": ...}

Files are written atomically: to a temporary file that is flushed to the disk and renamed. They are verified when read, with
different errors for foreign, newer, truncated and damaged files.
"""

from __future__ import annotations

import hashlib
import json
from enum import Enum
from pathlib import Path

from detector.checkpoints.protocol.points import Value
from detector.ops.files.atomic_file import write_atomically

MAGIC = b"stilltrue-snapshot "
VERSION = 1
_HEADER_BYTES_MAX = 256


class FileKind(Enum):
    """The content of a file."""

    POINT = "point"
    CHANNELS = "channels"


class FileFault(Enum):
    """Why a file is refused."""

    FOREIGN = "not a Stilltrue snapshot"
    NEWER = "written by a newer Stilltrue"
    TORN = "truncated"
    DAMAGED = "damaged"
    OTHER_KIND = "holds something else"
    MALFORMED = "malformed contents"


class SnapshotFileError(ValueError):
    """A snapshot file cannot be used; the message is one line with the file and the reason."""

    def __init__(self, path: Path, fault: FileFault, detail: str = "") -> None:
        super().__init__(f"{path}: {fault.value}" + (f": {detail}" if detail else ""))
        self.path, self.fault = path, fault


def write_body(path: Path, kind: FileKind, body: Value) -> None:
    """Write ``body`` (JSON values) to ``path`` atomically; OSError if the write fails."""
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    digest = hashlib.sha256(data).hexdigest()
    head = MAGIC + f"{VERSION}\n{kind.value} {len(data)} {digest}\n".encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, head + data)


def read_body(path: Path, kind: FileKind) -> dict[str, Value]:
    """Read and verify the body of ``path``; SnapshotFileError if it cannot be used, OSError if it cannot be read."""
    data = path.read_bytes()
    length, digest, start = _header(path, data, kind)
    body = data[start:]
    if len(body) < length:
        raise SnapshotFileError(path, FileFault.TORN, f"ends after {len(body)} of {length} bytes")
    if len(body) > length:
        raise SnapshotFileError(path, FileFault.DAMAGED, f"{len(body) - length} trailing bytes")
    if hashlib.sha256(body).hexdigest() != digest:
        raise SnapshotFileError(path, FileFault.DAMAGED, "checksum mismatch")
    try:
        value = json.loads(body)
    except ValueError as error:
        raise SnapshotFileError(path, FileFault.MALFORMED, str(error)) from error
    if not isinstance(value, dict):
        raise SnapshotFileError(path, FileFault.MALFORMED, "the body is not a mapping")
    return value


def _header(path: Path, data: bytes, kind: FileKind) -> tuple[int, str, int]:
    if not data.startswith(MAGIC):
        torn = MAGIC.startswith(data) and data
        raise SnapshotFileError(path, FileFault.TORN if torn else FileFault.FOREIGN, "empty" if not data else "")
    lines = data[:_HEADER_BYTES_MAX].split(b"\n", 2)
    version = lines[0][len(MAGIC) :].decode("ascii", "replace")
    if version.isdecimal() and int(version) > VERSION:
        raise SnapshotFileError(path, FileFault.NEWER, f"version {version}; this release reads up to {VERSION}")
    if len(lines) < 3:
        raise SnapshotFileError(path, FileFault.TORN, "ends within its header")
    words = lines[1].decode("ascii", "replace").split(" ")
    if version != str(VERSION) or len(words) != 3 or not words[1].isdecimal():
        raise SnapshotFileError(path, FileFault.DAMAGED, "unreadable header")
    if words[0] != kind.value:
        raise SnapshotFileError(path, FileFault.OTHER_KIND, f"{words[0]}, not {kind.value}")
    return int(words[1]), words[2], len(lines[0]) + len(lines[1]) + 2
