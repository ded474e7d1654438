"""``stilltrue snapshots``: lists the newest snapshots with their outcomes and verdicts."""

from __future__ import annotations

import click

from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, timeout_option
from detector.commands.shared.output import Output, output_option, print_data, print_names
from detector.commands.shared.render import console, escape, listed, table
from detector.core.times import duration, local_time
from detector.service.documents import written_summary
from stilltrue.v1 import detector_pb2 as pb
from stilltrue.v1 import snapshot_pb2

COLUMNS = ("id", "began", "took", "members", "outcome", "trigger", "true", "undetermined", "missing", "kept")
NARROW = ("id", "began", "took", "members", "outcome", "true", "missing")


@click.command(short_help="List the newest snapshots.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, show_envvar=True, help="Maximum to list."
)
@detector_option
@timeout_option
@output_option
def snapshots(limit: int, endpoint: Endpoint, timeout_seconds: float, output: Output) -> None:
    """List snapshots, newest first: time, number of members, outcome, and the predicates that held.

    \b
    Example:
      stilltrue snapshots --limit 5
    """
    with detector_stub(endpoint) as stub:
        found = stub.ListSnapshots(pb.ListSnapshotsRequest(limit=limit), timeout=timeout_seconds).snapshots
    if print_data([written_summary(summary) for summary in found], output):
        return
    if output is Output.NAME:
        print_names(str(summary.ref.id) for summary in found)
    elif not found:
        console().print("no snapshots yet: the first is taken when a process connects")
    else:
        shown = COLUMNS if output is Output.WIDE else NARROW
        at = [COLUMNS.index(column) for column in shown]
        rows = ([row[index] for index in at] for row in map(_row, found))
        out = console(wide=output is Output.WIDE)
        out.print(table(shown, rows, flexible={"trigger", "true", "undetermined", "missing"}, least=("took", "members")))


def named(summary: pb.SnapshotSummary, holds: int) -> str:
    """The predicates with the answer ``holds``."""
    return ", ".join(sorted(name for name, answer in summary.verdicts.items() if answer == holds)) or "-"


def _row(summary: pb.SnapshotSummary) -> tuple[str, ...]:
    ref = summary.ref
    style = {"complete": "green", "incomplete": "yellow"}.get(summary.outcome, "red")
    return (
        str(ref.id),
        local_time(ref.begun),
        duration(ref.ended - ref.begun),
        str(ref.members),
        f"[{style}]{escape(summary.outcome)}[/]",
        escape(summary.begun_by),
        escape(named(summary, snapshot_pb2.HOLDS_TRUE)),
        escape(named(summary, snapshot_pb2.HOLDS_UNDETERMINED)),
        escape(listed(summary.missing)) or "-",
        "yes" if summary.kept else "no",
    )
