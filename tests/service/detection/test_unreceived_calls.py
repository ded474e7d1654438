"""Answers name the calls for which parties have waited for long, and which no member has received."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from detector.commands.live.doctor import CURES, complaints_of
from stilltrue.model import PartyName
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.v1 import detector_pb2, snapshot_pb2
from tests.service.conftest import FakeProcess

WORDS = "waits for a call that no member has received (a/GET:orders#1 for GET /stock to stock:8000): see stilltrue doctor"
IN_FRONT = "waits for 1 call that no member has received: GET /stock to stock:8000"
BRIEF = {"give_up_seconds": 0.3, "suspect_seconds": 0.1, "lease_seconds": 0.3}


def waiting(process: FakeProcess, seconds: float, *, deadline: float | None = None) -> tuple[Any, Any]:
    """A party of the process that has waited for a reply for ``seconds``, and the stamp of its request."""
    made, stamp = process.recorder.sent(
        method="GET /stock",
        channel=ChannelRecord("stock:8000"),
        now=time.time() - seconds,
        party=PartyName("a/GET:orders#1"),
        waiting=True,
        deadline=deadline,
    )
    return made, stamp


async def listed(detector: Any) -> dict[str, detector_pb2.Agent]:
    """What `stilltrue agents` shows, by process."""
    answer = await detector.stub.ListAgents(detector_pb2.ListAgentsRequest(), timeout=10)
    return {agent.process.instance: agent for agent in answer.agents}


async def test_a_call_that_no_member_has_received_is_named(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    waiting(a, 10)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        verdict = await detector.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_FALSE
        assert WORDS in verdict.witness.text
        assert [(spot.process, list(spot.reasons)) for spot in verdict.coverage.partly] == [("a", [IN_FRONT])]
        agents = await listed(detector)
        assert complaints_of(agents["a"]) == [(IN_FRONT, dict(CURES)["that no member has received"])]
        assert not complaints_of(agents["b"])
        assert "received" not in (await detector.ask("termination")).witness.text


async def test_nothing_is_named_once_the_call_is_over(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a = process("a")
    made, _ = waiting(a, 10)
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        assert WORDS in (await detector.ask()).witness.text
        a.recorder.settled(made, None, time.time())
        assert "received" not in (await detector.ask()).witness.text
        assert not complaints_of((await listed(detector))["a"])


@pytest.mark.parametrize("case", ["young", "deadline", "being served", "queued", "answered"])
async def test_other_calls_are_not_named(start_detector: Any, process: Any, tmp_path: Path, case: str) -> None:
    a, b = process("a"), process("b")
    _, stamp = waiting(a, 1 if case == "young" else 10, deadline=time.time() + 60 if case == "deadline" else None)
    if case in ("being served", "queued", "answered"):
        served, _ = b.recorder.arrived(stamp, method="GET /stock", now=time.time(), pool="workers")
        if case != "queued":
            b.recorder.started(served)
        if case == "answered":
            b.recorder.replied(served, stamped=True)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        verdict = await detector.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_FALSE
        assert "received" not in verdict.witness.text
        assert not verdict.coverage.partly


async def test_a_missing_member_may_have_the_call(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    waiting(a, 10)
    async with start_detector(tmp_path, **BRIEF) as detector:
        await detector.join(a, b)
        b.silent = True
        verdict = await detector.ask()
        assert list(verdict.missing) == ["b"]
        assert not verdict.coverage.partly
