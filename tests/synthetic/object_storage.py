"""A real server that speaks S3, on loopback; what anybody needs to reach it is in the environment, under AWS's own names."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest
from moto.moto_api._internal.models import moto_api_backend
from moto.server import ThreadedMotoServer
from pyarrow import fs

from detector.archive.filesystem import open_filesystem
from detector.archive.rows.row_decoder import verdict_of
from stilltrue.model import Verdict
from tests.synthetic.hostile_archives import Key

BUCKET = "stilltrue-tests"


@contextmanager
def object_storage() -> Iterator[fs.FileSystem]:
    """The file system of a server with the empty ``BUCKET``, while it runs."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto_api_backend.reset()  # what an earlier server of this process stored
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name, value in (("ACCESS_KEY_ID", "tests"), ("SECRET_ACCESS_KEY", "tests"), ("REGION", "us-east-1")):
            environment.setenv(f"AWS_{name}", value)
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        made, _ = open_filesystem(f"s3://{BUCKET}?allow_bucket_creation=true")
        made.create_dir(BUCKET)
        try:
            yield made
        finally:
            server.stop()


def verdict_rows(store: fs.FileSystem, folder: str) -> dict[Key, Verdict]:
    """The verdicts in the Parquet files of a folder, each once."""
    entries = store.get_file_info(fs.FileSelector(folder, recursive=True))
    paths = [each.path for each in entries if each.type == fs.FileType.File and not each.base_name.startswith("_")]
    rows = [row for path in paths for row in pq.read_table(path, filesystem=store, partitioning=None).to_pylist()]
    found = {(row["archive"], row["snapshot"], row["predicate"]): verdict_of(row) for row in rows}
    assert len(found) == len(rows), "a verdict is there twice"
    return found
