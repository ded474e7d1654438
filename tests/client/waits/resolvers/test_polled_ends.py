"""A thread that asks again and again whether another one has ended waits for its end, if its code does nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.client.look.worlds import look_at, of, report_when
from tests.client.waits.conftest import Front, is_unseen, seen_in, targets

OTHER = SimpleNamespace(calls=0)


def by_join(thread: Any) -> None:
    while thread.is_alive():
        thread.join(0.2)


def by_join_by_name(thread: Any) -> None:
    while thread.is_alive():
        thread.join(timeout=0.2)


def by_sleep(thread: Any) -> None:
    while thread.is_alive():
        time.sleep(0.2)


def until_a_break(thread: Any) -> None:
    while True:
        thread.join(0.2)
        if not thread.is_alive():
            break


def one_by_one(thread: Any) -> None:
    for each in [thread]:
        while each.is_alive():
            each.join(0.2)


def at_most_a_while(thread: Any) -> None:
    end = time.monotonic() + 15
    while thread.is_alive() and time.monotonic() < end:
        thread.join(0.2)


def a_few_times(thread: Any) -> None:
    for _ in range(75):
        if thread.is_alive():
            thread.join(0.2)


def with_something_to_do(thread: Any) -> None:
    while thread.is_alive():
        thread.join(0.2)
        OTHER.calls.bit_length()


def in_an_attribute(thread: Any) -> None:
    OTHER.thread = thread
    while OTHER.thread.is_alive():
        OTHER.thread.join(0.2)


def in_a_variable_of_two_functions(thread: Any) -> Callable[[], Any]:
    def forget() -> None:
        nonlocal thread
        thread = None

    while thread.is_alive():
        thread.join(0.2)
    return forget


def until_ctrl_c(thread: Any) -> None:
    try:
        while thread.is_alive():
            thread.join(0.2)
    except KeyboardInterrupt:
        OTHER.calls += 1


def once(thread: Any) -> None:
    thread.join(15)


class Stubborn(threading.Thread):
    """A thread that says itself whether it is alive."""

    def is_alive(self) -> bool:
        return super().is_alive()


def wait_for_call(front: Front, kind: type[threading.Thread], wait: Callable[..., object]) -> None:
    """Start a thread that waits for a call, and another that waits for its end."""
    other = kind(target=lambda: front.get(b""), name="other", daemon=True)
    other.start()
    front.wait_for_callers()
    front.start("waiter", wait, other)


@pytest.mark.parametrize("wait", [by_join, by_join_by_name, by_sleep, until_a_break, one_by_one])
def test_it_waits_for_the_threads_end(front: Front, wait: Callable[..., object]) -> None:
    wait_for_call(front, threading.Thread, wait)
    for _ in range(3):
        assert targets(front.seen("thread:waiter")) == ["thread:other"]
    report = report_when(front.agent, lambda report: not is_unseen(report, "thread:waiter"))
    time.sleep(0.5)  # it asks meanwhile
    assert of(look_at(front.agent, report), seen_in(report, "thread:waiter").waiter).unchanged
    front.let_go()


@pytest.mark.parametrize(
    ("kind", "wait"),
    [
        (threading.Thread, at_most_a_while),
        (threading.Thread, a_few_times),
        (threading.Thread, with_something_to_do),
        (threading.Thread, in_an_attribute),
        (threading.Thread, in_a_variable_of_two_functions),
        (threading.Thread, until_ctrl_c),
        (threading.Thread, once),
        (Stubborn, by_join),
    ],
)
def test_it_does_not_if_it_may_do_anything_else(
    front: Front, kind: type[threading.Thread], wait: Callable[..., object]
) -> None:
    wait_for_call(front, kind, wait)
    end = time.monotonic() + 0.6
    assert is_unseen(report_when(front.agent, lambda _: time.monotonic() > end), "thread:waiter")
    front.let_go()
