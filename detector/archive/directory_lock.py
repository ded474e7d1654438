"""A lock on a local directory, for commands of which only one at a time may write there."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import fs

from detector.archive.files import ArchiveError, ArchiveFiles

UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def directory_lock(store: ArchiveFiles, name: str, what: str) -> Iterator[None]:
    """Hold the lock ``name`` of the directory of ``store`` during the block.

    There is no lock on other storage, in a directory that does not exist, and on filesystems that support none.

    Raises
    ------
    ArchiveError
        If another process holds it; ``what`` says what that process is, such as "another compaction".
    """
    if not isinstance(store.filesystem, fs.LocalFileSystem) or not os.path.isdir(store.root):  # noqa: PTH112
        yield
        return
    # Less the umask: users who share the directory must all be able to lock it.
    handle = os.open(f"{store.root}/{name}", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(handle, f"{store.location}: {what} is in progress")
        yield
    finally:
        os.close(handle)


def _lock(handle: int, refusal: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ArchiveError(refusal) from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
