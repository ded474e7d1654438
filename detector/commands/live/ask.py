"""``stilltrue ask``: takes a snapshot now, prints the verdict, and exits with the answer."""

from __future__ import annotations

import sys

import click

from detector.commands.options import completed_names as names
from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, timeout_option
from detector.commands.shared.output import Output, output_option, print_data, print_names
from detector.commands.shared.render import EXIT_CODES, START_ONE, console, print_indented, print_verdict
from detector.core.sentences import NO_LOOK_YET, NO_MEMBERS
from detector.core.verdict import write_verdict
from stilltrue.model import Holds, Verdict
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

HOW_TO_FIX = "ask again: an agent may just have been busy; 'stilltrue doctor' says what to do about members that stay missing"
LOOK_GOES_ON = "ask again in a few seconds: a look that comes late counts for the next answer"


@click.command(short_help="Take a snapshot now and print the verdict.")
@click.argument("predicate", shell_complete=names.predicates)
@click.option(
    "--scope",
    default="all",
    show_default=True,
    shell_complete=names.scopes,
    help="Scope (group of processes) to ask about.",
)
@detector_option
@timeout_option
@output_option
def ask(predicate: str, scope: str, endpoint: Endpoint, timeout_seconds: float, output: Output) -> None:
    """Take a snapshot now and print the verdict on PREDICATE (deadlock, termination, ...).

    Exit code: 0 it holds; 1 it does not; 2 wrong usage or no detector; 3 undetermined. -o name prints only the
    parties of the core.

    \b
    Examples:
      stilltrue ask deadlock
      stilltrue ask termination --scope shop --json
    """
    with detector_stub(endpoint) as stub:
        answer = stub.Ask(pb.AskRequest(predicate=predicate, scope=scope), timeout=timeout_seconds)
    verdict = verdict_from_wire(answer.verdict)
    if output is Output.NAME:
        print_names(verdict.core)
    elif not print_data(write_verdict(verdict), output):
        print_verdict(verdict)
        if hint := hint_for(verdict):
            print_indented(console(), hint)
    sys.exit(EXIT_CODES[verdict.holds])


def hint_for(verdict: Verdict) -> str:
    """What to do about an answer that is undetermined; empty if its text says all that is known."""
    if verdict.witness.text == NO_MEMBERS:
        return START_ONE
    if verdict.holds is Holds.UNDETERMINED and verdict.missing:
        return HOW_TO_FIX
    return LOOK_GOES_ON if verdict.holds is Holds.UNDETERMINED and NO_LOOK_YET in verdict.witness.text else ""
