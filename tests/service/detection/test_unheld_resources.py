"""A FALSE names the parties that others wait for, and which wait for something that no member is known to have."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from stilltrue.model import PartyName
from stilltrue.protocol.report import PartyTarget, ResourceTarget
from stilltrue.v1 import snapshot_pb2
from tests.service.conftest import FakeProcess

WAITS, IDLE = PartyName("db/process-1"), PartyName("db/process-2")
CLIENT = "postgres client of process 2 (10.0.0.7:5000)"
WORDS = f"no member is known to have what ends 1 of the waits that others depend on ({IDLE} waits for {CLIENT})"


def sessions(database: FakeProcess, seconds: float = 10.0, *, blocking: bool = True, timeout: float | None = None) -> None:
    """A session that is idle in a transaction, and one that waits for it."""
    since = time.time() - seconds
    database.recorder.waits(IDLE, (ResourceTarget(resource=CLIENT),), since, timeout=timeout)
    if blocking:
        database.recorder.waits(WAITS, (PartyTarget(party=IDLE),), since)


async def test_a_session_whose_client_is_unknown_is_named(start_detector: Any, process: Any, tmp_path: Path) -> None:
    database = process("db")
    sessions(database)
    async with start_detector(tmp_path) as detector:
        await detector.join(database)
        verdict = await detector.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_FALSE
        assert WORDS in verdict.witness.text
        assert "known to have" not in (await detector.ask("termination")).witness.text


@pytest.mark.parametrize("case", ["young", "deadline", "blocks nobody", "held"])
async def test_other_sessions_are_not_named(start_detector: Any, process: Any, tmp_path: Path, case: str) -> None:
    database, shop = process("db"), process("shop")
    timeout = 600.0 if case == "deadline" else None
    sessions(database, 1.0 if case == "young" else 10.0, blocking=case != "blocks nobody", timeout=timeout)
    if case == "held":
        shop.recorder.holds(PartyName("shop/thread"), CLIENT)
    async with start_detector(tmp_path) as detector:
        await detector.join(database, shop)
        verdict = await detector.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_FALSE
        assert "known to have" not in verdict.witness.text


@pytest.mark.parametrize("sent", [0, 1])
async def test_a_call_whose_handler_waits_for_a_process_that_is_no_member_is_named(
    start_detector: Any, process: Any, tmp_path: Path, sent: int
) -> None:
    """A stream that has sent something may pause."""
    caller, shop = process("caller"), process("shop")
    _, served = caller.call(shop, "/s/Get")
    for _ in range(sent):
        shop.recorder.item_sent(served)
    shop.recorder.waits(served.party, (ResourceTarget(resource="work of process 7"),), time.time() - 10.0)
    async with start_detector(tmp_path) as detector:
        await detector.join(caller, shop)
        verdict = await detector.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_FALSE
        assert (f"({served.party} waits for work of process 7)" in verdict.witness.text) is not bool(sent)
