"""``stilltrue agents``: lists the members."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import click

from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, timeout_option
from detector.commands.shared.output import Output, output_option, print_data, print_names
from detector.commands.shared.render import NOBODY, AdaptiveTable, console, escape, table
from detector.core.counting import counted
from detector.core.times import duration
from detector.service.documents import STATES, written_agent
from stilltrue.v1 import detector_pb2 as pb

COLUMNS = (
    "process", "service", "state", "connected", "last seen", "snapshot", "labels", "sees", "unexplained", "blind spots",
    "agent", "dropped",
)  # fmt: skip

USUAL = ("process", "service", "state", "last seen", "sees", "unexplained", "blind spots")
NARROW = ("process", "state", "last seen", "sees", "blind spots")
WIDTH_MIN = 120
"""Narrower terminals show only the ``NARROW`` columns, so that no word is cut."""


@click.command(short_help="List the connected processes, and the lost ones.")
@detector_option
@timeout_option
@output_option
def agents(endpoint: Endpoint, timeout_seconds: float, output: Output) -> None:
    """List the connected processes, and those that ended or were cut off without a goodbye.

    A party is unexplained if it has not moved for a long time and is in no known wait; `stilltrue stacks PROCESS` shows it.

    \b
    Example:
      stilltrue agents --json | jq -r '.[] | select(.state == "missing") | .process'
    """
    with detector_stub(endpoint) as stub:
        found = stub.ListAgents(pb.ListAgentsRequest(), timeout=timeout_seconds).agents
    if print_data([written_agent(agent) for agent in found], output):
        return
    if output is Output.NAME:
        print_names(agent.process.instance for agent in found)
    elif not found:
        console().print(NOBODY)
    else:
        out = console(wide=output is Output.WIDE)
        out.print(agent_table(found, COLUMNS if output is Output.WIDE else USUAL if out.width >= WIDTH_MIN else NARROW))


def agent_table(found: Iterable[pb.Agent], shown: Sequence[str]) -> AdaptiveTable:
    """One row per member."""
    at = [COLUMNS.index(column) for column in shown]
    rows = ([row[index] for index in at] for row in map(_row, found))
    return table(shown, rows, flexible={"sees", "labels", "blind spots"})


def _row(agent: pb.Agent) -> tuple[str, ...]:
    now = time.time()
    state = STATES.get(agent.state, "unknown")
    connected_until = agent.heard_at if state == "lost" and agent.HasField("heard_at") else now
    return (
        escape(agent.process.instance),
        escape(agent.process.service),
        state if state == "live" else f"[yellow]{state}[/]",
        duration(max(0.0, connected_until - agent.connected_at)),
        f"{duration(max(0.0, now - agent.heard_at))} ago" if agent.HasField("heard_at") else "-",
        str(agent.colour),
        escape(" ".join(f"{name}={value}" for name, value in sorted(agent.labels.items()))) or "-",
        _sight(agent),
        str(agent.sight.unexplained) if agent.sight.HasField("unexplained") else "-",
        escape("; ".join(agent.blind)) or "-",
        escape(agent.agent),
        str(agent.reports_dropped),
    )


def _sight(agent: pb.Agent) -> str:
    """The numbers of recorded servers, channels and calls, and of parties in the last report."""
    if not agent.HasField("sight"):
        return f"{agent.parties} parties"
    sight = agent.sight
    seen = (counted(sight.servers, "server"), counted(sight.channels, "channel"), counted(sight.calls, "call"))
    return ", ".join((*seen, counted(agent.parties, "party", "parties")))
