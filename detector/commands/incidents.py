"""``stilltrue incidents``: every deadlock seen: its parties and waits, when it formed, when it was detected, how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import click
from rich.table import Table

from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, json_option, timeout_option
from detector.commands.shared.render import console, escape, listed, print_json, table
from detector.commands.shared.run import CommandError
from detector.core.times import duration, local_time
from detector.service.documents import time_to_detection, written_incident
from stilltrue.v1 import detector_pb2 as pb

WIDTH_MAX = 100
"""The widest list on a terminal, in columns; in a pipe each incident is one line, for grep and awk."""
LISTED_MAX = 10_000
NAMES_MAX = 3
GAP = 2


@click.command(short_help="List deadlocks: parties, duration, and how they ended.")
@click.argument("id", metavar="[ID]", required=False)
@click.option(
    "--limit", type=click.IntRange(1, LISTED_MAX), default=50, show_default=True, show_envvar=True, help="The most to list."
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
@json_option
def incidents(
    id: str | None, limit: int, endpoint: Endpoint, timeout_seconds: float, *, open_only: bool, as_json: bool
) -> None:
    """List incidents, newest first; or show the incident ID in full: what each party waited for, and how it ended.

    One deadlock is one incident, however many snapshots show it. "Detected after" is the time to detection: how long it had
    lasted when it was first seen.

    \b
    Example:
      stilltrue incidents --open
      stilltrue incidents i-3fa9c2b1d0
      stilltrue show i-3fa9c2b1d0 --format svg > picture.svg
    """
    with detector_stub(endpoint) as stub:
        if id is not None:
            one = find_incident(stub, id, timeout_seconds)
            return print_json(written_incident(one)) if as_json else print_incident(one)
        request = pb.ListIncidentsRequest(limit=limit, open_only=open_only)
        found = stub.ListIncidents(request, timeout=timeout_seconds).incidents
    if as_json:
        print_json([written_incident(incident) for incident in found])
    elif not found:
        console().print("no open incidents" if open_only else "no incidents")
    else:
        out = console()
        out.print(incident_table(found, min(WIDTH_MAX, out.width) if sys.stdout.isatty() else out.width))
    return None


def find_incident(stub: Any, id: str, timeout_seconds: float) -> pb.Incident:
    """The incident called ``id``."""
    found = stub.ListIncidents(pb.ListIncidentsRequest(limit=LISTED_MAX), timeout=timeout_seconds).incidents
    for incident in found:
        if incident.id == id:
            assert isinstance(incident, pb.Incident)
            return incident
    raise CommandError(f"there is no incident {id}; 'stilltrue incidents' lists them")


def incident_table(found: Sequence[pb.Incident], width: int) -> Table:
    """One row per incident, ``width`` columns wide at most: long names and endings wrap."""
    facts = [_facts(incident) for incident in found]
    columns = ("id", "opened", "lasted", "detected after")
    taken = sum(max(map(len, cells)) + GAP for cells in zip(columns, *facts, strict=True))
    ending = (width - taken - GAP) * 2 // 5
    core = ending * 3 // 2
    rows = [
        (*map(escape, told), escape(_wrapped(_who(incident), core)), _ended(incident, ending))
        for told, incident in zip(facts, found, strict=True)
    ]
    return table((*columns, "core", "ended"), rows)


def _wrapped(text: str, width: int) -> str:
    return "\n".join(wrap(text, max(width, 10), break_on_hyphens=False))


def print_incident(incident: pb.Incident) -> None:
    """Print an incident in full: its waits, when it formed, when it was detected, and how it ended."""
    out = console()
    closed = incident.HasField("closed")
    state = f"ended {local_time(incident.closed)}: {incident.ending}" if closed else _open(incident)
    out.print(f"{escape(incident.id)}: {escape(incident.predicate)}, [{'green' if closed else 'bold red'}]{escape(state)}[/]")
    out.print(f"  {escape(incident.text)}")
    for wait in incident.waits:
        out.print(f"  - {escape(wait)}")
    out.print(f"  core ({len(incident.core)}): {escape(listed(incident.core))}")
    if incident.behind:
        out.print(f"  behind it ({len(incident.behind)}): {escape(listed(incident.behind))}")
    if incident.HasField("formed"):
        out.print(f"  formed {local_time(incident.formed)}, detected after {duration(time_to_detection(incident))}")
    out.print(f"  first seen {local_time(incident.opened)} in snapshot {incident.first_snapshot}")
    out.print(
        f"  last seen {local_time(incident.seen)} in snapshot {incident.last_snapshot}, lasted {duration(lasted(incident))}"
    )


def lasted(incident: pb.Incident) -> float:
    """How long it has lasted, in seconds, since it formed or else was first seen."""
    begun = incident.formed if incident.HasField("formed") else incident.opened
    return max(0.0, (incident.closed if incident.HasField("closed") else time.time()) - begun)


def _facts(incident: pb.Incident) -> tuple[str, str, str, str]:
    """The first four cells of its row."""
    opened = local_time(incident.opened)[: len("2026-11-21 14:02")]  # a date leaves no room for seconds
    return incident.id, opened, duration(lasted(incident)), duration(time_to_detection(incident))


def _who(incident: pb.Incident) -> str:
    kind = "" if incident.predicate == "deadlock" else f"{incident.predicate}: "
    behind = f" ({len(incident.behind)} more behind)" if incident.behind else ""
    return f"{kind}{listed(incident.core, most=NAMES_MAX)}{behind}"


def _ended(incident: pb.Incident, width: int) -> str:
    if incident.HasField("closed"):
        return escape(_wrapped(incident.ending, width))
    return f"[bold red]{escape(_wrapped(_open(incident), width))}[/]"


def _open(incident: pb.Incident) -> str:
    """The state of an open incident; if processes of its core are lost, which ones, and when it was last confirmed."""
    if not incident.lost:
        return "open"
    return f"open, last confirmed {local_time(incident.seen)}; lost: {', '.join(incident.lost)}"
