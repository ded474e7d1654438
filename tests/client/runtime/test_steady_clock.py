"""A step of the wall clock neither moves a deadline nor ends a wait."""

from __future__ import annotations

from stilltrue import Agent
from stilltrue.model import PartyName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.runtime.steady_clock import SteadyClock


def test_the_wall_clock_is_read_once() -> None:
    wall, steady = [1000.0], [5.0]
    clock = SteadyClock(lambda: wall[0], lambda: steady[0])
    wall[0] += 3600.0
    steady[0] += 2.0
    assert clock() == 1002.0


def test_an_agent_uses_the_steady_clock() -> None:
    with Agent("a", instance="a", detector="127.0.0.1:1") as agent:
        assert getattr(agent.live.clock, "__func__", None) is SteadyClock.__call__
        wall, steady = [1000.0], [5.0]
        agent.live.clock = SteadyClock(lambda: wall[0], lambda: steady[0])
        agent.live.sent("/s/M", ChannelRecord("b:1"), PartyName("a/main"), 10.0, True)
        wall[0] -= 500.0
        steady[0] += 4.0
        report = agent.live.marked(SnapshotId(1))
        assert report is not None
        assert report.made[0].deadline == report.cut_at + 6.0
