"""kirodotdev/KiroCrew 11245: a finalizer gives a lease back, and runs on the thread that has the lock of the leases."""

import threading
import weakref

from field_program import MODE, begin, join, stay

lock = threading.RLock() if MODE == "reentrant" else threading.Lock()
leases: dict[str, int] = {}


class Ledger:
    """A handle; its lease lasts as long as it does."""

    def __init__(self, key: str) -> None:
        weakref.finalize(self, release, key)


def release(key: str) -> None:
    with lock:  # core: gateway
        leases.pop(key, None)


def acquire(key: str) -> None:
    with lock:
        leases[key] = 1
        if MODE != "kept":
            handles.clear()


join("gateway")
handles = [Ledger("old")]
begin(acquire, "new")
stay()
