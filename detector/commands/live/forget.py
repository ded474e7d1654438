"""``stilltrue forget``: ends the memberships of lost processes that have ended, after a confirmation."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import grpc

from detector.commands.options import completed_names as names
from detector.commands.shared.confirmation import confirmed
from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, timeout_option
from detector.commands.shared.output import Output, output_option, print_data, print_names
from detector.commands.shared.render import console, escape, listed
from detector.core.counting import counted
from detector.core.times import local_time
from detector.service.documents import written_agent
from stilltrue.v1 import detector_pb2 as pb

_NOT_YET = "{} is missing, but not lost yet: forget it once its lease has expired (serve --lease-seconds, 5 unless set)"


@click.command(short_help="Forget lost processes that have ended.")
@click.argument("processes", metavar="PROCESS...", nargs=-1, shell_complete=names.lost_processes)
@click.option(
    "--all", "every", is_flag=True, envvar="STILLTRUE_FORGET_ALL", show_envvar=True, help="Forget every lost process."
)
@click.option("--yes", is_flag=True, show_envvar=True, help="Do not ask for confirmation.")
@detector_option
@timeout_option
@output_option
def forget(
    processes: tuple[str, ...], endpoint: Endpoint, timeout_seconds: float, output: Output, *, every: bool, yes: bool
) -> None:
    """Forget each lost PROCESS, which is known to have ended, without waiting for 'serve --forget-seconds'.

    A lost process keeps answers undetermined and its incidents open, since it may still run behind a broken connection.
    Only forget one that has ended: killed, out of memory, its node gone. If it does run, 'termination' may hold while
    it works. It joins again once its agent reaches the detector.

    Needs the role operator. The audit log of the detector records who had what forgotten.

    Exit code: 0 all are forgotten (with --all: also if none is lost); 1 some are not lost, or you declined; 2 refused.

    \b
    Example:
      stilltrue forget orders-7d9f8c6b5-x2kq9
      stilltrue forget --all --yes
    """
    if bool(processes) == every:
        raise click.UsageError("name the processes to forget, or give --all ('stilltrue agents' lists the lost ones)")
    with detector_stub(endpoint) as stub:
        forgotten: list[pb.Agent] = []
        failures: list[str | None] = []
        if not yes or every:
            members = stub.ListAgents(pb.ListAgentsRequest(), timeout=timeout_seconds).agents
            lost = {agent.process.instance: agent for agent in members if agent.state == pb.AGENT_STATE_LOST}
            if every:
                processes = tuple(lost)
                failures = [
                    _NOT_YET.format(agent.process.instance) for agent in members if agent.state == pb.AGENT_STATE_MISSING
                ]
            if not yes and not _agreed([lost[name] for name in processes if name in lost]):
                sys.exit(1)
        for process in dict.fromkeys(processes):
            try:
                forgotten.append(stub.Forget(pb.ForgetRequest(process=process), timeout=timeout_seconds).agent)
            except grpc.RpcError as error:
                if error.code() not in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION}:
                    raise
                failures.append(error.details())
    _print(forgotten, output)
    for text in failures:
        click.echo(f"stilltrue: {text}", err=True)
    sys.exit(1 if failures else 0)


def _agreed(lost: Sequence[pb.Agent]) -> bool:
    """Ask whether these processes have ended; True without a question if there are none."""
    if not lost:
        return True
    for agent in lost:
        click.echo(f"{agent.process.instance} ({agent.process.service}), last seen {local_time(agent.heard_at)}", err=True)
    question = "Forget this process? It must have ended." if len(lost) == 1 else "Forget these processes? They must have ended."
    return confirmed(question, otherwise="nothing was forgotten")


def _print(forgotten: Sequence[pb.Agent], output: Output) -> None:
    if output is Output.NAME:
        print_names(agent.process.instance for agent in forgotten)
    elif not print_data([written_agent(agent) for agent in forgotten], output):
        who = listed([agent.process.instance for agent in forgotten])
        text = (
            f"{counted(len(forgotten), 'process', 'processes')} forgotten: {who}" if forgotten else "no process was forgotten"
        )
        console().print(escape(text))
