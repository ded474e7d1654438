"""The cost of one snapshot a second: calls per second with and without, alternating over the same processes.

STILLTRUE_BENCH=1 pytest tests/bench/test_snapshot_throughput.py -s
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path

import grpc
import pytest

from detector.demo.harness import Harness, ManagedProcess
from detector.demo.scene import Load, Scene, Service, Work
from stilltrue.v1 import detector_pb2 as pb
from stilltrue.v1.detector_pb2_grpc import DetectorServiceStub
from stilltrue.v1.snapshot_pb2 import HOLDS_FALSE

SCENE = Scene(
    services={
        "front": Service(workers=4, methods={"Get": (Work(seconds=0),)}),
    },
    loads={"load": Load(method="front.Get", threads=2, pause=0)},
)
MEASURING = "STILLTRUE_BENCH" in os.environ
"""Else the bench is only held to run: `make bench` sets it."""

ROUNDS = 10 if MEASURING else 1
WINDOW_SECONDS = 3.0 if MEASURING else 1.0


@pytest.fixture
def here_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", here)


def calls_a_second(harness: Harness, load: ManagedProcess, ask: DetectorServiceStub | None) -> float:
    """Calls completed in one window, with a snapshot a second if there is a detector."""
    stop = threading.Event()

    def go_on() -> None:
        while ask is not None and not stop.is_set():
            verdict = ask.Ask(pb.AskRequest(predicate="deadlock"), timeout=10).verdict
            assert verdict.holds == HOLDS_FALSE
            stop.wait(1.0)

    asking = threading.Thread(target=go_on)
    before, begun = harness.stats(load.name)["done"], time.monotonic()
    asking.start()
    time.sleep(WINDOW_SECONDS)  # the window that is measured
    after, ended = harness.stats(load.name)["done"], time.monotonic()
    stop.set()
    asking.join()
    return (after - before) / (ended - begun)


@pytest.mark.longer
@pytest.mark.usefixtures("here_importable")
def test_the_cost_of_a_snapshot_a_second(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        harness.start_detector("--period-seconds", "0")
        harness.start_scene("test_snapshot_throughput:SCENE")
        load = harness.processes["load"]
        with grpc.insecure_channel(harness.detector) as channel:
            stub = DetectorServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
            calls_a_second(harness, load, None)
            pairs = [(calls_a_second(harness, load, None), calls_a_second(harness, load, stub)) for _ in range(ROUNDS)]
    lost = [1 - with_snapshots / without for without, with_snapshots in pairs]
    print(f"\ncalls/s without {statistics.median(w for w, _ in pairs):.0f}, with {statistics.median(w for _, w in pairs):.0f}")
    print(f"lost with a snapshot a second: median {statistics.median(lost):+.1%}, from {min(lost):+.1%} to {max(lost):+.1%}")
    assert all(rate > 0 for pair in pairs for rate in pair)
