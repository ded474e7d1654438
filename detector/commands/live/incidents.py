"""``stilltrue incidents``: lists deadlocks: parties and waits, when they formed, were detected and ended, and how."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from detector.commands.options import completed_names as names
from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, timeout_option
from detector.commands.shared.output import Output, output_option, print_data, print_names
from detector.commands.shared.render import PIPE_WIDTH, AdaptiveTable, console, escape, listed, print_indented, table
from detector.commands.shared.run import CommandError
from detector.core.times import duration, local_time
from detector.service.documents import time_to_detection, written_incident
from stilltrue.v1 import detector_pb2 as pb

LISTED_MAX = 10_000
NAMES_MAX = 3
COLUMNS = ("id", "opened", "lasted", "detected after", "core", "ended")


@click.command(short_help="List deadlocks: parties, duration, and how they ended.")
@click.argument("id", metavar="[ID]", required=False, shell_complete=names.incidents)
@click.option(
    "--limit", type=click.IntRange(1, LISTED_MAX), default=50, show_default=True, show_envvar=True, help="Maximum to list."
)
@click.option(
    "--open",
    "open_only",
    is_flag=True,
    envvar="STILLTRUE_INCIDENTS_OPEN",
    show_envvar=True,
    help="Only incidents that have not ended.",
)
@detector_option
@timeout_option
@output_option
def incidents(
    id: str | None, limit: int, endpoint: Endpoint, timeout_seconds: float, output: Output, *, open_only: bool
) -> None:
    """List incidents, newest first; or show the incident ID in full: what each party waited for, and how it ended.

    One deadlock is one incident, no matter how many snapshots show it. "Detected after" is the time to detection: how long
    the deadlock had lasted when it was first seen.

    \b
    Example:
      stilltrue incidents --open
      stilltrue incidents i-3fa9c2b1d0
      stilltrue show i-3fa9c2b1d0 --format svg > picture.svg
    """
    with detector_stub(endpoint) as stub:
        if id is not None:
            one = find_incident(stub, id, timeout_seconds)
            return print_one(one, output)
        request = pb.ListIncidentsRequest(limit=limit, open_only=open_only)
        found = stub.ListIncidents(request, timeout=timeout_seconds).incidents
    if print_data([written_incident(incident) for incident in found], output):
        return None
    if output is Output.NAME:
        print_names(incident.id for incident in found)
    elif not found:
        console().print("no open incidents" if open_only else "no incidents")
    else:
        out = console(wide=output is Output.WIDE)
        out.print(incident_table(found, all_names=out.width == PIPE_WIDTH))
    return None


def print_one(incident: pb.Incident, output: Output) -> None:
    """Print one incident."""
    if output is Output.NAME:
        print_names([incident.id])
    elif not print_data(written_incident(incident), output):
        print_incident(incident)


def find_incident(stub: Any, id: str, timeout_seconds: float) -> pb.Incident:
    """Find the incident ``id``. Raises :class:`CommandError` if there is none."""
    found = stub.ListIncidents(pb.ListIncidentsRequest(limit=LISTED_MAX), timeout=timeout_seconds).incidents
    for incident in found:
        if incident.id == id:
            assert isinstance(incident, pb.Incident)
            return incident
    raise CommandError(f"there is no incident {id}; 'stilltrue incidents' lists them")


def incident_table(found: Sequence[pb.Incident], *, all_names: bool = False) -> AdaptiveTable:
    """One row per incident; on a narrow terminal the core and the ending wrap between names."""
    rows = [(*map(escape, _facts(each)), escape(_who(each, all_names=all_names)), _ended(each)) for each in found]
    return table(COLUMNS, rows, flexible={"core", "ended"}, least=("detected after", "lasted"))


def print_incident(incident: pb.Incident) -> None:
    """Print an incident in full: its waits, when it formed, when it was detected, and how it ended."""
    out = console()
    closed = incident.HasField("closed")
    state = f"ended {local_time(incident.closed)}: {incident.ending}" if closed else _open(incident)
    out.print(f"{escape(incident.id)}: {escape(incident.predicate)}, [{'green' if closed else 'bold red'}]{escape(state)}[/]")
    print_indented(out, escape(incident.text))
    if closed or incident.lost:
        print_indented(out, "when it was first seen:")
    for wait in incident.waits:
        print_indented(out, f"- {escape(wait)}")
    print_indented(out, f"core ({len(incident.core)}): {escape(listed(incident.core))}")
    if incident.behind:
        print_indented(out, f"behind it ({len(incident.behind)}): {escape(listed(incident.behind))}")
    for note in incident.cures:
        print_indented(out, f"cure: {local_time(note.at)} {escape(note.who)}: {escape(note.text)}")
    if incident.HasField("formed"):
        print_indented(out, f"formed {local_time(incident.formed)}, detected after {duration(time_to_detection(incident))}")
    print_indented(out, f"first seen {local_time(incident.opened)} in snapshot {incident.first_snapshot}")
    print_indented(
        out, f"last seen {local_time(incident.seen)} in snapshot {incident.last_snapshot}, lasted {duration(lasted(incident))}"
    )


def lasted(incident: pb.Incident) -> float:
    """Its duration in seconds, since it formed or, if that is unknown, since it was first seen."""
    begun = incident.formed if incident.HasField("formed") else incident.opened
    return max(0.0, (incident.closed if incident.HasField("closed") else time.time()) - begun)


def _facts(incident: pb.Incident) -> tuple[str, str, str, str]:
    """The first four cells of an incident's row."""
    opened = local_time(incident.opened)[: len("2026-11-21 14:02")]  # a date leaves no room for seconds
    return incident.id, opened, duration(lasted(incident)), duration(time_to_detection(incident))


def _who(incident: pb.Incident, *, all_names: bool) -> str:
    kind = "" if incident.predicate == "deadlock" else f"{incident.predicate}: "
    behind = f" ({len(incident.behind)} more behind)" if incident.behind else ""
    return f"{kind}{listed(incident.core, most=len(incident.core) if all_names else NAMES_MAX)}{behind}"


def _ended(incident: pb.Incident) -> str:
    return escape(incident.ending) if incident.HasField("closed") else f"[bold red]{escape(_open(incident))}[/]"


def _open(incident: pb.Incident) -> str:
    """The state of an open incident: if processes of its core are lost, their names and the last confirmation."""
    if not incident.lost:
        return "open"
    return f"open, last confirmed {local_time(incident.seen)}; lost: {', '.join(incident.lost)}"
