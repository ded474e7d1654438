"""``stilltrue cure``: ends a deadlock by aborting its victims' calls, after a confirmation."""

from __future__ import annotations

import sys

import click

from detector.commands.options import completed_names as names
from detector.commands.shared.confirmation import confirmed
from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, timeout_option
from detector.commands.shared.output import Output, output_option, print_data, print_names
from detector.commands.shared.render import console, escape, listed, print_indented
from detector.service.documents import written_cure
from stilltrue.v1 import detector_pb2 as pb


@click.command(short_help="End a deadlock: abort the calls of its victims.")
@click.argument("incident", shell_complete=names.open_incidents)
@click.option(
    "--dry-run", is_flag=True, show_envvar=True, help="Only show which calls would be aborted, and which parties freed."
)
@click.option("--yes", is_flag=True, show_envvar=True, help="Do not ask for confirmation.")
@detector_option
@timeout_option
@output_option
def cure(incident: str, endpoint: Endpoint, timeout_seconds: float, output: Output, *, dry_run: bool, yes: bool) -> None:
    """End the deadlock INCIDENT: the agents of the suggested victims abort their calls, and the others go on.

    The caller of an aborted call gets the status ABORTED and a message that names the incident. No lock is ever taken away.
    Needs the role operator, 'serve --allow-cure', and STILLTRUE_ALLOW_CURE=true in the victims' processes.

    --dry-run needs only the role, and says what else is needed.

    Exit code: 0 the incident has ended; 1 it has not, or nothing was aborted; 2 refused. With --dry-run: 0 it can be done.

    \b
    Example:
      stilltrue cure i-3fa9c2b1d0 --dry-run
      stilltrue cure i-3fa9c2b1d0 --yes
    """
    with detector_stub(endpoint) as stub:
        plan = stub.Cure(pb.CureRequest(incident=incident, preview=True), timeout=timeout_seconds)
        able = bool(plan.victims) and all(victim.aborted for victim in plan.victims)
        if dry_run or not able:
            _print(plan, output)
            sys.exit(0 if able else 1)
        if not yes:
            _print(plan, Output.TEXT)
            question = f"Abort {'this call' if len(plan.victims) == 1 else 'these calls'}?"
            if not confirmed(question, otherwise="nothing was aborted"):
                sys.exit(1)
        done = stub.Cure(pb.CureRequest(incident=incident), timeout=timeout_seconds)
    _print(done, output)
    sys.exit(0 if done.over else 1)


def _print(answer: pb.CureResponse, output: Output) -> None:
    if output is Output.NAME:
        print_names(one.party for one in answer.victims)
    elif not print_data(written_cure(answer), output):
        out = console()
        print_indented(out, escape(answer.text), indent=0)
        for victim in answer.victims:
            line = f"{victim.party}: {victim.text}"
            if line not in answer.text:
                print_indented(out, escape(line))
        able = any(one.aborted for one in answer.victims)
        if answer.freed and (able or not answer.snapshot):
            print_indented(out, f"{'frees' if able else 'would free'} {escape(listed(answer.freed))}")
