"""Calls made by threads: results awaited with a timeout, and threads with the same name."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import CallNumber
from stilltrue.protocol.report import CallTarget
from tests.client.shells import World, make_world

Alone = Callable[..., Agent]


@pytest.fixture
def world(alone: Alone) -> Iterator[World]:
    world = make_world("threads", alone)
    yield world
    world.go.set()
    world.settle()
    world.close()


def test_a_future_is_waited_for_only_while_its_result_is_awaited(world: World) -> None:
    future = world.stub(world.client, "Do").future(b"x")
    report = world.report(world.client)
    assert (len(report.made), report.waits) == (1, ())
    thread = threading.Thread(target=future.result, name="asker")
    thread.start()
    world.until(lambda: len(world.report(world.client).waits) == 1)
    (wait,) = world.report(world.client).waits
    assert (wait.waiter, wait.among, wait.deadline) == ("client/thread:asker", (CallTarget(number=CallNumber(1)),), None)
    assert wait.waiter != report.made[0].party
    with pytest.raises(grpc.FutureTimeoutError):
        future.result(timeout=0.01)
    world.go.set()
    thread.join()
    assert world.report(world.client).waits == ()


def test_the_result_of_a_future_with_a_timeout_is_a_wait_that_ends(world: World) -> None:
    future = world.stub(world.client, "Do").future(b"x")
    thread = threading.Thread(target=lambda: future.result(timeout=60))
    thread.start()
    world.until(lambda: len(world.report(world.client).waits) == 1)
    report = world.report(world.client)
    assert report.waits[0].deadline is not None
    assert 50 < report.waits[0].deadline - report.cut_at <= 60
    world.go.set()
    thread.join()


def test_threads_of_one_name_are_different_parties(world: World) -> None:
    do = world.stub(world.client, "Do")

    def call() -> None:
        with contextlib.suppress(grpc.RpcError):
            do(b"x")

    threads = [threading.Thread(target=call, name="same") for _ in range(2)]
    for thread in threads:
        thread.start()
    world.until(lambda: len(world.report(world.client).waits) == 2)
    waiters = {wait.waiter for wait in world.report(world.client).waits}
    world.go.set()
    for thread in threads:
        thread.join()
    assert len(waiters) == 2
