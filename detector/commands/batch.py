"""Many documents, one a line, evaluated in order; on all cores once there are enough of them."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice

from detector.commands.asking import Asking, Question
from detector.core.document import DocumentError

CHUNK_CHARACTERS_MIN = 1 << 18
CHUNKS_ALONE_MAX = 8
"""Chunks evaluated in this process before it is worth starting others (a second each, for the imports)."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some lines of one file, the first of them numbered ``line``. (Positional: it travels.)"""

    file: str
    line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a chunk: verdicts as JSON in order, complaints about the predicate, the keys that were passed over, and
    the error that ended it.
    """

    verdicts: list[str]
    complaints: list[str]
    passed_over: list[DocumentError]
    error: DocumentError | None
    characters: int


class PassedOver:
    """Keys that nobody knows, each remembered once for each kind of object, with the place where it was first met."""

    def __init__(self) -> None:
        self.first: list[DocumentError] = []
        self._known: set[tuple[object, object]] = set()

    def __call__(self, passed_over: DocumentError) -> None:
        """Remember it, unless it is known."""
        key = (passed_over.path[0] if len(passed_over.path) > 1 else None, passed_over.path[-1])
        if key not in self._known:
            self._known.add(key)
            self.first.append(passed_over)


_asking: Asking | None = None
"""The worker's own predicate: made once in each process, by :func:`_begin`."""


def evaluated(question: Question, asking: Asking, chunks: Iterator[Chunk], *, cores: int | None = None) -> Iterator[Done]:
    """The chunks' results, in their order; ends after the first that holds an error.

    Parameters
    ----------
    question, asking : what is asked, and the same with its predicate found.
    chunks : see :func:`chunked`.
    cores : how many processes may work at once; None is one for each core that this process may use.
    """
    alone = (work(asking, chunk) for chunk in islice(chunks, CHUNKS_ALONE_MAX))
    cores = cores or _cores()
    rest = _together(question, chunks, cores) if cores > 1 else (work(asking, chunk) for chunk in chunks)
    for done in chain(alone, rest):
        yield done
        if done.error is not None:
            return


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chunked(file: str, lines: Iterable[str]) -> Iterator[Chunk]:
    """The lines of one file in chunks of at least ``CHUNK_CHARACTERS_MIN`` characters."""
    held: list[str] = []
    first, size = 1, 0
    for number, line in enumerate(lines, start=1):
        held.append(line)
        size += len(line)
        if size >= CHUNK_CHARACTERS_MIN:
            yield Chunk(file, first, tuple(held))
            held, first, size = [], number + 1, 0
    if held:
        yield Chunk(file, first, tuple(held))


def work(asking: Asking, chunk: Chunk) -> Done:
    """Evaluate a chunk's lines, up to the first that is no snapshot document; empty lines say nothing."""
    verdicts: list[str] = []
    complaints: list[str] = []
    passed_over = PassedOver()
    error = None
    for number, text in enumerate(chunk.lines, start=chunk.line):
        if not text.strip():
            continue
        try:
            more, wrong = asking.lines(text, file=chunk.file, line=number, told=passed_over)
        except DocumentError as found:
            error = found
            break
        verdicts += more
        complaints += wrong
    return Done(verdicts, complaints, passed_over.first, error, sum(map(len, chunk.lines)))


def _together(question: Question, chunks: Iterator[Chunk], cores: int) -> Iterator[Done]:
    """As many chunks at once as there are cores, a bounded number waiting; the results in order."""
    first = next(chunks, None)
    if first is None:
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=context, initializer=_begin, initargs=(question,)) as pool:
        waiting: deque[Future[Done]] = deque()
        for chunk in chain((first,), chunks):
            waiting.append(pool.submit(_work, chunk))
            if len(waiting) > 2 * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _begin(question: Question) -> None:
    global _asking  # noqa: PLW0603 - one per worker process, set before its first chunk
    _asking = question.put()


def _work(chunk: Chunk) -> Done:
    assert _asking is not None, "a worker begins before it works"
    return work(_asking, chunk)
