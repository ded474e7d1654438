"""Uninstrumented programs in Python and Node behind sidecars: the deadlock of their pools is reported."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

from detector.demo.harness import Harness, ManagedProcess
from tests.free_ports import free_port

PROGRAMS = Path(__file__).parent / "programs"
METHOD = "/shop.Shop/Visit"
GRPC_JS = "@grpc/grpc-js@1.14.7"
SECONDS_MAX = 30.0

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with gRPC for Node, installed for this run."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no node and npm; this test needs them")
        pytest.skip("node or npm is not installed")
    folder = tmp_path_factory.mktemp("node")
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--silent", "--prefix", str(folder), GRPC_JS]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if installed.returncode:
        if os.environ.get("CI"):
            pytest.fail(f"npm install: {installed.stderr}")
        pytest.skip(f"npm cannot install {GRPC_JS} here: {installed.stderr.strip()[:200]}")
    return folder / "node_modules"


class Shops:
    """Programs, each behind a sidecar of its own."""

    def __init__(self, folder: Path, harness: Harness, modules: Path) -> None:
        self._folder = folder
        self._stage = harness
        self._modules = modules
        self._actors: list[ManagedProcess] = []
        self._channels: list[grpc.Channel] = []
        self.admin: dict[str, str] = {}

    def open(self, name: str, language: str, *, workers: int, told: int | None) -> str:
        """A program with so many workers, of which its sidecar is told: where its callers reach it."""
        outbound = f"127.0.0.1:{free_port()}"
        if language == "python":
            command = [sys.executable, str(PROGRAMS / "visits.py")]
        else:
            command = ["node", str(PROGRAMS / "visits.js")]
        program = self._start(name, [*command, outbound, str(workers)])
        port = json.loads(program.line())["port"]
        flags = ["--service", name, "--instance", name, "--app", f"127.0.0.1:{port}", "--inbound", "127.0.0.1:0"]
        flags += ["--outbound", outbound, "--upstream-by-authority", "--admin-port", "0", "--detector", self._stage.detector]
        flags += ["--workers", str(told)] if told else []
        sidecar = self._start(
            f"{name}-sidecar", [sys.executable, "-m", "detector", "sidecar", *flags, "--drain-seconds-max", "0"]
        )
        words = dict(word.split("=", 1) for word in sidecar.line().split() if "=" in word)
        self.admin[name] = words["admin"]
        return words["inbound"]

    def visit(self, shop: str, path: list[str], hold: float) -> Any:
        """Call a shop from outside."""
        channel = grpc.insecure_channel(shop)
        self._channels.append(channel)
        trace = (("traceparent", f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"),)
        visit: Any = channel.unary_unary(METHOD)
        return visit.future(json.dumps({"path": path, "hold": hold}).encode(), metadata=trace)

    def page(self, name: str, path: str) -> str:
        with urlopen(self.admin[name].rstrip("/") + path, timeout=5) as reply:
            return str(reply.read().decode())

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        for process in reversed(self._actors):
            process.stop()

    def _start(self, name: str, command: list[str]) -> ManagedProcess:
        environment = {"NODE_PATH": str(self._modules)}
        process = ManagedProcess(name, command, environment=environment, log=self._folder / f"{name}.log")
        self._actors.append(process)
        return process


@pytest.fixture
def shops(tmp_path: Path, node_modules: Path) -> Iterator[Shops]:
    with Harness(tmp_path / "harness") as harness:
        harness.start_detector("--period-seconds", "0.2")
        shops = Shops(tmp_path, harness, node_modules)
        try:
            yield shops
        finally:
            shops.close()


@pytest.fixture
def ask(shops: Shops) -> Callable[[], dict[str, Any]]:
    return lambda: dict(json.loads(shops._stage.run("ask", "deadlock", "--json").stdout))


def _until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"waited in vain for {what}")
        time.sleep(0.05)


def _two_shops(shops: Shops, *, told: int | None) -> tuple[str, str]:
    return shops.open("orders", "python", workers=1, told=told), shops.open("stock", "node", workers=1, told=told)


@pytest.mark.longer
def test_calls_pass_through_both_languages(shops: Shops, ask: Callable[[], dict[str, Any]]) -> None:
    orders, stock = _two_shops(shops, told=1)
    reply = shops.visit(orders, [stock], 0)
    assert json.loads(reply.result(SECONDS_MAX)) == [stock]
    reply = shops.visit(stock, [orders], 0)
    assert json.loads(reply.result(SECONDS_MAX)) == [orders]
    assert ask()["holds"] is False
    assert 'stilltrue_sidecar_outbound_calls_total{caller="trace"} 1' in shops.page("orders", "/metrics")


@pytest.mark.longer
def test_a_deadlock_of_two_pools_is_called(shops: Shops, ask: Callable[[], dict[str, Any]]) -> None:
    orders, stock = _two_shops(shops, told=1)
    first = shops.visit(orders, [stock], 0.5)
    second = shops.visit(stock, [orders], 0.5)
    verdicts: list[dict[str, Any]] = []

    def deadlocked() -> bool:
        verdicts.append(ask())
        return verdicts[-1]["holds"] is True

    _until("the deadlock", deadlocked)
    assert verdicts[-1]["core"] == ["orders/Visit#1", "stock/Visit#1"]
    assert not first.done()
    assert not second.done()


@pytest.mark.longer
def test_a_pool_of_unknown_size_is_never_full(shops: Shops, ask: Callable[[], dict[str, Any]]) -> None:
    orders, stock = _two_shops(shops, told=None)
    calls = [shops.visit(orders, [stock], 0.3), shops.visit(stock, [orders], 0.3)]

    def both_wait() -> bool:
        return all(json.loads(shops.page(name, "/metadata"))["coverage"]["outbound_calls"] for name in ("orders", "stock"))

    _until("both shops to call", both_wait)
    assert [ask()["holds"] for _ in range(4)].count(True) == 0
    assert not any(call.done() for call in calls)
    assert json.loads(shops.page("orders", "/metadata"))["coverage"]["workers"] is None
