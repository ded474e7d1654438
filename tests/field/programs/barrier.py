"""Widely known: a thread joins workers that wait at a barrier, which the thread would reach only afterwards."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

WORKERS = 2


class Round:
    """Workers that meet at the end of a round."""

    def __init__(self) -> None:
        self._met = threading.Barrier(WORKERS + 1)
        self._workers = [begin(self._work) for _ in range(WORKERS)]
        if MODE == "late":
            begin(self._come_late)

    def _work(self) -> None:
        self._met.wait(FAR_SECONDS if MODE == "time_out" else None)  # core: survey # behind: survey

    def _come_late(self) -> None:
        threading.Event().wait(FAR_SECONDS)
        self._met.wait()

    def end(self) -> None:
        """Should meet them first."""
        for worker in self._workers:
            worker.join(FAR_SECONDS if MODE == "join_in_time" else None)  # core: survey
        self._met.wait()


def run() -> None:
    """One round."""
    Round().end()


join("survey")
begin(run)
stay()
