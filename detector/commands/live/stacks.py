"""``stilltrue stacks``: shows what the parties of processes are blocked on, with their stacks."""

from __future__ import annotations

import re
import sys

import click

from detector.commands.options import completed_names as names
from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, timeout_option
from detector.commands.shared.output import Output, output_option, print_data, print_names
from detector.commands.shared.render import NOBODY, console, escape, listed, table
from detector.core.counting import counted
from detector.service.documents import written_stacks
from stilltrue.v1 import agent_pb2 as agent_pb
from stilltrue.v1 import detector_pb2 as pb

_END_OF_PATH = re.compile(r"^.*/(?=[^/]+/[^/]+:\d+ in )")
COLUMNS = ("party", "blocked on", "held by", "at")


@click.command(short_help="Show what the parties of a process are blocked on.")
@click.argument("process", required=False, default="", shell_complete=names.processes)
@detector_option
@timeout_option
@output_option
def stacks(process: str, endpoint: Endpoint, timeout_seconds: float, output: Output) -> None:
    """Show what the threads and tasks of PROCESS that have not moved for a while are blocked on, and who can free them.

    PROCESS may also be a service, for all its processes. Without PROCESS, it asks every connected process. A party is
    unexplained if nothing is known that can end its wait: verdicts count it as active. -o wide prints whole stacks.

    Exit code: 0; 2 if there is no such process, or no process answered.

    \b
    Example:
      stilltrue stacks orders-7d9f -o wide
      stilltrue stacks -o json | jq '.[].parties[] | select(.unexplained)'
    """
    with detector_stub(endpoint) as stub:
        found = stub.ListStacks(pb.ListStacksRequest(process=process), timeout=timeout_seconds).processes
    if output is Output.NAME:
        print_names(one.party for each in found for one in each.parties)
    elif not print_data([written_stacks(each) for each in found], output):
        _print(found, whole=output is Output.WIDE)
    if all(each.silent for each in found):
        sys.exit(2)


def _print(found: list[pb.ProcessStacks], *, whole: bool) -> None:
    out = console()
    if not found:
        out.print(NOBODY)
    for each in found:
        if each.silent:
            out.print(f"{escape(each.process)}: nothing is known: {escape(each.silent)}")
            continue
        unexplained = sum(one.unexplained for one in each.parties)
        still = counted(len(each.parties) + each.left_out, "party has", "parties have")
        beyond = f"; {each.left_out} of them are left out" if each.left_out else ""
        out.print(f"{escape(each.process)}: {still} not moved for a while, {unexplained} unexplained{beyond}")
        if whole:
            for one in each.parties:
                out.print(f"  {escape(one.party)}: {escape(_blocked_in(one))}")
                for frame in one.stack:
                    out.print(f"    {escape(frame)}")
        elif each.parties:
            rows = (_row(one, process="" if not out.is_terminal else each.process) for one in each.parties)
            out.print(table(COLUMNS, rows, flexible={"blocked on", "held by"}, whole={"party", "at"}))


def _row(one: agent_pb.StandingParty, *, process: str) -> tuple[str, ...]:
    """With ``process``, strip it from parties, and directories from paths: on a terminal, the line above names the process."""
    at = one.stack[0] if one.stack else "-"
    cells = one.party, _blocked_in(one), listed(one.held_by)
    if process:
        at, own = _END_OF_PATH.sub("", at), re.compile(rf"(?<![\w.-]){re.escape(process)}/")
        cells = own.sub("", cells[0]), own.sub("", cells[1]), own.sub("", cells[2])
    party, blocked, holders = map(escape, cells)
    return party, blocked, holders or "-", escape(at)


def _blocked_in(one: agent_pb.StandingParty) -> str:
    if not one.unexplained:
        return str(one.blocked_in)
    return f"unexplained ({one.blocked_in})" if one.blocked_in else "unexplained"
