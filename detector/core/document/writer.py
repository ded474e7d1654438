"""Writes snapshots as documents; the counterpart of :mod:`detector.core.document.reader`."""

from __future__ import annotations

from typing import Any

from detector.core.membership_doubt import MembershipDoubt
from detector.core.snapshot import Snapshot
from detector.core.times import write_time
from detector.graph.columns import WaitColumns
from stilltrue.model import Message, ProcessState, Wait


def write_document(snapshot: Snapshot) -> dict[str, Any]:
    """Write the document that :func:`read_document` reads back as an equal snapshot; empty values are omitted."""
    ref = snapshot.ref
    document: dict[str, Any] = {"id": ref.id, "scope": ref.scope if ref.scope != "all" else None}
    document |= {key: None if at is None else write_time(at) for key, at in (("begun", ref.begun), ("ended", ref.ended))}
    document = {key: value for key, value in document.items() if value is not None}
    document["processes"] = {name: _written_state(state) for name, state in sorted(snapshot.processes.items())}
    document["waits"] = _written_waits(snapshot.waits)
    document["in_transit"] = [_written_message(message) for message in snapshot.in_transit]
    document["missing"] = list(snapshot.missing)
    return document | _written_doubts(snapshot)


def _written_doubts(snapshot: Snapshot) -> dict[str, Any]:
    """The keys that can make answers undetermined; empty ones are omitted."""
    doubts: dict[str, Any] = {
        "forgetful": list(snapshot.forgetful),
        "doubts": dict(snapshot.doubts),
        "set_aside": dict(snapshot.set_aside),
        "membership": [_written_membership(doubt) for doubt in snapshot.membership],
    }
    return {key: value for key, value in doubts.items() if value}


def _written_membership(doubt: MembershipDoubt) -> dict[str, Any]:
    extra = {"predicate": doubt.predicate, "decisive": list(doubt.decisive)}
    return {"about": doubt.about.value, "text": doubt.text} | {key: value for key, value in extra.items() if value}


def _written_state(state: ProcessState) -> dict[str, Any]:
    extra = {"facts": dict(state.facts), "service": state.service, "labels": dict(state.labels)}
    return {"activity": state.activity.value} | {key: value for key, value in extra.items() if value}


def _written_message(message: Message) -> dict[str, Any]:
    extra = {"target": message.target, "facts": dict(message.facts), "what": message.what}
    return {"source": message.source} | {key: value for key, value in extra.items() if value}


def _written_waits(waits: WaitColumns) -> list[dict[str, Any]]:
    return [_written_wait(wait) for wait in waits.waits()]


def _written_wait(wait: Wait) -> dict[str, Any]:
    times = {"deadline": wait.deadline, "since": wait.since}
    written: dict[str, Any] = {"waiter": wait.waiter, "needs": wait.needs, "among": list(wait.among)}
    written |= {key: write_time(at) for key, at in times.items() if at is not None}
    if wait.number is not None:
        written["number"] = wait.number
    if wait.uncoloured:
        written["uncoloured"] = True
    return written | ({"what": wait.what} if wait.what else {})
