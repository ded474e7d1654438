"""An object store that stalls is an error after a few tries; one that is slow is waited for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import fs

from detector.archive import filesystem
from detector.archive.files import ArchiveFiles


@contextmanager
def _stalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """A server that accepts connections and never answers; the connections so far."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"):
            monkeypatch.setenv(f"AWS_{name}", "tests")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        accepted: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    accepted.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield accepted
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in accepted:
        connection.close()


def test_a_stalled_object_store_is_an_error_after_three_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "ANSWER_SECONDS_MAX", 1.0)
    with _stalled(monkeypatch) as accepted:
        with pytest.raises(OSError, match="Timeout was reached"):
            ArchiveFiles("s3://bucket/archive").check()
        assert len(accepted) == filesystem.TRIES


def test_the_options_of_a_uri_are_kept() -> None:
    uri = "s3://key:secret@bucket/path?region=eu-north-1&endpoint_override=127.0.0.1:9&scheme=http&allow_bucket_creation=true"
    made, path = filesystem.open_filesystem(uri)
    plain, _ = fs.FileSystem.from_uri(uri)
    assert path == "bucket/path"
    limits = {"connect_timeout": filesystem.CONNECT_SECONDS_MAX, "request_timeout": filesystem.ANSWER_SECONDS_MAX}
    assert made.__reduce__()[1][0] == plain.__reduce__()[1][0] | limits


def test_other_filesystems_are_as_pyarrow_opens_them(tmp_path: Path) -> None:
    assert filesystem.open_filesystem(f"file://{tmp_path}") == fs.FileSystem.from_uri(f"file://{tmp_path}")
