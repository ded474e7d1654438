"""A thread stops its worker under the lock that the worker needs, and asks again and again whether it has ended."""

import threading
import time

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Meter:
    """Counts, in a thread of its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.begun = threading.Event()
        self.count = 0

    def run(self) -> None:
        self.begun.set()
        time.sleep(0.2)
        if MODE == "slow":
            time.sleep(FAR_SECONDS)
        with self.lock:  # core: meter
            self.count += 1

    def stop(self) -> None:
        worker = begin(self.run)
        with self.lock:
            self.begun.wait()
            if MODE == "time_out":
                end = time.monotonic() + FAR_SECONDS
                while worker.is_alive() and time.monotonic() < end:
                    worker.join(0.5)
            elif MODE == "interrupted":
                self.wait_for_interrupt(worker)
            else:
                while worker.is_alive():
                    worker.join(0.5)  # core: meter

    def wait_for_interrupt(self, worker: threading.Thread) -> None:
        try:
            while worker.is_alive():
                worker.join(0.5)
        except KeyboardInterrupt:
            print("interrupted")


meter = Meter()
join("meter")
begin(meter.stop)
stay()
