"""What all tests share: which of them start processes, which run on one worker, and an end to the run whatever is stuck.

A worker thread of gRPC's own can be stuck for ever (a cancelled stream, a sync handler on aio); the run ends all the same.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from concurrent.futures.thread import _threads_queues
from pathlib import Path
from typing import Any

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


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).parts[0]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make check` leaves out, and keep a file's tests, or a folder's, on one worker.

    The folders that have one worker come first, for they take longest, and Java starts in a process that has no threads of
    gRPC's yet; then the agent's, for a look takes longer in a large process.
    """
    first = [*ONE_WORKER, "client"]
    items.sort(key=lambda item: first.index(_folder(item)) if _folder(item) in first else len(first))
    for item in items:
        folder = _folder(item)
        if folder in SLOW:
            item.add_marker(pytest.mark.slow)
        item.add_marker(pytest.mark.xdist_group(folder if folder in ONE_WORKER else str(item.path.relative_to(HERE))))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's scheduler, without a deadlock of its own: a worker runs a test only once it knows the next one.

    A worker that replaces a crashed one is given one file. If a single test of that file is left, and other files are, too, the
    worker waits for another test, and the scheduler waits until that test has ended.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]  # noqa: PLC0415 - xdist may be absent

    class Scheduling(LoadGroupScheduling):  # type: ignore[misc]
        def _assign_work_unit(self, node: Any) -> None:
            super()._assign_work_unit(node)
            while self.workqueue and self._pending_of(self.assigned_work[node]) < 2:
                super()._assign_work_unit(node)

    return Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)  # output is not captured yet
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """A test whose time is up ends its process, and says where it stood: `.ci/run` runs it once more.

    What pytest-timeout writes is lost in a worker, and its thread that may end the process is a way out, which looks find.
    """
    faulthandler.dump_traceback_later(settings.timeout, exit=True, file=item.config.stash[_STDERR])
    return True


def pytest_timeout_cancel_timer() -> bool:
    faulthandler.cancel_dump_traceback_later()
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """xdist puts the group behind the name of each test; `--last-failed` would not find it again."""
    name, at, _ = report.nodeid.rpartition("@")
    if at and report.nodeid.rfind("]") < len(name) and "PYTEST_XDIST_WORKER" not in os.environ:
        report.nodeid = name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-transcripts", action="store_true", help="Write tests/transcripts anew, as things are now.")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_STATUS] = int(exitstatus)


_STATUS = pytest.StashKey[int]()
_STDERR = pytest.StashKey[int]()


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
