"""The stacks of parties that have not moved for a while, which readers may request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from detector.service.detection import stacks
from detector.service.grpc_api.roles import Role, roles_for
from stilltrue.v1 import agent_pb2
from stilltrue.v1 import detector_pb2 as pb

HELD = agent_pb2.StandingParty(
    party="a/thread:one", blocked_in="a lock that a/thread:two holds", held_by=["a/thread:two"], stack=["app.py:7 in work"]
)
UNKNOWN = agent_pb2.StandingParty(
    party="a/thread:two", blocked_in="Event.wait", unexplained=True, stack=["app.py:9 in wait", "app.py:1 in <module>"]
)


async def test_each_process_returns_its_stacks_or_why_there_are_none(
    start_detector: Any, process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "ANSWER_SECONDS_MAX", 1.0)
    a, old, mute, probe = process("a"), process("old"), process("mute"), process("probe")
    a.standing, mute.standing, mute.blind = [HELD, UNKNOWN], [], True
    old.agent, probe.agent = "python/0.0.1", "probe/0.1.0"
    async with start_detector(tmp_path) as detector:
        await detector.join(a, old, mute, probe)
        found = (await detector.stub.ListStacks(pb.ListStacksRequest(), timeout=30)).processes
        assert [one.process for one in found] == ["a", "mute", "old", "probe"]
        assert list(found[0].parties) == [HELD, UNKNOWN]
        assert "did not answer" in found[1].silent
        assert found[2].silent == "its agent (python/0.0.1) is too old"
        assert found[3].silent == "a probe reads waits from its server, which has no stacks"
        (alone,) = (await detector.stub.ListStacks(pb.ListStacksRequest(process="a"), timeout=30)).processes
        assert list(alone.parties) == [HELD, UNKNOWN]
        with pytest.raises(grpc.aio.AioRpcError, match="no process or service 'none' is a member") as refused:
            await detector.stub.ListStacks(pb.ListStacksRequest(process="none"), timeout=30)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.longer
async def test_a_service_stands_for_its_processes(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b, other = (
        process("orders-1", service="orders"),
        process("orders-2", service="orders"),
        process("stock-1", service="stock"),
    )
    for one in (a, b, other):
        one.standing = [HELD]
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, other)
        found = (await detector.stub.ListStacks(pb.ListStacksRequest(process="orders"), timeout=30)).processes
        assert [one.process for one in found] == ["orders-1", "orders-2"]


@pytest.mark.longer
async def test_lost_processes_are_named_as_not_connected(start_detector: Any, process: Any, tmp_path: Path) -> None:
    lost, live = process("orders-1", service="orders"), process("orders-2", service="orders")
    live.standing = [HELD]
    async with start_detector(tmp_path, lease_seconds=0.2) as detector:
        await detector.join(lost)
        await lost.kill()
        while (await detector.agents())["orders-1"] != pb.AGENT_STATE_LOST:
            await detector.ask()
        for asked in ("", "orders", "orders-1"):
            (found,) = (await detector.stub.ListStacks(pb.ListStacksRequest(process=asked), timeout=30)).processes
            assert (found.process, found.silent) == ("orders-1", "it is not connected")
        await detector.join(live)
        found = (await detector.stub.ListStacks(pb.ListStacksRequest(process="orders"), timeout=30)).processes
        assert [one.process for one in found] == ["orders-2"]


def test_readers_may_ask() -> None:
    assert roles_for("/stilltrue.v1.DetectorService/ListStacks") == {Role.READER, Role.OPERATOR}
