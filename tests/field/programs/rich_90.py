"""Textualize/rich 90: a display that ends joins the thread that refreshes it, under the lock which that thread takes."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Progress:
    """A display, and the thread that refreshes it until it is told to stop."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread = begin(self._refresh)

    def _refresh(self) -> None:
        self._stopping.wait()
        if MODE == "unlocked":
            threading.Event().wait(FAR_SECONDS)
            return
        with self._lock:  # core: build
            print(end="")

    def stop(self) -> None:
        with self._lock:
            self._stopping.set()
            if MODE != "after":
                self._thread.join(FAR_SECONDS if MODE == "time_out" else None)  # core: build
        self._thread.join()


join("build")
progress = Progress()
begin(progress.stop)
stay()
