"""Encodes a finished snapshot, its reports, verdicts and incidents as the archive's rows (plain dicts)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from detector.archive.rows.local_state_rows import Row, facts_row, report_columns
from detector.core.protocol.assembler import Assembled
from detector.graph.columns import NO_NUMBER, Ints, WaitColumns
from stilltrue.model import Message, PartyName, ProcessId, ProcessName, ProcessState, Verdict, Wait, process_of
from stilltrue.protocol.report import Report


def snapshot_row(assembled: Assembled, members: Mapping[ProcessName, ProcessId], *, large: bool = True) -> Row:
    """Encode a finished snapshot; ``members`` gives the ids of missing members (an unknown incarnation is 0).

    ``large``: include the columns that have an entry for each process, message or wait.
    """
    snapshot = assembled.snapshot
    ref = snapshot.ref
    row: Row = {
        "snapshot": ref.id,
        "scope": ref.scope,
        "begun": ref.begun,
        "ended": ref.ended,
        "begun_by": assembled.begun_by,
        "outcome": assembled.outcome.value,
        "members": ref.members,
        "missing": [_member(name, members.get(name)) for name in snapshot.missing],
        "orphans": list(assembled.orphans),
        "previous": None,
        "forgetful": list(snapshot.forgetful),
        "doubts": [f"{name} {doubt}" for name, doubt in snapshot.doubts.items()],
        "membership": [
            {"about": doubt.about.value, "predicate": doubt.predicate, "text": doubt.text, "decisive": list(doubt.decisive)}
            for doubt in snapshot.membership
        ],
    }
    if large:
        row["processes"] = [state_row(name, state) for name, state in snapshot.processes.items()]
        row["in_transit"] = [message_row(message) for message in snapshot.in_transit]
        row["waits"] = waits_row(snapshot.waits, assembled.reports)
    return row


def report_rows(assembled: Assembled) -> list[Row]:
    """Encode the reports of a finished snapshot, sorted by process."""
    snapshot = assembled.snapshot
    resolved = _by_process(snapshot.waits)
    sent: dict[ProcessName, list[Row]] = {}
    for message in snapshot.in_transit:
        sent.setdefault(message.source, []).append(message_row(message))
    ref = {"snapshot": snapshot.ref.id, "begun": snapshot.ref.begun, "members": snapshot.ref.members}
    return [
        ref
        | report_columns(assembled.reports[name])
        | {"resolved": resolved.get(name, []), "before": None, "in_transit": sent.get(name, [])}
        for name in sorted(assembled.reports)
    ]


def waits_row(waits: WaitColumns, reports: Mapping[ProcessName, Report]) -> Row:
    """Encode waits as numbers over their own names; a list without any value is None."""
    return {
        "names": list(waits.names),
        "waiter": waits.waiter.tolist(),
        "needs": waits.needs.tolist(),
        "sizes": waits.sizes().tolist(),
        "targets": waits.targets.tolist(),
        "deadline": _known_values(waits.deadline, ~np.isnan(waits.deadline)),
        "since": _known_values(waits.since, ~np.isnan(waits.since)),
        "number": _known_values(waits.number, waits.number != NO_NUMBER),
        "uncoloured": waits.uncoloured.tolist() if waits.uncoloured.any() else None,
        "what": list(waits.what) if waits.what else None,
        "incarnation": [_incarnation(name, reports) for name in waits.named(waits.waiter)] if reports else None,
    }


def verdict_row(verdict: Verdict) -> Row:
    """Encode a verdict."""
    ref = verdict.snapshot
    return {
        "snapshot": ref.id,
        "scope": ref.scope,
        "begun": ref.begun,
        "ended": ref.ended,
        "members": ref.members,
        "predicate": verdict.predicate,
        "holds": verdict.holds.value,
        "remainder": list(verdict.remainder),
        "core": list(verdict.core),
        "behind": list(verdict.behind),
        "witness_kind": verdict.witness.kind,
        "witness_parties": list(verdict.witness.parties),
        "witness_text": verdict.witness.text,
        "missing": list(verdict.missing),
        "decisive": list(verdict.decisive),
        "until": verdict.until,
        "explanation": list(verdict.explanation),
        "victims": list(verdict.victims),
    }


def _incarnation(waiter: PartyName, reports: Mapping[ProcessName, Report]) -> int:
    report = reports.get(process_of(waiter))
    return 0 if report is None else report.process.incarnation


def _known_values(values: Ints | np.ndarray[Any, Any], known: np.ndarray[Any, Any]) -> list[Any] | None:
    if not known.any():
        return None
    return [value if is_known else None for value, is_known in zip(values.tolist(), known.tolist(), strict=True)]


def _member(name: ProcessName, member: ProcessId | None) -> Row:
    if member is None:
        return {"service": "", "instance": name, "incarnation": 0}
    return {"service": member.service, "instance": name, "incarnation": member.incarnation}


def state_row(name: ProcessName, state: ProcessState) -> Row:
    """Encode the state of one process."""
    return {
        "process": name,
        "service": state.service,
        "activity": state.activity.value,
        "facts": facts_row(state.facts),
        "labels": list(state.labels.items()),
    }


def message_row(message: Message) -> Row:
    """Encode a message in transit."""
    return {
        "source": message.source,
        "target": message.target,
        "facts": facts_row(message.facts),
        "what": message.what,
    }


def _by_process(waits: WaitColumns) -> dict[ProcessName, list[Row]]:
    grouped: dict[ProcessName, list[Row]] = {}
    for wait in waits.waits():
        grouped.setdefault(process_of(wait.waiter), []).append(_resolved(wait))
    return grouped


def _resolved(wait: Wait) -> Row:
    return {
        "waiter": wait.waiter,
        "needs": wait.needs,
        "among": list(wait.among),
        "deadline": wait.deadline,
        "since": wait.since,
        "number": wait.number,
        "uncoloured": wait.uncoloured,
        "what": wait.what,
    }
