"""A thread that serves until it is asked to stop waits for nobody, nor does who joins it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from stilltrue import Agent
from stilltrue.runtime.own_ref import OwnRef
from tests.client.waits.test_thread_waits import Threads, _there, awaited, needs_memory, reported, threads, until_all_wait

__all__ = ["threads"]
pytestmark = [pytest.mark.usefixtures("only_this_file_counts"), needs_memory]


class Service:
    """Serves until somebody calls ``stop``."""

    def __init__(self) -> None:
        self.stopping, self.ended = threading.Event(), threading.Event()
        self.server: grpc.Server = grpc.server(ThreadPoolExecutor(1))

    def serve(self) -> None:
        server = grpc.server(ThreadPoolExecutor(1))
        server.start()
        self.stopping.wait()
        server.stop(None)

    def serve_its_own(self) -> None:
        self.server.start()
        self.stopping.wait()
        self.server.stop(None)

    def wait_before_it_serves(self) -> None:
        self.stopping.wait()
        self.server.stop(None)

    def wait_and_say_so(self) -> None:
        self.server.start()
        self.stopping.wait()
        self.ended.set()
        self.server.stop(None)


def join(thread: threading.Thread) -> None:
    thread.join()


def begin(threads: Threads, method: str) -> OwnRef:
    """Begin a thread that serves and one that joins it; returns the event for which it waits, to which nothing else refers."""
    service = Service()
    threads.begin("joins", join, threads.begin("serves", getattr(service, method)))
    return OwnRef(service.stopping)


@pytest.mark.parametrize("method", ["serve", "serve_its_own"])
def test_who_joins_a_thread_that_serves_until_stopped_is_not_stuck(
    alone: Callable[..., Agent], threads: Threads, method: str
) -> None:
    stopping = begin(threads, method)
    until_all_wait("serves")
    agent = alone("one")
    try:
        for _ in range(3):
            assert "serves" not in awaited(reported(agent))
    finally:
        threads.ends.append(lambda: _there(stopping).set())


@pytest.mark.parametrize("method", ["wait_before_it_serves", "wait_and_say_so"])
def test_a_thread_without_a_running_server_or_that_others_wait_for_does_not_serve(
    alone: Callable[..., Agent], threads: Threads, method: str
) -> None:
    stopping = begin(threads, method)
    until_all_wait("serves")
    try:
        assert awaited(reported(alone("one"), "serves"))["serves"] == {"serves"}
    finally:
        threads.ends.append(lambda: _there(stopping).set())
