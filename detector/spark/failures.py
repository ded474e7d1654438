"""How work with Spark ends early: what it throws is said in one line instead of pages of Java, and ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

INTERRUPTED = 130


class SparkFailedError(RuntimeError):
    """Spark did not start, or could not go on; one line that says why."""


@contextmanager
def plainly(what: str) -> Iterator[None]:
    """Spark's errors in the block become :class:`SparkFailedError`, beginning with ``what``."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(f"{what}: {reason(str(error))}") from error


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C in the block ends the process at once, and Java goes when it sees that.

    An exception in the middle of a word to Java would leave pages; one while Java starts would take away the file in which
    Java says where it listens, and leave Java behind for ever.
    """

    def end(*_: object) -> None:
        os.write(2, b"\nstilltrue: interrupted\n")
        os._exit(INTERRUPTED)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def reason(text: str) -> str:
    """What an exception of ours said, out of Spark's report of it: the last line that names an error."""
    lines = [line.strip() for line in text.splitlines() if not line.startswith(("  ", "\t"))]
    for kind in ("Error: ", "Exception: "):
        named = [line for line in lines if kind in line and not line.startswith("[")]
        if named:
            return named[-1].partition(kind)[2]
    return next((line for line in lines if line), "it ended")
