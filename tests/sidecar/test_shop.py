"""The shop of the examples behind sidecars: it forwards nothing, and one of its programs makes calls of its own."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from detector.demo.harness import Harness, ManagedProcess
from tests.free_ports import free_port

SHOP = Path(__file__).parents[2] / "docs" / "examples" / "shop" / "shop.py"
SECONDS_MAX = 60.0

pytestmark = pytest.mark.live


def _address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.mark.longer
def test_the_deadlock_of_a_shop_that_forwards_nothing_is_not_denied(tmp_path: Path) -> None:
    programs, inbound, outbound = ({name: _address() for name in ("orders", "stock")} for _ in range(3))
    actors: list[ManagedProcess] = []

    def start(name: str, command: list[str], **environment: str) -> ManagedProcess:
        actors.append(ManagedProcess(name, command, environment=environment, log=tmp_path / f"{name}.log"))
        return actors[-1]

    with Harness(tmp_path / "harness") as harness:
        harness.start_detector("--period-seconds", "0.2")
        try:
            for name, other in (("orders", "stock"), ("stock", "orders")):
                flags = ["--service", name, "--instance", name, "--app", programs[name], "--inbound", inbound[name]]
                flags += ["--outbound", outbound[name], "--upstream", inbound[other], "--admin-port", "0", "--workers", "2"]
                command = [sys.executable, "-m", "detector", "sidecar", *flags, "--detector", harness.detector]
                start(f"{name}-sidecar", [*command, "--drain-seconds-max", "0"]).line()
            for name, other in (("orders", "stock"), ("stock", "orders")):
                addresses = {f"{name.upper()}_ADDRESS": programs[name], f"{other.upper()}_ADDRESS": outbound[name]}
                start(name, [sys.executable, str(SHOP), name], **addresses)
            verdict = _stuck(harness)
            listed = {agent["process"]: agent["blind"] for agent in json.loads(harness.run("agents", "-o", "json").stdout)}
        finally:
            for actor in reversed(actors):
                actor.stop()
    assert verdict["holds"] is None
    assert "is unknown, and may wait for it" in verdict["witness"]["text"]
    assert {spot["process"] for spot in verdict["coverage"]["blind"]} == {"orders", "stock"}
    assert all("whose caller is unknown" in str(spots) for spots in listed.values())


def _stuck(harness: Harness) -> dict[str, Any]:
    """Wait until both programs have calls that have lasted; return the verdict on the deadlock."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        verdict: dict[str, Any] = json.loads(harness.run("ask", "deadlock", "-o", "json").stdout)
        if len(verdict["coverage"]["blind"]) == 2 and verdict["holds"] is not False:
            return verdict
        if time.monotonic() > deadline:
            pytest.fail(f"waited in vain for the deadlock: {verdict}")
        time.sleep(0.2)
