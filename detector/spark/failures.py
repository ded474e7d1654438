"""What Spark throws, said in one line: its own reports of an error are pages of Java."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException


class SparkFailedError(RuntimeError):
    """Spark did not start, or could not go on; one line that says why."""


@contextmanager
def plainly(what: str) -> Iterator[None]:
    """Spark's errors in the block become :class:`SparkFailedError`, beginning with ``what``."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(f"{what}: {reason(str(error))}") from error


def reason(text: str) -> str:
    """What an exception of ours said, out of Spark's report of it: the last line that names an error."""
    lines = [line.strip() for line in text.splitlines() if not line.startswith(("  ", "\t"))]
    for kind in ("Error: ", "Exception: "):
        named = [line for line in lines if kind in line and not line.startswith("[")]
        if named:
            return named[-1].partition(kind)[2]
    return next((line for line in lines if line), "it ended")
