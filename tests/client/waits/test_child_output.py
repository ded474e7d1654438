"""A thread that waits for a child, which waits at a pipe that only the thread can use, waits for itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.protocol.report import LocalWait, PartyTarget, Report
from stilltrue.protocol.requests.look import PartyLook
from stilltrue.runtime.waits.reachability import thread_waits
from tests.client.look.worlds import look_at, report_of

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not Path("/proc/self/timers").exists(), reason="the system does not show timers"),
    pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 14), reason="references of frames are not read"),
]
WAITER = "here/thread:waiter"
WRITES = "import sys; sys.stdout.write('x' * 1_000_000)"
READS = "import sys; sys.stdin.read()"
OUTPUT: dict[str, Any] = {"stdout": subprocess.PIPE}
INPUT: dict[str, Any] = {"stdin": subprocess.PIPE}
SECONDS_MAX = 20.0


@contextmanager
def waiting(code: str, give: Callable[[Any], object] = lambda _: None, **options: Any) -> Iterator[int]:
    """A thread called ``waiter`` that waits for a child with this code; ``give`` gets the ``Popen``. Yields the child's id."""
    pids: list[int] = []
    begun = threading.Event()

    def wait() -> None:
        with subprocess.Popen([sys.executable, "-ISc", code], **options) as child:
            pids.append(child.pid)
            give(child)
            begun.set()
            child.wait()

    thread = threading.Thread(target=wait, name="waiter", daemon=True)
    thread.start()
    assert begun.wait(SECONDS_MAX)
    try:
        yield pids[0]
    finally:
        with suppress(ProcessLookupError):
            os.kill(pids[0], signal.SIGKILL)
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def waits_of(report: Report) -> list[LocalWait]:
    return [one for one in report.waits if one.waiter == WAITER and one.among]


def enders(report: Report) -> list[str]:
    return [str(one.party) for wait in waits_of(report) for one in wait.among if isinstance(one, PartyTarget)]


def searched(agent: Agent) -> Report:
    """A cut, after the search that the agent's own thread makes."""
    time.sleep(thread_waits.AGAIN_SECONDS)
    agent._observer.searchers.search(time.time())
    return report_of(agent)


def wait_until_for(agent: Agent, *parties: str) -> None:
    """Wait until the waiter waits for these parties."""
    end = time.monotonic() + SECONDS_MAX
    while enders(report := searched(agent)) != list(parties):
        assert time.monotonic() < end, waits_of(report)


def looked_at(agent: Agent) -> PartyLook:
    report = report_of(agent)
    return next(one for one in look_at(agent, report).parties if one.party == WAITER)


@pytest.mark.parametrize(("code", "options"), [(WRITES, OUTPUT), (WRITES, {**OUTPUT, "text": True}), (READS, INPUT)])
def test_who_waits_for_a_child_that_waits_for_it_waits_for_itself(
    alone: Callable[..., Agent], code: str, options: dict[str, Any]
) -> None:
    agent = alone("here")
    with waiting(code, **options):
        wait_until_for(agent, WAITER)
        seen = looked_at(agent)
        assert (seen.unchanged, seen.ways_out, seen.doubt, seen.deadline) == (True, (), "", None)


def test_another_thread_that_has_the_file_may_read_it(alone: Callable[..., Agent]) -> None:
    agent, given, end = alone("here"), list[Any](), threading.Event()

    def read_later(file: Any) -> None:
        end.wait()
        with suppress(ValueError):
            file.read(1)

    def give(child: Any) -> None:
        given.append(threading.Thread(target=read_later, args=(child.stdout,), name="reader", daemon=True))
        given[0].start()

    with waiting(WRITES, give, **OUTPUT):
        wait_until_for(agent, "here/thread:reader")
    end.set()
    given[0].join(SECONDS_MAX)


@pytest.mark.parametrize(
    "code",
    [
        f"import signal; signal.signal(signal.SIGALRM, lambda *_: 1 / 0); {WRITES}",
        f"import threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); {WRITES}",
        "import time; time.sleep(600)",
    ],
    ids=["alarm", "thread", "sleeps"],
)
def test_a_child_that_may_go_on_is_unknown(alone: Callable[..., Agent], code: str) -> None:
    agent = alone("here")
    with waiting(code, **OUTPUT):
        for _ in range(6):
            assert not enders(searched(agent))


def test_another_process_that_has_the_pipe_too_is_found_by_the_look(alone: Callable[..., Agent]) -> None:
    agent, others = alone("here"), list[subprocess.Popen[bytes]]()

    def give(child: Any) -> None:
        others.append(
            subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(600)"], pass_fds=[child.stdout.fileno()])
        )

    with waiting(WRITES, give, **OUTPUT):
        wait_until_for(agent, WAITER)
        assert not looked_at(agent).unchanged
    others[0].kill()
    others[0].wait()
