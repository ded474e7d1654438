"""A cut of a process that has loaded redis-py but holds none of its locks."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from stilltrue import Agent
from tests.client.look.worlds import report_of

pytest.importorskip("redis.lock")


def test_a_cut_gives_no_name_to_threads_that_have_no_lock(alone: Callable[..., Agent]) -> None:
    """A named thread is a party: looks would take its actions for a party's, not for an open way out."""
    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="beside")
    thread.start()
    try:
        agent = alone("front")
        report_of(agent)
        assert thread not in [known for _, known in agent.parties.threads()]
    finally:
        go.set()
        thread.join()
