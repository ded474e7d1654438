"""The lock of a directory: shared among its users, and done without where the filesystem has none."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from detector.archive.directory_lock import directory_lock
from detector.archive.files import ArchiveError, ArchiveFiles


def _failing(code: int) -> object:
    def flock(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return flock


def test_all_users_who_may_write_to_the_directory_may_lock_it(tmp_path: Path) -> None:
    """In a folder of a group the umask is 002: a file of mode 644 would shut out everybody but the first."""
    before = os.umask(0o002)
    try:
        with directory_lock(ArchiveFiles(str(tmp_path)), "_lock", "this test"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "_lock").stat().st_mode & 0o777 == 0o664


def test_a_second_holder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    store = ArchiveFiles(str(tmp_path))
    with directory_lock(store, "_lock", "this test"):
        with pytest.raises(ArchiveError, match="the other is in progress"), directory_lock(store, "_lock", "the other"):
            pytest.fail("it has the lock")
        with directory_lock(store, "_another", "this test"):
            pass
    with directory_lock(store, "_lock", "this test"):
        pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_filesystem_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(fcntl, "flock", _failing(code))
    entered = False
    with directory_lock(ArchiveFiles(str(tmp_path)), "_lock", "this test"):
        entered = True
    assert entered


def test_another_error_of_the_filesystem_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", _failing(errno.EIO))
    with (
        pytest.raises(OSError, match=os.strerror(errno.EIO)),
        directory_lock(ArchiveFiles(str(tmp_path)), "_lock", "this test"),
    ):
        pytest.fail("it has the lock")
