"""The programs in docs/examples run as their pages say."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from detector.core.verdict import write_verdict
from detector.release.publish import ROOT
from stilltrue import Detector
from tests.chaos.fleet import free_port
from tests.commands.conftest import environment

SHOP = ROOT / "docs" / "examples" / "shop" / "shop.py"
PATIENCE_SECONDS = 120.0
STILLTRUE = [sys.executable, "-m", "detector"]
pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.mark.parametrize(("customers", "holds"), [(3, True), (1, False)])
def test_the_shop_deadlocks_with_several_customers_and_works_with_one(customers: int, holds: bool, tmp_path: Path) -> None:
    addresses = {f"{name}_ADDRESS": f"127.0.0.1:{free_port()}" for name in ("ORDERS", "STOCK")}
    env = environment(CUSTOMERS=str(customers), **addresses)
    with ExitStack() as stack:
        serve = [*STILLTRUE, "serve", "--port=0", "--http-port=0", "--period-seconds=0.2"]
        detector = stack.enter_context(_running(serve, env, tmp_path))
        assert detector.stdout is not None
        found = re.search(rb"grpc=(\S+)", detector.stdout.readline())
        assert found
        env["STILLTRUE_DETECTOR"] = found[1].decode()
        for name in ("orders", "stock"):
            program = [*STILLTRUE, "run", "--service", name, "--", sys.executable, str(SHOP), name]
            stack.enter_context(_running(program, env, tmp_path))
        give_up = time.monotonic() + PATIENCE_SECONDS
        while (verdict := _asked(env))["holds"] is not holds or verdict["snapshot"]["members"] != 2:
            assert time.monotonic() < give_up, verdict
        if holds:
            assert {party.split("-")[0] for party in verdict["core"]} == {"orders", "stock"}


def _asked(env: dict[str, str]) -> dict[str, Any]:
    with Detector(env["STILLTRUE_DETECTOR"]) as detector:
        return write_verdict(detector.ask("deadlock"))


@contextmanager
def _running(command: list[str], env: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
