"""Files and pipes as text: whole, or line by line as the lines come, with a word when no more is there for now."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from detector.core.document.reader import DocumentError

READ_BYTES = 1 << 18
LULL_SECONDS = 0.05
"""Who writes nothing for so long is slow: what there is gets its answers before more is waited for."""
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file; ``lull``: nothing more is there for now."""

    lines: list[str]
    lull: bool


def text_of(file: str) -> str:
    """All of ``file`` (``-``: standard input).

    Raises
    ------
    DocumentError
        When it cannot be read, or is not UTF-8.
    """
    try:
        with _opened(file) as stream:
            return _decoded(stream.read().removeprefix(_MARK), file, 1)
    except OSError as error:
        raise DocumentError(error.strerror or str(error), file=file) from None


def blocks_of(file: str) -> Iterator[Block]:
    """The lines of ``file`` (``-``: standard input) as they come, in blocks.

    Raises
    ------
    DocumentError
        As :func:`text_of`.
    """
    try:
        with _opened(file) as stream:
            yield from _blocks(stream, file)
    except OSError as error:
        raise DocumentError(error.strerror or str(error), file=file) from None


def _opened(file: str) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb")


def _blocks(stream: IO[bytes], file: str) -> Iterator[Block]:
    begun: list[bytes] = []
    """The pieces of a line whose end has not come."""
    number = 1
    read = getattr(stream, "read1", stream.read)  # what there is, rather than all that was asked for
    data = read(READ_BYTES).removeprefix(_MARK)
    while data:
        whole, end, rest = data.rpartition(b"\n")
        lines = []
        if end:
            lines = _decoded(b"".join((*begun, whole)), file, number).split("\n")
            begun.clear()
        begun.append(rest)
        number += len(lines)
        yield Block(lines, _lull(stream))
        data = read(READ_BYTES)
    yield Block(_decoded(b"".join(begun), file, number).split("\n"), lull=False)


def _decoded(data: bytes, file: str, number: int) -> str:
    """``data``, which begins in line ``number``, as text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DocumentError("is not UTF-8", file=file, line=number + data.count(b"\n", 0, error.start)) from None


def _lull(stream: IO[bytes]) -> bool:
    """Whether nothing comes for a while; where nobody can tell (no file of the system's), it does not."""
    try:
        return not select.select([stream], [], [], LULL_SECONDS)[0]
    except (OSError, ValueError):
        return False
