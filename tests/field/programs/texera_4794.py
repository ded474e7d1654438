"""apache/texera 4794: a method reads a property while it has the lock that the property takes."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class AtomicInteger:
    """A number with a lock of its own."""

    def __init__(self, value: int) -> None:
        self._value = value
        self._lock = threading.RLock() if MODE == "reentrant" else threading.Lock()

    @property
    def value(self) -> int:
        with self._lock:  # core: worker
            return self._value

    @property
    def value_in_time(self) -> int:
        if not self._lock.acquire(timeout=FAR_SECONDS):
            raise TimeoutError
        try:
            return self._value
        finally:
            self._lock.release()

    def get_and_set(self, value: int) -> int:
        with self._lock:
            before = self.value_in_time if MODE == "time_out" else self.value
            self._value = value
            return before


join("worker")
begin(AtomicInteger(10).get_and_set, 99)
stay()
