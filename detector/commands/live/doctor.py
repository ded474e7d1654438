"""``stilltrue doctor``: explains what the answers do not cover, and how to fix it."""

from __future__ import annotations

import sys

import click

from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, timeout_option
from detector.commands.shared.output import Output, output_option, print_data, print_names
from detector.commands.shared.render import NOBODY, console, escape, print_indented
from detector.core.counting import all_of
from detector.core.times import local_time
from detector.service.documents import STATES
from stilltrue.v1 import detector_pb2 as pb

IDLE = (
    "nothing is wrong if it has neither made nor served a call yet, or declares its waits (agent.waiting_for); otherwise call "
    "stilltrue.instrument() before anything else, or wrap its channels and servers"
)
"""Not a gap: the process may simply not have been called yet."""
CURES = (
    (
        "made before the agent",
        "call stilltrue.instrument() before channels and servers are made, or wrap them",
    ),
    ("no server, channel or call", IDLE),
    (
        "with an interceptor of grpc.aio",
        "give the grpc.server agent.server_interceptor() instead of agent.aio_server_interceptor(): see docs/agent.md",
    ),
    (
        "whose calls are not recorded",
        "parties that wait there count as able to go on, so no cycle through it is reported: see docs/http.md",
    ),
    (
        "size of pool program is",
        "tell its sidecar how many calls it serves at once: --workers N, or --workers 1000000 if there is no limit; see "
        "docs/sidecar.md, 'What it does not know'",
    ),
    ("size of pool", "give the server a pool of known size: grpc.server(agent.pool(executor), ...)"),
    (
        "not moved for a while",
        "stilltrue stacks shows what each of them is blocked on (behind a sidecar, use the program's own tools, such as a "
        "thread dump). They count as able to go on; if nothing can free them, use agent.Lock or agent.waiting_for there, or "
        "put an agent where they wait for: see docs/troubleshooting.md",
    ),
    (
        "for a lock or an answer, with nobody known to bring it",
        "stilltrue stacks shows where they wait. A thread that is parked at a lock for good is harmless; otherwise find out "
        "who holds the lock, or should answer: see docs/troubleshooting.md",
    ),
    (
        "from outside",
        "callers without an agent can free or hold its parties: give them an agent, or a sidecar; a caller that has one makes "
        "these calls through a channel that it does not record: wrap it (agent.channel), or use stilltrue.instrument()",
    ),
    ("lacks pg_read_all_stats", "without it, waits of other roles' sessions are not seen: see docs/databases.md"),
    ("the database does not answer", "start the server, or correct the probe's DSN: see docs/databases.md"),
    ("dropped by the agent's bounds", "raise the agent's bounds (docs/agent.md), or find out why so many calls are in doubt"),
    (
        "whose caller is unknown",
        "no party is known to wait for them. If handlers make them, let the program forward stilltrue-party, traceparent or "
        "x-request-id from the calls that it serves to those that it makes. If a job of its own makes them, let it call its "
        "upstreams directly, not through the sidecar. If nobody waits for them, declare the methods: --never-awaited. Or use "
        "an agent in the program. See docs/sidecar.md, 'What it does not know'",
    ),
    (
        "in progress are served is unknown",
        "let the program forward stilltrue-party, traceparent or x-request-id: then each call that it makes shows which call "
        "it serves; see docs/sidecar.md, 'What it does not know'",
    ),
    (
        "assumed to wait for any one of them",
        "if its handlers wait for all the calls that they make at once, tell its sidecar so: --fan-out all",
    ),
    (
        "that no member has received",
        "they count as able to end, so no deadlock through them is reported: give the process at that address an agent; if it "
        "has one, its threads or its loop may be stuck (stilltrue stacks), and the calls wait in a queue before it",
    ),
)
"""How to fix a blind spot, by a part of its text; :mod:`detector.service.detection.membership.members` collects these texts."""
LOST = (
    "ended or cut off without a goodbye (SIGTERM ends a Python program without one, unless it has a handler), or stopped "
    "(SIGSTOP, a debugger): resume it, restore its connection, restart it under the same instance name "
    "(STILLTRUE_INSTANCE), or, if it has ended, let the detector forget it (stilltrue forget, or by itself after "
    "--forget-seconds of stilltrue serve, 600 unless set); see docs/agent.md, 'When a process ends'"
)
MISSING = (
    "does not report: it ended without a goodbye (kill), or is stopped, starved, cut off, or blocked by code that holds the "
    "GIL (a probe: its database is down); or a second look, of up to 4 s of processor time, slows it down: ask again"
)
DROPPED = "reports were dropped: its connection to the detector is too slow, or the report too large (--report-bytes-max)"


