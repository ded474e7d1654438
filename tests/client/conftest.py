"""A minimal detector for the agent's tests, and agents with and without a detector."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Any

import _pytest
import execnet
import grpc
import grpc.aio
import pluggy
import pytest

from stilltrue import Agent
from stilltrue.model import ProcessName
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import Look, LookRequest
from stilltrue.protocol.wire.look import look_from_wire, request_to_wire
from stilltrue.protocol.wire.report import report_from_wire
from stilltrue.runtime.introspection import frames
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.look.budget import Budget
from stilltrue.v1 import agent_pb2 as pb
from stilltrue.v1 import agent_pb2_grpc

PATIENCE_SECONDS = 10.0
LOOK_SECONDS_MAX = 5.0
_OF_TESTS = tuple(str(Path(module.__file__).parent) + os.sep for module in (execnet, sys.modules[__name__]) if module.__file__)
_OF_PYTEST = tuple(str(Path(module.__file__).parent) + os.sep for module in (_pytest, pluggy) if module.__file__)

grpc.aio.init_grpc_aio()  # kept for the whole run: a shutdown by a garbage collection can hang joining a thread


class Detector(agent_pb2_grpc.AgentServiceServicer):
    """Implements AgentService: welcomes every agent, sends markers on request, and keeps the messages received."""

    def __init__(self, port: int = 0) -> None:
        self.heard: list[tuple[str, pb.ConnectRequest]] = []
        self.marks: dict[str, queue.SimpleQueue[int | pb.Look | None]] = {}
        self.changed = threading.Condition()
        self.differences = False
        self.report_bytes_max = 0
        self.server = grpc.server(ThreadPoolExecutor(64))
        agent_pb2_grpc.add_AgentServiceServicer_to_server(self, self.server)  # type: ignore[no-untyped-call]
        self.address = f"127.0.0.1:{self.server.add_insecure_port(f'127.0.0.1:{port}')}"
        self.server.start()

    def Connect(self, requests: Iterator[pb.ConnectRequest], context: Any) -> Iterator[pb.ConnectResponse]:  # noqa: N802
        hello = next(requests)
        name = hello.hello.process.instance
        marks: queue.SimpleQueue[int | pb.Look | None] = queue.SimpleQueue()
        context.add_callback(lambda: marks.put(None))
        self.keep(name, hello)
        self.marks[name] = marks
        threading.Thread(target=self.listen, args=(name, requests), daemon=True).start()
        welcome = pb.Welcome(detector="test", lease_seconds=0.3, differences=self.differences)
        welcome.report_bytes_max = self.report_bytes_max
        yield pb.ConnectResponse(welcome=welcome)
        while (mark := marks.get()) is not None:
            if isinstance(mark, int):
                yield pb.ConnectResponse(mark=pb.Mark(snapshot=mark))
            else:
                yield pb.ConnectResponse(look=mark)

    def listen(self, name: str, requests: Iterator[pb.ConnectRequest]) -> None:
        try:
            for request in requests:
                self.keep(name, request)
        except grpc.RpcError:
            pass  # the agent is gone

    def keep(self, name: str, request: pb.ConnectRequest) -> None:
        with self.changed:
            self.heard.append((name, request))
            self.changed.notify_all()

    def mark(self, snapshot: int) -> None:
        for marks in list(self.marks.values()):
            marks.put(snapshot)

    def wait_for(self, found: Callable[[], Any]) -> Any:
        """Wait until ``found`` returns a true value, and return it."""
        end = time.monotonic() + PATIENCE_SECONDS
        with self.changed:
            while not (result := found()):
                assert self.changed.wait(end - time.monotonic()), f"not heard within {PATIENCE_SECONDS} s"
            return result

    def report(self, name: str, snapshot: int) -> Report:
        """Wait for the report of ``name`` for ``snapshot``."""

        def found() -> Report | None:
            for source, request in self.heard:
                report = request.report
                if source == name and report.after < snapshot <= report.snapshot:
                    return report_from_wire(report)
            return None

        result: Report = self.wait_for(found)
        return result

    def look(self, name: str, request: LookRequest) -> Look:
        """Ask the process ``name`` for a look, and return its answer."""
        self.marks[name].put(request_to_wire(request))

        def found() -> Look | None:
            answers = (heard.looked for source, heard in self.heard if source == name and heard.HasField("looked"))
            seen = (look_from_wire(ProcessName(name), answer) for answer in answers)
            return next((look for look in seen if look.snapshot == request.snapshot), None)

        result: Look = self.wait_for(found)
        return result

    def kinds(self, name: str) -> list[str]:
        return [request.WhichOneof("message") or "" for source, request in self.heard if source == name]


@pytest.fixture
def detector() -> Iterator[Detector]:
    detector = Detector()
    yield detector
    detector.server.stop(0)


@pytest.fixture
def join(detector: Detector) -> Iterator[Callable[..., Agent]]:
    """Makes agents that have joined the detector."""
    agents: list[Agent] = []

    def join(name: str, **settings: Any) -> Agent:
        agent = Agent(name, instance=name, detector=detector.address, **settings)
        agents.append(agent)
        assert agent.wait_until_joined(PATIENCE_SECONDS)
        return agent

    yield join
    for agent in agents:
        agent.close()


@pytest.fixture
def alone() -> Iterator[Callable[..., Agent]]:
    """Makes agents without a detector."""
    agents: list[Agent] = []

    def make(name: str, **settings: Any) -> Agent:
        agent = Agent(name, instance=name, detector="127.0.0.1:1", **settings)
        agents.append(agent)
        return agent

    yield make
    for agent in agents:
        agent.close()


@pytest.fixture(autouse=True)
def time_for_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give looks more time than in a program: they also walk everything that pytest has imported and left behind."""
    monkeypatch.setattr(Budget.__init__, "__defaults__", (LOOK_SECONDS_MAX,))


@pytest.fixture(autouse=True)
def without_others_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide pytest-xdist's threads, one of which may interrupt the main thread, and those that earlier tests left stuck."""
    frames_now, own = sys._current_frames, threading.get_ident()
    of_tests = {ident for ident, frames in frames_of_threads().items() if ident != own and any(map(_is_of_tests, frames))}
    hidden = {
        thread
        for thread in threading.enumerate()
        if thread.ident in of_tests or thread.name.startswith("pytest_timeout")  # it references every object of the tests
    }
    without_object = of_tests - {thread.ident for thread in hidden}

    def others_left_out() -> dict[int, FrameType]:
        idents = without_object | {thread.ident for thread in threading.enumerate() if thread in hidden}  # reused later
        return {ident: frame for ident, frame in frames_now().items() if ident not in idents}

    monkeypatch.setattr(sys, "_current_frames", others_left_out)


@pytest.fixture(autouse=True)
def without_pytests_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """End each stack at the test function. A look at pytest's own frames, of which there are forty, takes most of its time."""
    every = frames._frames_from

    def up_to_the_test(frame: FrameType | None) -> list[FrameType]:
        whole = every(frame)
        inside = list(takewhile(lambda one: not one.f_code.co_filename.startswith(_OF_PYTEST), whole))
        return inside or whole[:1]  # between two tests; each thread has a frame

    monkeypatch.setattr(frames, "_frames_from", up_to_the_test)


def _is_of_tests(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OF_TESTS)
