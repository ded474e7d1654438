"""Events named like an operation (``self.stop``, ``self.shutdown``): testing one neither stops nor wakes anything."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.ways_out.closing import FAR_SECONDS, Ended, Holder, may_close_the_channel
from tests.client.look.worlds import Stuck

POLL_SECONDS = 0.05


class Container:
    """An application that runs until its event is set, then closes what it owns; its jobs run meanwhile."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.shutdown = threading.Event()
        self.counts: dict[str, int] = {}
        self.jobs = [self.flush]

    def flush(self) -> None:
        """Count its runs."""
        self.counts["flush"] = self.counts.get("flush", 0) + 1

    def end(self) -> None:
        """Tell it to stop."""
        self.stop.set()

    def run_jobs(self, go: threading.Event) -> None:
        """Run each job now and then."""
        while not self.shutdown.wait(POLL_SECONDS):
            for job in self.jobs:
                job()
            if go.is_set():
                break


def _polls(owned: Any, go: threading.Event, container: Container) -> None:
    while not container.stop.wait(POLL_SECONDS):
        if go.is_set():
            raise Ended
    owned.close()


def polls(owned: Any, go: threading.Event) -> None:
    _polls(owned, go, Container())


def polls_beside_jobs(owned: Any, go: threading.Event) -> None:
    container = Container()
    jobs = threading.Thread(target=container.run_jobs, args=(go,))
    jobs.start()
    try:
        _polls(owned, go, container)
    finally:
        jobs.join()


def polls_beside_a_timer(owned: Any, go: threading.Event) -> None:
    container = Container()
    timer = threading.Timer(FAR_SECONDS, container.end)
    timer.start()
    try:
        _polls(owned, go, container)
    finally:
        timer.cancel()


def polls_beside_a_job_that_stops_it(owned: Any, go: threading.Event) -> None:
    container = Container()

    def ends() -> None:
        if container.counts.get("flush", 0) > FAR_SECONDS / POLL_SECONDS:
            container.stop.set()

    container.jobs.append(ends)
    jobs = threading.Thread(target=container.run_jobs, args=(go,))
    jobs.start()
    try:
        _polls(owned, go, container)
    finally:
        jobs.join()


@pytest.mark.parametrize(
    ("holder", "closes"),
    [
        (polls, False),
        (polls_beside_jobs, False),
        (polls_beside_a_timer, True),
        (polls_beside_a_job_that_stops_it, True),
    ],
)
def test_a_party_that_polls_an_event_named_stop_closes_only_if_another_sets_it(
    alone: Callable[..., Agent], holder: Holder, closes: bool
) -> None:
    assert may_close_the_channel(alone, Stuck(), holder) == closes
