"""agronholm/apscheduler 268: a scheduler shuts its executor down under its lock; a job that is running asks the scheduler."""

import threading
from concurrent.futures import ThreadPoolExecutor

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Scheduler:
    """Jobs by name, under a lock, and the executor that runs them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._jobs: dict[str, object] = {}
        self._executor = ThreadPoolExecutor(2)
        self.is_closing = threading.Event()

    def run(self, name: str) -> None:
        with self._lock:
            self._jobs[name] = self._executor.submit(self._report, name)

    def _report(self, name: str) -> None:
        self.is_closing.wait()
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        if MODE != "does_not_ask":
            self.job(name)

    def job(self, name: str) -> object:
        if MODE == "limit":
            self._lock.acquire(timeout=FAR_SECONDS)
            return self._jobs[name]
        with self._lock:  # core: jobs
            return self._jobs[name]

    def shutdown(self) -> None:
        with self._lock:
            self.is_closing.set()
            self._executor.shutdown(wait=True)  # core: jobs


join("jobs")
scheduler = Scheduler()
scheduler.run("report")
begin(scheduler.shutdown)
stay()
