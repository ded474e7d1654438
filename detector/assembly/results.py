"""The assembly's result for the coordinator: the verdicts on a snapshot, and the part of the snapshot that their evidence
needs.

A snapshot with few members is sent whole. For a large one the coordinator gets the waits of the parties that a verdict or an
open incident names, which it needs to open, continue and close incidents; it knows the members itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from detector.archive.rows.row_decoder import snapshot_of
from detector.archive.rows.row_encoder import snapshot_row
from detector.assembly.evaluation import Evaluation
from detector.assembly.records import Asked, Header, asked_json, asked_of, memory_json, memory_of, process_of_json
from detector.core.protocol.assembler import Assembled, Outcome
from detector.core.snapshot import Snapshot
from detector.core.verification.past_rounds import NOTHING, Memory
from stilltrue.model import CallNumber, PartyName, SnapshotId, Verdict, process_of
from stilltrue.protocol.requests.look import Look, PartyLook
from stilltrue.protocol.wire.look import look_from_wire, look_to_wire
from stilltrue.protocol.wire.verdict import verdict_from_wire, verdict_to_wire
from stilltrue.v1 import agent_pb2
from stilltrue.v1 import snapshot_pb2 as pb

WHOLE_MEMBERS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The verdicts on a snapshot. ``whole``: ``assembled`` has the whole snapshot, not only the excerpt for the verdicts.

    ``assembled`` has no reports, since the coordinator knows which members reported.
    """

    assembled: Assembled
    verdicts: tuple[Verdict, ...]
    memory: Memory = NOTHING
    whole: bool = True


def result_of(header: Header, evaluation: Evaluation) -> Result:
    """The part of an evaluation that the coordinator needs."""
    made = evaluation.assembled
    whole = (made.snapshot.ref.members or 0) <= WHOLE_MEMBERS_MAX
    snapshot = made.snapshot if whole else excerpt(made.snapshot, evaluation.verdicts, header.watched)
    assembled = replace(made, snapshot=snapshot, reports={}, absent=(), resolved=None)
    return Result(assembled=assembled, verdicts=evaluation.verdicts, memory=evaluation.memory, whole=whole)


def excerpt(snapshot: Snapshot, verdicts: Iterable[Verdict], watched: Iterable[PartyName]) -> Snapshot:
    """The snapshot with only the waits of the named parties, and without process states."""
    named = {*watched, *(party for verdict in verdicts for party in (*verdict.remainder, *verdict.core, *verdict.behind))}
    of_named = np.fromiter((name in named for name in snapshot.waits.names), np.bool_, len(snapshot.waits.names))
    looks = {party: look for party, look in snapshot.looks.items() if party in named}
    waits = snapshot.waits.only(of_named[snapshot.waits.waiter])
    return replace(snapshot, processes={}, in_transit=(), waits=waits, looks=looks)


def result_record(fleet: str, result: Result) -> bytes:
    """A result as JSON."""
    made = result.assembled
    looks = look_to_wire(Look(snapshot=SnapshotId(0), parties=tuple(made.snapshot.looks.values())))
    return _dumped(
        {
            "fleet": fleet,
            "row": snapshot_row(made, {}),
            "set_aside": dict(made.snapshot.set_aside),
            "looks": _text(looks.SerializeToString()),
            "verdicts": [_text(verdict_to_wire(verdict).SerializeToString()) for verdict in result.verdicts],
            "settled": [[asdict(process), list(numbers)] for process, numbers in made.settled.items()],
            "memory": memory_json(result.memory),
            "whole": result.whole,
        }
    )


def completed(result: Result, attendance: Assembled) -> Assembled:
    """The result with its members added; ``attendance`` has the reports."""
    found = result.assembled
    reports = {name: report for name, report in attendance.reports.items() if name not in found.snapshot.set_aside}
    states = found.snapshot.processes if result.whole else {name: attendance.snapshot.processes[name] for name in reports}
    absent = {member.instance: member for member in attendance.absent}
    absent |= {name: attendance.reports[name].process for name in found.snapshot.set_aside if name in attendance.reports}
    return replace(
        found,
        snapshot=replace(found.snapshot, processes=states),
        reports=reports,
        absent=tuple(absent[name] for name in sorted(absent)),
    )


def asked_record(fleet: str, asked: Asked) -> bytes:
    """A round of looks that the assembly needs, as JSON."""
    return _dumped({"fleet": fleet, "asked": asked_json(asked)})


def message_of(record: bytes) -> tuple[str, Result | Asked]:
    """The fleet and the content of a record of the assembly. Raises ValueError, KeyError or TypeError."""
    raw = json.loads(record)
    return raw["fleet"], asked_of(raw["asked"]) if "asked" in raw else _result(raw)


def _result(raw: Mapping[str, Any]) -> Result:
    looks: dict[PartyName, PartyLook] = {}
    for each in agent_pb2.Looked.FromString(base64.b64decode(raw["looks"])).parties:
        looked = agent_pb2.Looked(parties=[each])
        looks |= {look.party: look for look in look_from_wire(process_of(PartyName(each.party)), looked).parties}
    snapshot = replace(snapshot_of(raw["row"]), looks=looks, set_aside=raw["set_aside"])
    settled = {process_of_json(process): tuple(map(CallNumber, numbers)) for process, numbers in raw["settled"]}
    return Result(
        assembled=Assembled(
            snapshot=snapshot,
            outcome=Outcome(raw["row"]["outcome"]),
            begun_by=raw["row"]["begun_by"],
            reports={},
            orphans=tuple(raw["row"]["orphans"]),
            settled=settled,
        ),
        verdicts=tuple(verdict_from_wire(pb.Verdict.FromString(base64.b64decode(text))) for text in raw["verdicts"]),
        memory=memory_of(raw["memory"]),
        whole=raw["whole"],
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
