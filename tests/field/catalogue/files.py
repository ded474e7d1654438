"""Files: waits for locks on files, which the kernel keeps for all processes of a machine."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="file_lock",
        source="widely known",
        library="fcntl.flock, gRPC",
        what="A service calls another while it has locked a file, and the other needs the lock.",
        near={
            "limit": "the wait for the lock has a timeout",
            "other_thread": "another thread unlocks the file later",
            "child": "a child process has inherited the locked file, and unlocks it later",
            "shared": "the lock is a shared one",
            "deadline": "the call has a deadline",
        },
        processes=("stock", "orders"),
    ),
    Entry(
        program="filelock_315",
        source="tox-dev/filelock 315",
        library="filelock, concurrent.futures",
        what="A process locks a file and, with the lock held, waits for code that locks the same file again.",
        near={
            "limit": "the second lock has a timeout",
            "patience": "`result` has a timeout",
            "deleted": "another thread deletes the lock's file later",
            "shared": "the lock is not thread-local, and another thread releases it later",
            "other_file": "the code that the process waits for is slow, and locks nothing",
        },
        modules=("filelock",),
    ),
    Entry(
        program="posix_lock",
        source="widely known",
        library="fcntl.lockf, gRPC",
        what="A service calls another while it has locked a file by `lockf`, and the other needs the lock.",
        near={
            "limit": "the wait for the lock has a timeout",
            "other_thread": "another thread unlocks the file later",
            "reader": "another thread opens and closes the file later, which ends the process's lock",
            "shared": "the lock was made a shared one",
            "deadline": "the call has a deadline",
        },
        processes=("stock", "orders"),
    ),
    Entry(
        program="fasteners_lock",
        source="widely known",
        library="fasteners, gRPC",
        what="A service calls another within a lock of `fasteners` that all processes share, and the other needs the lock.",
        near={
            "limit": "the wait for the lock has a timeout",
            "other_thread": "another thread releases the lock later",
            "deadline": "the call has a deadline",
        },
        processes=("stock", "orders"),
        modules=("fasteners",),
    ),
)
