"""Evaluates many documents, one per line or file, in order; uses all cores once there are enough of them."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from detector.commands.evaluation.offline import OfflineEvaluator, Question
from detector.commands.shared.input import Block, text_of
from detector.core.document.reader import DocumentError
from detector.ops.process.worker_processes import WorkerPool
from stilltrue.model import Verdict

CHUNK_CHARACTERS_MIN = 1 << 18
CHUNKS_ALONE_MAX = 8
"""Chunks evaluated in this process before workers are started (each takes a second to import)."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive lines of one file, starting at number ``line``.

    ``lull``: the writer paused after them, and may be waiting for the answers.
    """

    file: str
    line: int
    lines: tuple[str, ...]
    lull: bool


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The result of a chunk: verdicts as JSON, failures of the predicate, ignored keys, and the error that ended it."""

    verdicts: list[str]
    failures: list[str]
    unknown_keys: list[DocumentError]
    error: DocumentError | None
    characters: int


class UnknownKeys:
    """Collects unknown keys, each once per kind of object, with the place where it first occurred."""

    def __init__(self) -> None:
        self.first: list[DocumentError] = []
        self._known: set[tuple[object, object]] = set()

    def __call__(self, unknown_keys: DocumentError) -> None:
        """Record the key, unless it has occurred before."""
        key = (unknown_keys.path[0] if len(unknown_keys.path) > 1 else None, unknown_keys.path[-1])
        if key not in self._known:
            self._known.add(key)
            self.first.append(unknown_keys)


_evaluator: OfflineEvaluator | None = None
"""The worker's evaluator, created once in each process by :func:`_start_worker`."""


def evaluate_chunks(
    question: Question, evaluator: OfflineEvaluator, chunks: Iterator[Chunk], *, cores: int | None = None
) -> Iterator[ChunkResult]:
    """Evaluate chunks; yields their results in order, and ends after the first that holds an error.

    Parameters
    ----------
    question, evaluator : the question, and its evaluator for this process.
    chunks : see :func:`chunked`.
    cores : the number of worker processes; None: one for each core available to this process.
    """
    cores = cores or _cores()
    alone = (evaluate_chunk(evaluator, chunk) for chunk in (_first_chunks(chunks) if cores > 1 else chunks))
    for done in chain(alone, _in_parallel(question, evaluator, chunks, cores)):
        yield done
        if done.error is not None:
            return


def _first_chunks(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The first chunks, up to ``CHUNKS_ALONE_MAX`` that were not cut short by a lull."""
    full = 0
    while full < CHUNKS_ALONE_MAX and (chunk := next(chunks, None)) is not None:
        full += not chunk.lull
        yield chunk


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chunked(file: str, blocks: Iterable[Block]) -> Iterator[Chunk]:
    """Group one file's lines into chunks of at least ``CHUNK_CHARACTERS_MIN`` characters, or fewer when the writer pauses."""
    held: list[str] = []
    first, size = 1, 0
    for block in blocks:
        for line in block.lines:
            held.append(line)
            size += len(line) + 1
            if size >= CHUNK_CHARACTERS_MIN:
                yield Chunk(file, first, tuple(held), lull=False)
                held, first, size = [], first + len(held), 0
        if block.lull:
            yield Chunk(file, first, tuple(held), lull=True)
            held, first, size = [], first + len(held), 0
    if held:
        yield Chunk(file, first, tuple(held), lull=False)


def evaluate_chunk(evaluator: OfflineEvaluator, chunk: Chunk) -> ChunkResult:
    """Evaluate a chunk's lines up to the first invalid document; blank lines are skipped."""
    verdicts: list[str] = []
    failures: list[str] = []
    unknown_keys = UnknownKeys()
    error = None
    for number, text in enumerate(chunk.lines, start=chunk.line):
        if not text.strip():
            continue
        try:
            more, failed = evaluator.lines(text, file=chunk.file, line=number, on_unknown_key=unknown_keys)
        except DocumentError as found:
            error = found
            break
        verdicts += more
        failures += failed
    return ChunkResult(verdicts, failures, unknown_keys.first, error, sum(map(len, chunk.lines)) + len(chunk.lines))


def _in_parallel(question: Question, evaluator: OfflineEvaluator, chunks: Iterator[Chunk], cores: int) -> Iterator[ChunkResult]:
    """Evaluate chunks in worker processes with a bounded queue; yields the results in order.

    At a lull the queue is drained, and the last chunk is evaluated in this process.
    """
    first = next(chunks, None)
    if first is None:
        return
    with WorkerPool(cores, _start_worker, question) as pool:
        waiting: deque[Future[ChunkResult]] = deque()
        for chunk in chain((first,), chunks):
            if not chunk.lull:
                waiting.append(pool.submit(_evaluate_chunk, chunk))
            while len(waiting) > (0 if chunk.lull else 2 * cores):
                yield waiting.popleft().result()
            if chunk.lull:
                yield evaluate_chunk(evaluator, chunk)
        while waiting:
            yield waiting.popleft().result()


def _start_worker(question: Question) -> None:
    global _evaluator  # noqa: PLW0603 - one per worker process, set before its first chunk
    _evaluator = question.prepare()


def _evaluate_chunk(chunk: Chunk) -> ChunkResult:
    assert _evaluator is not None, "the worker was initialized"
    return evaluate_chunk(_evaluator, chunk)


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result of a file with one document: its verdicts, the ignored keys, or the error."""

    verdicts: list[Verdict]
    unknown_keys: list[DocumentError]
    error: DocumentError | None


def evaluate_files(question: Question, evaluator: OfflineEvaluator, files: Sequence[str]) -> Iterator[FileResult]:
    """Evaluate files of one document each, in order; parameters as for :func:`evaluate_chunks`."""
    cores = min(_cores(), len(files))
    if cores == 1 or sum(map(size_of, files)) < CHUNKS_ALONE_MAX * CHUNK_CHARACTERS_MIN:
        yield from (evaluate_file(evaluator, file) for file in files)
        return
    with WorkerPool(cores, _start_worker, question) as pool:
        waiting: deque[Future[FileResult]] = deque()
        for file in files:
            waiting.append(pool.submit(_evaluate_file, file))
            if len(waiting) > 2 * cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def size_of(file: str) -> int:
    """The size of a file in bytes; 0 if it is not a regular file (standard input)."""
    return Path(file).stat().st_size if Path(file).is_file() else 0


def evaluate_file(evaluator: OfflineEvaluator, file: str) -> FileResult:
    """Evaluate the document in ``file``."""
    unknown_keys = UnknownKeys()
    gc.disable()  # a document is millions of small values without cycles: collecting garbage would take half the time
    try:
        _, verdicts = evaluator.verdicts(text_of(file), file=file, on_unknown_key=unknown_keys)
    except DocumentError as error:
        return FileResult([], unknown_keys.first, error)
    finally:
        gc.enable()
    return FileResult(verdicts, unknown_keys.first, None)


def _evaluate_file(file: str) -> FileResult:
    assert _evaluator is not None, "the worker was initialized"
    return evaluate_file(_evaluator, file)