@click.command(short_help="Explain what the answers do not cover, and how to fix it.")
@detector_option
@timeout_option
@output_option
def doctor(endpoint: Endpoint, timeout_seconds: float, output: Output) -> None:
    """Check every member for gaps in what the answers cover, and explain how to fix them.

    Exit code 1 if there are any, or no members; 0 if members only have neither made nor served a call yet.

    \b
    Example:
      stilltrue doctor
    """
    with detector_stub(endpoint) as stub:
        found = stub.ListAgents(pb.ListAgentsRequest(), timeout=timeout_seconds).agents
    ill = [(agent, complaints) for agent in found if (complaints := complaints_of(agent))]
    if output is Output.NAME:
        print_names(agent.process.instance for agent, _ in ill)
    elif not print_data([_written(agent, complaints) for agent, complaints in ill], output):
        print_complaints(ill, len(found))
    sys.exit(exit_code(ill, len(found)))


def _written(agent: pb.Agent, complaints: list[tuple[str, str]]) -> dict[str, object]:
    listed = [{"what": what, "cure": cure} for what, cure in complaints]
    return {"process": agent.process.instance, "service": agent.process.service, "complaints": listed}


def exit_code(ill: list[tuple[pb.Agent, list[tuple[str, str]]]], members: int) -> int:
    """1 if there are gaps or no ``members``; a process that has neither made nor served a call is no gap."""
    return int(not members or any(cure != IDLE for _, complaints in ill for _, cure in complaints))


def print_complaints(ill: list[tuple[pb.Agent, list[tuple[str, str]]]], members: int) -> None:
    """Print the gaps of ``ill``, some of the ``members``. How to fix one is explained where it first occurs."""
    out = console()
    if not members:
        out.print(NOBODY)
    explained: set[str] = set()
    for agent, complaints in ill:
        out.print(f"[yellow]{escape(agent.process.instance)}[/] ({escape(agent.process.service)})")
        for what, cure in complaints:
            print_indented(out, f"- {escape(what)}")
            print_indented(out, "as above" if cure in explained else escape(cure), indent=4)
            explained.add(cure)
    if members and not ill:
        out.print(f"[green]nothing to fix: the answers cover {all_of(members, 'member')}[/]")


def complaints_of(agent: pb.Agent) -> list[tuple[str, str]]:
    """The gaps of a member, each with how to fix it; of a lost one only that it is lost, since its other data are old."""
    found = []
    seen = local_time(agent.heard_at) if agent.HasField("heard_at") else "-"
    if agent.state != pb.AGENT_STATE_LIVE:
        cure = LOST if agent.state == pb.AGENT_STATE_LOST else MISSING
        found.append((f"{STATES.get(agent.state, 'unknown')}, last seen {seen}", cure))
    if agent.state == pb.AGENT_STATE_LOST:
        return found
    found += [(reason, next((cure for text, cure in CURES if text in reason), "see docs/agent.md")) for reason in agent.blind]
    if agent.reports_dropped:
        found.append((f"{agent.reports_dropped} reports dropped", DROPPED))
    return found
