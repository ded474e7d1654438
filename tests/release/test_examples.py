"""The programs in docs/examples run as their pages say."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from detector.core.verdict import write_verdict
from detector.release.publish import ROOT
from stilltrue import Detector
from tests.commands.conftest import environment
from tests.free_ports import free_port

EXAMPLES = ROOT / "docs" / "examples"
SHOP = EXAMPLES / "shop" / "shop.py"
SWARM = EXAMPLES / "swarm" / "swarm.py"
LEDGER = EXAMPLES / "ledger" / "ledger.py"
PATIENCE_SECONDS = 120.0
SEEN_LATER = {"swarm/task:Task-1", "ledger/thread:customer-0", "ledger/thread:customer-1"}
"""Beside the declared waits, agents prove after a second or two who can reach the awaited futures: also those who asked."""
STILLTRUE = [sys.executable, "-m", "detector"]
pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.mark.parametrize(("customers", "holds"), [(3, True), pytest.param(1, False, marks=pytest.mark.longer)])
def test_the_shop_deadlocks_with_several_customers_and_works_with_one_and_ends_when_told(
    customers: int, holds: bool, tmp_path: Path
) -> None:
    addresses = {f"{name}_ADDRESS": f"127.0.0.1:{free_port()}" for name in ("ORDERS", "STOCK")}
    env = environment(CUSTOMERS=str(customers), **addresses)
    with ExitStack() as stack:
        stack.enter_context(_detector(env, tmp_path))
        services = []
        for name in ("orders", "stock"):
            program = [*STILLTRUE, "run", "--service", name, "--", sys.executable, str(SHOP), name]
            services.append(stack.enter_context(_running(program, env, tmp_path)))
        give_up = time.monotonic() + PATIENCE_SECONDS
        while (verdict := _asked(env))["holds"] is not holds or verdict["snapshot"]["members"] != 2:
            assert time.monotonic() < give_up, verdict
        if holds:
            assert {party.split("-")[0] for party in verdict["core"]} == {"orders", "stock"}
        for service, how in zip(services, (signal.SIGINT, signal.SIGTERM), strict=True):
            service.send_signal(how)
            assert service.wait(PATIENCE_SECONDS) == 0, "it ends, deadlocked or not"
        while len(members := _members(env)) > 0:  # both have said goodbye: nothing is undetermined until they are forgotten
            assert time.monotonic() < give_up, members
            time.sleep(0.1)


def test_a_second_shop_at_the_port_of_one_that_runs_says_so(tmp_path: Path) -> None:
    """With gRPC's default both would serve at the port, and calls go to either."""
    env = environment(ORDERS_ADDRESS=f"127.0.0.1:{free_port()}")
    program = [sys.executable, str(SHOP), "orders"]
    with _running(program, env, tmp_path) as first:
        with grpc.insecure_channel(env["ORDERS_ADDRESS"]) as channel:
            grpc.channel_ready_future(channel).result(PATIENCE_SECONDS)
        second = subprocess.run(program, env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert first.poll() is None
    assert second.returncode == 1
    assert "is in use: set ORDERS_ADDRESS" in second.stderr


@pytest.mark.parametrize(
    ("program", "near_miss", "core"),
    [
        (SWARM, {"ASK": "librarian"}, {"swarm/task:writer", "swarm/task:reviewer"}),
        (LEDGER, {"DIRECTIONS": "1"}, {"ledger/thread:writer-alice", "ledger/thread:writer-bob"}),
    ],
    ids=["swarm", "ledger"],
)
def test_waits_for_answers_are_declared_with_two_calls(
    program: Path, near_miss: dict[str, str], core: set[str], tmp_path: Path
) -> None:
    env = environment()
    with ExitStack() as stack:
        stack.enter_context(_detector(env, tmp_path))
        fine = environment(**near_miss, STILLTRUE_DETECTOR=env["STILLTRUE_DETECTOR"], STILLTRUE_INSTANCE="fine")
        works = stack.enter_context(_running([sys.executable, str(program)], fine, tmp_path))
        stuck = {**env, "STILLTRUE_INSTANCE": next(iter(core)).split("/")[0]}
        running = stack.enter_context(_running([sys.executable, str(program)], stuck, tmp_path))
        give_up = time.monotonic() + PATIENCE_SECONDS
        while (verdict := _asked(env))["holds"] is not True or verdict["snapshot"]["members"] != 2:
            assert time.monotonic() < give_up, verdict
        assert set(verdict["core"]) - SEEN_LATER == core
        assert not [party for party in verdict["remainder"] if party.startswith("fine/")]
        for ending, how in ((running, signal.SIGINT), (works, signal.SIGTERM)):
            ending.send_signal(how)
            assert ending.wait(PATIENCE_SECONDS) == 0, "it ends, deadlocked or not"
        while len(members := _members(env)) > 0:  # both have said goodbye
            assert time.monotonic() < give_up, members
            time.sleep(0.1)


@contextmanager
def _detector(env: dict[str, str], folder: Path) -> Iterator[None]:
    """A detector, which ``env`` names from now on."""
    serve = [*STILLTRUE, "serve", "--port=0", "--http-port=0", "--period-seconds=0.2"]
    with _running(serve, env, folder) as detector:
        assert detector.stdout is not None
        found = re.search(rb"grpc=(\S+)", detector.stdout.readline())
        assert found
        env["STILLTRUE_DETECTOR"] = found[1].decode()
        yield


def _asked(env: dict[str, str]) -> dict[str, Any]:
    with Detector(env["STILLTRUE_DETECTOR"]) as detector:
        return write_verdict(detector.ask("deadlock"))


def _members(env: dict[str, str]) -> list[Any]:
    done = subprocess.run([*STILLTRUE, "agents", "--json"], env=env, capture_output=True, check=True)
    return list(json.loads(done.stdout))


@contextmanager
def _running(command: list[str], env: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
