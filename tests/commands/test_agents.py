"""The list of members: no wider than a terminal, without cut words."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from detector.commands.live.agents import NARROW, USUAL, WIDTH_MIN, agent_table
from stilltrue.v1 import agent_pb2, snapshot_pb2
from stilltrue.v1 import detector_pb2 as pb

POD = "checkout-service-7d9f8c6b5-x2kq9"


@pytest.mark.parametrize(("width", "shown"), [(80, NARROW), (WIDTH_MIN, USUAL), (160, USUAL)])
@pytest.mark.parametrize("name", ["orders-vm-22056", POD])
def test_the_list_of_agents_fits_a_terminal_without_cut_words(name: str, width: int, shown: tuple[str, ...]) -> None:
    blind = "2 channels made before the agent, or without it"
    member = pb.Agent(
        process=snapshot_pb2.ProcessId(service="checkout", instance=name, incarnation=1),
        state=pb.AGENT_STATE_LOST,
        heard_at=1.0,
        sight=agent_pb2.Sight(servers=1, channels=12, calls=1234, unexplained=3),
        parties=17,
        blind=[blind],
    )
    out = Console(file=io.StringIO(), width=width, color_system=None)
    with out.capture() as text:
        out.print(agent_table([member], shown))
    assert max(map(len, text.get().splitlines())) <= width
    assert {name, "channels,", "parties", *blind.split()} <= {*text.get().split()}
    assert "…" not in text.get()


@pytest.mark.parametrize(("state", "lasted"), [(pb.AGENT_STATE_LOST, "30.0 s"), (pb.AGENT_STATE_LIVE, "1 min 40 s")])
def test_a_lost_member_was_connected_until_it_was_last_seen(state: pb.AgentState, lasted: str) -> None:
    begun = time.time() - 100
    member = pb.Agent(process=snapshot_pb2.ProcessId(instance="a"), state=state, connected_at=begun, heard_at=begun + 30)
    out = Console(file=io.StringIO(), width=80, color_system=None)
    with out.capture() as text:
        out.print(agent_table([member], ("connected",)))
    assert text.get().splitlines()[-1].strip() == lasted
