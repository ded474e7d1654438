"""Reads files and pipes as text: whole, or in blocks of lines as they arrive, noting when the writer pauses."""

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
"""After this long without input, the lines that have arrived are answered first."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Complete lines of a file; ``lull``: the writer paused after them."""

    lines: list[str]
    lull: bool


def text_of(file: str) -> str:
    """Read all of ``file`` (``-``: standard input).

    Raises
    ------
    DocumentError
        When it cannot be read or is not UTF-8.
    """
    try:
        with _opened(file) as stream:
            return _decoded(stream.read().removeprefix(_BYTE_ORDER_MARK), file, 1)
    except OSError as error:
        raise DocumentError(error.strerror or str(error), file=file) from None


def blocks_of(file: str) -> Iterator[Block]:
    """Read the lines of ``file`` (``-``: standard input) in blocks, as they arrive.

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
    partial: list[bytes] = []
    """The pieces of an incomplete line."""
    number = 1
    read = getattr(stream, "read1", stream.read)  # read1 returns what has arrived; read waits for all
    data = read(READ_BYTES).removeprefix(_BYTE_ORDER_MARK)
    while data:
        whole, end, rest = data.rpartition(b"\n")
        lines = []
        if end:
            lines = _decoded(b"".join((*partial, whole)), file, number).split("\n")
            partial.clear()
        partial.append(rest)
        number += len(lines)
        yield Block(lines, _lull(stream))
        data = read(READ_BYTES)
    yield Block(_decoded(b"".join(partial), file, number).split("\n"), lull=False)


def _decoded(data: bytes, file: str, number: int) -> str:
    """Decode ``data``, which begins at line ``number``."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DocumentError("is not UTF-8", file=file, line=number + data.count(b"\n", 0, error.start)) from None


def _lull(stream: IO[bytes]) -> bool:
    """Whether the writer has paused; False if ``stream`` has no file descriptor to poll."""
    try:
        return not select.select([stream], [], [], LULL_SECONDS)[0]
    except (OSError, ValueError):
        return False
