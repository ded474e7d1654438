"""Ends the test run even where a worker thread of gRPC's own is stuck for ever (a cancelled stream, a sync handler on aio)."""

from __future__ import annotations

import os
import sys
import threading

import pytest

STUCK_SECONDS_MAX = 5.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-transcripts", action="store_true", help="Write tests/transcripts anew, as things are now.")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = int(exitstatus)


_STATUS = pytest.StashKey[int]()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Python would wait for such a thread before it ends; the tests are over, and their answer is known."""
    others = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    for thread in others:
        thread.join(STUCK_SECONDS_MAX / len(others))
    stuck = [thread.name for thread in others if thread.is_alive()]
    if stuck:
        print(f"\nthreads still stuck at the end: {', '.join(stuck)}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash.get(_STATUS, 1))
