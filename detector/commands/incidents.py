"""``stilltrue incidents``: every deadlock: who, what each waited for, since when, how long until seen, how it ended."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.markup import escape

from detector.commands.detector import Place, asking, detector_option, json_option, timeout_option
from detector.commands.render import console, duration, listed, moment, print_json, table
from detector.core.times import write_time
from stilltrue.v1 import detector_pb2 as pb


@click.command(short_help="List deadlocks, with who, since when, and how they ended.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, show_envvar=True, help="How many.")
@click.option(
    "--open",
    "open_only",
    is_flag=True,
    envvar="STILLTRUE_INCIDENTS_OPEN",
    show_envvar=True,
    help="Only those that have not ended.",
)
@detector_option
@timeout_option
@json_option
def incidents(limit: int, place: Place, timeout_seconds: float, *, open_only: bool, as_json: bool) -> None:
    """List incidents, the newest first. One deadlock is one incident, however many snapshots show it.

    \b
    Example:
      stilltrue incidents --open
      stilltrue show i-3fa9c2b1d0 --format svg > picture.svg
    """
    with asking(place) as stub:
        request = pb.ListIncidentsRequest(limit=limit, open_only=open_only)
        found = stub.ListIncidents(request, timeout=timeout_seconds).incidents
    if as_json:
        print_json([written_incident(incident) for incident in found])
    elif not found:
        console().print("no incident is open" if open_only else "no incident was seen")
    else:
        columns = ("id", "predicate", "opened", "lasted", "seen after", "core", "behind", "snapshots", "ended")
        console().print(table(columns, map(_row, found)))


def lasted(incident: pb.Incident) -> float:
    """How long it has lasted, seconds: from when it formed, or else was first seen."""
    begun = incident.formed if incident.HasField("formed") else incident.opened
    return max(0.0, (incident.closed if incident.HasField("closed") else time.time()) - begun)


def seen_after(incident: pb.Incident) -> float | None:
    """How long it lasted unseen, seconds."""
    return max(0.0, incident.opened - incident.formed) if incident.HasField("formed") else None


def _row(incident: pb.Incident) -> tuple[str, ...]:
    return (
        escape(incident.id),
        escape(incident.predicate),
        moment(incident.opened),
        duration(lasted(incident)),
        duration(seen_after(incident)),
        escape(listed(incident.core)),
        escape(listed(incident.behind)) or "-",
        f"{incident.first_snapshot} to {incident.last_snapshot}",
        escape(incident.ending) if incident.HasField("closed") else "[bold red]open[/]",
    )


def written_incident(incident: pb.Incident) -> dict[str, Any]:
    """An incident as JSON."""
    return {
        "id": incident.id,
        "predicate": incident.predicate,
        "scope": incident.scope,
        "core": list(incident.core),
        "behind": list(incident.behind),
        "formed": write_time(incident.formed) if incident.HasField("formed") else None,
        "opened": write_time(incident.opened),
        "seen": write_time(incident.seen),
        "closed": write_time(incident.closed) if incident.HasField("closed") else None,
        "seconds_to_detection": seen_after(incident),
        "first_snapshot": incident.first_snapshot,
        "last_snapshot": incident.last_snapshot,
        "text": incident.text,
        "waits": list(incident.waits),
        "ending": incident.ending or None,
    }
