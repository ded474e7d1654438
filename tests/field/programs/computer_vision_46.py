"""UWARG/computer-vision-python 46: a worker puts into a full queue under the lock that the queue's reader takes first."""

import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Pipeline:
    """Locations go from a worker to an output, by a queue that both use under a lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.locations: queue.Queue[int] = queue.Queue(2)
        self.is_full = threading.Event()

    def locate(self) -> None:
        for number in range(10):
            with self.lock:
                if self.locations.full():
                    self.is_full.set()
                self.locations.put(number, timeout=FAR_SECONDS if MODE == "time_out" else None)  # core: vision

    def output(self) -> None:
        self.is_full.wait()
        while True:
            with self.lock:  # core: vision
                self.locations.get()

    def dump_later(self) -> None:
        threading.Event().wait(FAR_SECONDS)
        self.locations.get()


join("vision")
pipeline = Pipeline()
begin(pipeline.locate)
begin(pipeline.output)
if MODE == "dumped":
    begin(pipeline.dump_later)
del pipeline
stay()
