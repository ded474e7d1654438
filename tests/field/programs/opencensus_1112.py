"""census-instrumentation/opencensus-python 1112: a flush waits for an event that a worker would set, which has ended."""

import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Exporter:
    """Puts records into a queue; a worker takes them. An event in the queue is set once all before it have been taken."""

    def __init__(self) -> None:
        self._records: queue.Queue[object] = queue.Queue()
        self._worker = begin(self._work, self._records)

    @staticmethod
    def _work(records: "queue.Queue[object]") -> None:
        while (record := records.get()) is not None:
            if MODE == "slow":
                threading.Event().wait(FAR_SECONDS)
            if isinstance(record, threading.Event):
                record.set()

    def close(self) -> None:
        self._records.put(None)
        self._worker.join()

    def flush(self) -> None:
        done = threading.Event()
        self._records.put(done)
        done.wait(FAR_SECONDS if MODE == "limit" else None)  # core: web


def end(exporter: Exporter) -> None:
    if MODE != "slow":
        exporter.close()
    exporter.flush()


def wait_for_end(ending: threading.Thread) -> None:
    ending.join()  # behind: web


join("web")
begin(wait_for_end, begin(end, Exporter()))
stay()
