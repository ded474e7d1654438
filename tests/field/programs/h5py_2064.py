"""h5py/h5py 2064: a cached property computes under its own lock, and wants the library's; another thread has that."""

import threading
from collections.abc import Callable
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay

phil = threading.RLock()
"""The library's lock."""
both = threading.Barrier(2)


class CachedProperty:
    """``functools.cached_property`` as it is until Python 3.11: with one lock for all objects of the class."""

    def __init__(self, function: Callable[[Any], int]) -> None:
        self.function = function
        self.lock = threading.RLock()

    def __get__(self, instance: Any, owner: type) -> int:
        if MODE == "unlocked":
            return self.function(instance)
        with self.lock:  # core: lab
            return self.function(instance)


class Dataset:
    @CachedProperty
    def extent(self) -> int:
        if threading.current_thread() is first:
            both.wait()
        if MODE == "time_out":
            phil.acquire(timeout=FAR_SECONDS)
            return 1
        with phil:  # core: lab
            return 1


def in_the_library() -> None:
    with phil:
        both.wait()
        print(end=str(Dataset().extent)[:0])


join("lab")
first = threading.Thread(target=lambda: Dataset().extent, daemon=True)
first.start()
begin(in_the_library)
stay()
