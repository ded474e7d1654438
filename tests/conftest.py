"""What all tests share: which of them start processes, which run on one worker, and an end to the run whatever is stuck.

A worker thread of gRPC's own can be stuck for ever (a cancelled stream, a sync handler on aio); the run ends all the same.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures.thread import _threads_queues
from pathlib import Path

import pytest

STUCK_SECONDS_MAX = 5.0
HERE = Path(__file__).parent
SLOW = (
    "archive",
    "bench",
    "checkpoints",
    "collector",
    "commands",
    "helm",
    "live",
    "mutants",
    "service",
    "sidecar",
    "simulator",
    "spark",
)
"""Folders whose tests start processes, or take long: `make check` leaves them out."""
ONE_WORKER = ("spark", "live", "sidecar")
"""Folders whose tests run on one worker each: they share a Spark session, or must not crowd each other out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make check` leaves out, and keep a file's tests, or a folder's, on one worker."""
    for item in items:
        folder = item.path.relative_to(HERE).parts[0]
        if folder in SLOW:
            item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.xdist_group(folder if folder in ONE_WORKER else str(item.path)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-transcripts", action="store_true", help="Write tests/transcripts anew, as things are now.")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = int(exitstatus)


_STATUS = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Python would wait for such a thread before it ends; the tests are over, and their answer is known."""
    joined_at_exit = set(_threads_queues)  # an executor's workers, even those that a daemon thread has started
    others = [
        thread
        for thread in threading.enumerate()
        if (not thread.daemon or thread in joined_at_exit) and thread is not threading.main_thread()
    ]
    for thread in others:
        thread.join(STUCK_SECONDS_MAX / len(others))
    stuck = [thread.name for thread in others if thread.is_alive()]
    if stuck:
        print(f"\nthreads still stuck at the end: {', '.join(stuck)}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash.get(_STATUS, 1))
