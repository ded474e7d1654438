"""A thread that lets Twisted's reactor run a function waits for the reactor's thread, until the function has begun."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import Front, targets

base = pytest.importorskip("twisted.internet.base")
threads = pytest.importorskip("twisted.internet.threads")
_REACTOR = """
class Reactor:
    def __init__(self):
        self.threadCallQueue = []

    def callFromThread(self, called):
        self.threadCallQueue.append((called, (), {}))

    def run(self, within):
        within(self)

    def runUntilCurrent(self, count, within):
        within()
"""


def reactor() -> Any:
    """A reactor, as far as the agent can tell, of which a process can have several."""
    names: dict[str, Any] = {}
    exec(compile(_REACTOR, base.__file__, "exec"), names)
    return names["Reactor"]()


def run_all(one: Any) -> None:
    for called, _, _ in one.threadCallQueue:
        called()


def asks(one: Any) -> None:
    threads.blockingCallFromThread(one, int)


def test_a_call_in_the_reactors_thread_waits_for_itself(front: Front) -> None:
    one = reactor()
    front.start("reactor", one.run, asks)
    assert targets(front.seen("thread:reactor")) == ["thread:reactor"]
    report = front.report_when_still("reactor")
    look = of(look_at(front.agent, report), "front/thread:reactor")
    assert (look.unchanged, look.ways_out, look.doubt) == (True, (), "")
    run_all(one)
    front.let_go()


@pytest.mark.parametrize("counted", [None, 0])
def test_a_call_waits_for_the_reactors_thread_before_it_has_begun(front: Front, counted: int | None) -> None:
    one = reactor()
    one.callFromThread(int)

    def within(_: Any) -> None:
        blocks: Callable[[], object] = lambda: front.get(b"")  # noqa: E731 - runUntilCurrent calls it
        if counted is None:
            blocks()
        else:
            one.runUntilCurrent(counted, blocks)

    front.hold(one.run, within)
    assert front.waits_for(asks, one) == ["thread:holder"]
    run_all(one)
    front.let_go()


@pytest.mark.parametrize("how", ["counted", "taken", "nowhere"])
def test_who_ends_a_call_that_has_begun_is_unknown(front: Front, how: str) -> None:
    one = reactor()
    one.callFromThread(int)
    go = threading.Event()
    if how != "nowhere":
        front.hold(one.run, lambda _: one.runUntilCurrent(1 if how == "counted" else 0, lambda: front.get(b"")))
    front.start("waiter", asks, one)
    while len(one.threadCallQueue) < 2:
        go.wait(0.01)
    every = list(one.threadCallQueue)
    if how == "taken":
        one.threadCallQueue.clear()
    report = front.report_when_still("waiter")
    assert not [wait for wait in report.waits if wait.waiter == "front/thread:waiter"]
    every[1][0]()
    front.let_go()
