"""A detector that starts on a full or read-only disk knows what the one before it had stored."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detector.service.detection.membership.members import MemberRecord
from detector.service.storage import snapshot_store as snapshot_store_module
from detector.service.storage.sqlite import Database
from tests.service.storage.test_snapshot_store import Lines, bounds, incident, snapshot_store, until


@contextlib.contextmanager
def full() -> Iterator[None]:
    """Within the block, this process can write to no file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def read_only() -> Iterator[None]:
    """Within the block, no file may be opened for writing."""

    def refuse(path: Path, *_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_store_module, "lock_directory", refuse)
        patch.setattr(os, "access", lambda *_: False)
        yield


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("disk", [full, read_only])
def test_a_restart_on_an_unwritable_disk_knows_the_members_incidents_and_ids(tmp_path: Path, disk: Any, killed: bool) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    one = snapshot_store(before)
    one.incident(incident("i-kept"))
    one.member("a", MemberRecord(instance="a", incarnation=1))
    until(lambda: not one._unwritten and not one._members)
    if killed:
        shutil.copytree(before, after)
    one.close(5)
    if not killed:
        shutil.copytree(before, after)
    log = Lines()
    with disk():
        other = snapshot_store(after, log)
    assert [known.id for known in other.open_incidents] == ["i-kept"]
    assert [record.instance for record in other.members] == ["a"]
    assert other.first_id > 1000
    assert (log.said("store cannot be used"), log.said("store unusable")) == (1, 0)
    until(lambda: other._reserved > other.first_id)
    other.close(5)
    assert Database(after, bounds()).first_id() > other.first_id
