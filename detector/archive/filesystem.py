"""Opens the filesystem of a URI, with limits on how long an object store may take to answer."""

from __future__ import annotations

from typing import Any

from pyarrow import fs

CONNECT_SECONDS_MAX = 10.0
ANSWER_SECONDS_MAX = 15.0
"""How long a request may go without any byte of its answer."""
TRIES = 3


def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem that ``uri`` names, and the path in it; raises as ``pyarrow.fs.FileSystem.from_uri`` does.

    By default pyarrow abandons a request to S3 after 3 s without an answer and repeats it about 30 times. A busy server then
    has ever more requests to answer, and one that has stalled holds up each operation for 100 s.
    """
    filesystem, path = fs.FileSystem.from_uri(uri)
    if filesystem.type_name == "s3":
        options: dict[str, Any] = filesystem.__reduce__()[1][0]  # those of a pickled one
        limits = {"connect_timeout": CONNECT_SECONDS_MAX, "request_timeout": ANSWER_SECONDS_MAX}
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=TRIES)
        filesystem = fs.S3FileSystem(**options | limits, retry_strategy=retries)
    return filesystem, path
