"""``stilltrue show``: shows a snapshot or incident as text, as a document for ``evaluate``, or as a picture."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console

from detector.commands.live.incidents import find_incident, print_one
from detector.commands.options import completed_names as names
from detector.commands.shared.connection import Endpoint, detector_option, detector_stub, timeout_option
from detector.commands.shared.output import FORMS, Output, print_data, print_names
from detector.commands.shared.render import (
    console,
    escape,
    holds_text,
    listed,
    print_indented,
    print_verdict,
    styled,
    table,
)
from detector.commands.shared.run import CommandError
from detector.core.counting import counted
from detector.core.document.reader import parse_document
from detector.core.snapshot import Snapshot
from detector.core.times import duration, local_time
from detector.drawing.draw import Format
from detector.predicates.evidence.explanation import sentence
from detector.service.web.api.picture import picture_of
from stilltrue.model import Holds, PartyName, ProcessName, Verdict, process_of
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

_WAITS_MAX = 50


@click.command(short_help="Show a snapshot or incident as text, JSON or a picture.")
@click.argument("id", metavar="ID", shell_complete=names.snapshots_and_incidents)
@click.option(
    "-o", "--output", "--format", "form", type=click.Choice([*FORMS, *(each.value for each in Format)]), default="text",
    show_default=True, envvar="STILLTRUE_SHOW_FORMAT", show_envvar=True,
    help="json (or yaml) prints the snapshot document for 'evaluate'; dot, svg, graphml and links draw the wait-for graph; "
    "space-time draws processes as lines, the cut across them, and calls as arrows.",
)  # fmt: skip
@detector_option
@timeout_option
def show(id: str, form: str, endpoint: Endpoint, timeout_seconds: float) -> None:
    """Show the snapshot ID (a number, or 'latest'), or the incident ID (i-...).

    For an incident, json and the pictures show the snapshot in which it was first seen.

    \b
    Example:
      stilltrue show latest
      stilltrue show i-3fa9c2b1d0 --format svg > deadlock.svg
      stilltrue show 17 --format json | stilltrue evaluate deadlock -
    """
    with detector_stub(endpoint) as stub:
        incident = find_incident(stub, id, timeout_seconds) if id.startswith("i-") else None
        if incident is not None and form in {Output.TEXT, Output.WIDE, Output.NAME}:
            print_one(incident, Output(form))
            return
        number = incident.first_snapshot if incident is not None else _number(id)
        answer = stub.GetSnapshot(pb.GetSnapshotRequest(id=number), timeout=timeout_seconds)
    if form == "json":
        sys.stdout.write(answer.document_json + "\n")
        return
    if form == Output.YAML:
        print_data(json.loads(answer.document_json), Output.YAML)
    elif form == Output.NAME:
        print_names([str(answer.summary.ref.id)])
    elif form in {Output.TEXT, Output.WIDE}:
        _, snapshot = parse_document(answer.document_json, file=f"snapshot {answer.summary.ref.id}")
        _print_snapshot(answer, snapshot, console(wide=form == Output.WIDE))
    else:
        predicate, core = ("", ()) if incident is None else (incident.predicate, tuple(map(PartyName, incident.core)))
        sys.stdout.write(picture_of(answer, Format(form), predicate, core))


def _number(text: str) -> int:
    """Parse a snapshot id; 0 means the newest."""
    if text == "latest":
        return 0
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**63:
        raise CommandError(f"{text!r} is not a snapshot number, an incident id (i-...) or 'latest'")
    return int(text)


def _print_snapshot(answer: pb.GetSnapshotResponse, snapshot: Snapshot, out: Console) -> None:
    summary, ref = answer.summary, answer.summary.ref
    out.print(
        f"snapshot {ref.id}: {escape(summary.outcome)}, began {local_time(ref.begun)}, trigger: {escape(summary.begun_by)}, "
        f"took {duration(ref.ended - ref.begun)}, {counted(ref.members, 'member')}"
    )
    if summary.missing:
        print_indented(out, f"[yellow]missing: {escape(listed(summary.missing))}[/]")
    verdicts = [verdict_from_wire(verdict) for verdict in answer.verdicts]
    stuck = _stuck(verdicts)  # "active" only means that a process has not said it is idle
    rows = [
        (escape(name), escape(state.service) or "-", stuck.get(name, state.activity.value), escape(_facts(state.facts)))
        for name, state in sorted(snapshot.processes.items())
    ]
    out.print(table(("process", "service", "activity", "facts"), rows, flexible={"activity", "facts"}))
    for index, wait in enumerate(snapshot.waits.waits()):
        if index == _WAITS_MAX:
            print_indented(out, f"and {len(snapshot.waits) - _WAITS_MAX} more waits (--format json has them all)")
            break
        print_indented(out, escape(sentence(wait, ref.ended)))
    for message in snapshot.in_transit[:_WAITS_MAX]:
        target = message.target or "unknown"
        print_indented(out, escape(f"in transit from {message.source} to {target}: {message.what}"))
    out.print()
    if not verdicts:
        out.print("no answers yet: its evaluation has not ended")
        return
    out.print(table(("predicate", "scope", "answer", "evidence"), map(_verdict_row, verdicts), flexible={"evidence"}))
    for verdict in verdicts:
        if verdict.core and verdict.snapshot.scope == "all":
            out.print()
            print_verdict(verdict, out=out)


def _stuck(verdicts: Iterable[Verdict]) -> dict[ProcessName, str]:
    """The processes with deadlocked parties, or parties that wait behind a deadlock: how many, in words."""
    held = [verdict for verdict in verdicts if verdict.predicate == "deadlock" and verdict.holds is Holds.TRUE]
    core = {party for verdict in held for party in verdict.core}
    behind = {party for verdict in held for party in verdict.behind} - core
    words: defaultdict[ProcessName, list[str]] = defaultdict(list)
    for parties, word in ((core, "deadlocked"), (behind, "behind a deadlock")):
        for process, count in Counter(map(process_of, parties)).items():
            words[process].append(f"{count} {word}")
    return {process: ", ".join(each) for process, each in words.items()}


def _verdict_row(verdict: Verdict) -> tuple[str, ...]:
    answer = styled(verdict.holds, verdict.predicate, holds_text(verdict))
    return escape(verdict.predicate), escape(verdict.snapshot.scope), answer, escape(verdict.witness.text)


def _facts(facts: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in facts.items()) or "-"
