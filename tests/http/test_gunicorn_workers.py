"""gunicorn workers with an event loop: a task that blocks it is killed with its worker, unless gunicorn watches none."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stilltrue.agent import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.report import OBSERVED_MIN, LocalWait

base = pytest.importorskip("gunicorn.workers.base")
SECONDS_MAX = 60.0


class Worker(base.Worker):  # type: ignore[name-defined,misc]
    """Runs one coroutine as gunicorn's workers do."""

    def __init__(self, timeout: int) -> None:
        self.cfg = SimpleNamespace(timeout=timeout)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run(coroutine)


def first_waits(agent: Agent) -> Sequence[LocalWait]:
    end = time.monotonic() + SECONDS_MAX
    for number in itertools.count(1):
        report = agent.live.marked(SnapshotId(number))
        assert report is not None
        recorded = [wait for wait in report.waits if wait.number < OBSERVED_MIN]  # other tests may have left threads behind
        if recorded:
            return recorded
        assert time.monotonic() < end
    raise AssertionError


@pytest.mark.parametrize("timeout", [0, 30])
def test_a_blocked_loop_that_gunicorn_watches_ends_by_itself(timeout: int) -> None:
    agent = Agent("here", detector="127.0.0.1:1")
    lock = agent.Lock("held")

    async def block() -> None:
        with lock:
            pass

    with lock:
        thread = threading.Thread(target=Worker(timeout).run, args=(block(),))
        thread.start()
        waits = first_waits(agent)
    thread.join()
    assert [wait.deadline is None for wait in waits] == [not timeout]
