"""A thread called ``waiter`` at a child process, and what an agent reports of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from stilltrue import Agent
from stilltrue.protocol.report import LocalWait, PartyTarget, Report
from stilltrue.protocol.requests.look import PartyLook
from stilltrue.runtime.waits.reachability import thread_waits
from tests.client.look.worlds import look_at, report_of

WAITER = "here/thread:waiter"
SECONDS_MAX = 20.0


@contextmanager
def using(
    code: str | list[str], use: Callable[[Any], None], give: Callable[[Any], object] = id, **options: Any
) -> Iterator[int]:
    """A thread called ``waiter`` that uses a child with this code; ``give`` gets the ``Popen`` first. Yields the child's id."""
    pids: list[int] = []
    begun = threading.Event()
    command = [sys.executable, "-ISc", code] if isinstance(code, str) else code

    def run() -> None:
        with suppress(OSError, ValueError), subprocess.Popen(command, start_new_session=True, **options) as child:
            pids.append(child.pid)
            give(child)
            begun.set()
            with suppress(OSError, ValueError):
                use(child)

    thread = threading.Thread(target=run, name="waiter", daemon=True)
    thread.start()
    assert begun.wait(SECONDS_MAX)
    try:
        yield pids[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pids[0], signal.SIGKILL)
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


waiting = partial(using, use=lambda child: child.wait())
"""The same, for one that waits for the child's end."""


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


def lasting_look(agent: Agent) -> PartyLook:
    """The look at the waiter while it waits on. A child that gets no processor is seen at the next look."""
    end = time.monotonic() + SECONDS_MAX
    while not (seen := looked_at(agent)).unchanged:
        assert time.monotonic() < end
    return seen


def assert_waits_for_itself(agent: Agent) -> None:
    """Assert that the waiter does, also at the second look."""
    wait_until_for(agent, WAITER)
    seen = lasting_look(agent)
    assert (seen.ways_out, seen.doubt, seen.deadline) == ((), "", None)


def end_workers(pool: Any) -> None:
    """Kill the workers of a pool, or of an executor, of processes."""
    if isinstance(pool, ProcessPoolExecutor):
        for worker in list((pool._processes or {}).values()):
            worker.kill()
        pool.shutdown()
    else:
        pool.terminate()
        pool.join()
