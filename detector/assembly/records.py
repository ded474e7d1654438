"""The records about one snapshot that travel between the coordinator, the collectors and the assembly.

Rules:

1. The coordinator decides: it numbers a snapshot, ends it, and then writes its *header*, which names the members whose
   reports count. A report counts only if the header names its process in this incarnation, regardless of when it arrives.
2. A collector notifies the coordinator of a report only once Kafka has it. So the reports that a header names will be found.
3. All records of a snapshot have the same key, from the fleet and the id, so they arrive at the same place, in any order and
   possibly repeated.
4. The first report of a process counts, and the first answer to each round of looks: duplicate records change nothing.

Headers and answers are JSON; a report is the agent's own message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from detector.core.verification.past_rounds import NOTHING, Idle, Key, Known, Memory
from detector.core.verification.verifier import AskLook
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook, Suspect, WayOut
from stilltrue.protocol.wire.look import look_from_wire, look_to_wire
from stilltrue.protocol.wire.report import report_from_wire
from stilltrue.v1 import agent_pb2

REPORT, HEADER, LOOKS = b"R", b"H", b"L"
"""The first byte of a record, which says what the rest is."""


def key_of(fleet: str, snapshot: int) -> str:
    """The key of a snapshot's records (rule 3)."""
    return f"{fleet}/{snapshot}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member that did not report. ``labels``: None if it is no longer known."""

    process: ProcessId
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A snapshot that has ended. Times are seconds since the epoch, by the coordinator's clock.

    ``reported``: the members whose reports count; ``absent``: the other members. ``watched``: parties of open incidents, whose
    waits the coordinator needs even if they are not stuck. ``memory``: the results of earlier verification rounds.
    """

    fleet: str
    snapshot: SnapshotId
    begun: float
    ended: float
    begun_by: str
    reported: tuple[ProcessId, ...]
    absent: tuple[Member, ...] = ()
    predicates: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scopes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    watched: tuple[PartyName, ...] = ()
    look_give_up_seconds: float = 1.0
    look_again_seconds_min: float = 0.5
    memory: Memory = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The looks that the assembly needs in one round of a snapshot (there are at most two)."""

    round: int
    asks: tuple[AskLook, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers of a round: looks, and the reasons of processes that could not look. ``at``: when the round was over."""

    round: int
    at: float
    looks: Mapping[ProcessName, Look] = field(default_factory=dict)
    unable: Mapping[ProcessName, str] = field(default_factory=dict)


# -- to bytes and back -------------------------------------------------------------------------------------------------


def report_record(message: bytes) -> bytes:
    """The record of an agent's ``ConnectRequest`` with a report."""
    return REPORT + message


def header_record(header: Header) -> bytes:
    """The record of a header."""
    raw = {each.name: getattr(header, each.name) for each in fields(header)}
    converted = {
        "reported": [asdict(process) for process in header.reported],
        "absent": [
            {"process": asdict(each.process), "labels": None if each.labels is None else dict(each.labels)}
            for each in header.absent
        ],
        "settings": {name: dict(values) for name, values in header.settings.items()},
        "scopes": {name: dict(labels) for name, labels in header.scopes.items()},
        "memory": memory_json(header.memory),
    }
    return HEADER + _dumped(raw | converted)


def answers_record(answers: Answers) -> bytes:
    """The record of the answers to a round."""
    looks = {name: base64.b64encode(look_to_wire(look).SerializeToString()).decode() for name, look in answers.looks.items()}
    return LOOKS + _dumped({"round": answers.round, "at": answers.at, "looks": looks, "unable": dict(answers.unable)})


def report_of(record: bytes) -> Report:
    """The report of a record. Raises ``MalformedError`` or protobuf's ``DecodeError``."""
    return report_from_wire(agent_pb2.ConnectRequest.FromString(record[1:]).report)


def header_of(record: bytes) -> Header:
    """The header of a record."""
    raw = json.loads(record[1:])
    return Header(
        **raw
        | {
            "snapshot": SnapshotId(raw["snapshot"]),
            "reported": tuple(map(process_of_json, raw["reported"])),
            "absent": tuple(Member(process=process_of_json(each["process"]), labels=each["labels"]) for each in raw["absent"]),
            "predicates": tuple(raw["predicates"]),
            "watched": tuple(map(PartyName, raw["watched"])),
            "memory": memory_of(raw["memory"]),
        }
    )


def answers_of(record: bytes) -> Answers:
    """The answers of a record."""
    raw = json.loads(record[1:])
    looks = {
        ProcessName(name): look_from_wire(ProcessName(name), agent_pb2.Looked.FromString(base64.b64decode(text)))
        for name, text in raw["looks"].items()
    }
    return Answers(round=raw["round"], at=raw["at"], looks=looks, unable=raw["unable"])


def asked_json(asked: Asked) -> dict[str, Any]:
    """A round of looks as JSON."""
    return asdict(asked)


def asked_of(raw: Mapping[str, Any]) -> Asked:
    """A round of looks from JSON."""
    return Asked(
        round=raw["round"],
        asks=tuple(
            AskLook(process=process_of_json(each["process"]), request=_request(each["request"])) for each in raw["asks"]
        ),
    )


def memory_json(memory: Memory) -> dict[str, Any]:
    """The results of rounds as JSON."""
    return {
        "parties": [key._asdict() | asdict(known) for key, known in memory.parties.items()],
        "processes": [{"process": asdict(process)} | asdict(idle) for process, idle in memory.processes.items()],
    }


def memory_of(raw: Mapping[str, Any]) -> Memory:
    """The results of rounds from JSON."""
    parties: dict[Key, Known] = {}
    for each in raw["parties"]:
        waits = tuple(map(WaitNumber, each["waits"]))
        key = Key(ProcessName(each["process"]), each["incarnation"], PartyName(each["party"]), waits)
        rest = {name: value for name, value in each.items() if name not in Key._fields}
        parties[key] = Known(**rest | {"look": _party_look(each["look"])})
    processes = {
        process_of_json(each["process"]): Idle(**{name: value for name, value in each.items() if name != "process"})
        for each in raw["processes"]
    }
    return Memory(parties=parties, processes=processes)


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def process_of_json(raw: Mapping[str, Any]) -> ProcessId:
    """A process from JSON."""
    return ProcessId(service=raw["service"], instance=ProcessName(raw["instance"]), incarnation=raw["incarnation"])


def _request(raw: Mapping[str, Any]) -> LookRequest:
    return LookRequest(
        snapshot=SnapshotId(raw["snapshot"]),
        suspects=tuple(
            Suspect(party=PartyName(each["party"]), waits=tuple(map(WaitNumber, each["waits"]))) for each in raw["suspects"]
        ),
        activity=raw["activity"],
    )


def _party_look(raw: Mapping[str, Any]) -> PartyLook:
    ways = (WayOut(text=each["text"], party=each["party"]) for each in raw["ways_out"])
    return PartyLook(**{**raw, "ways_out": tuple(ways), "stack": tuple(raw["stack"])})


def first_by_process(reports: Iterable[Report]) -> dict[ProcessId, Report]:
    """The first report of each process (rule 4)."""
    found: dict[ProcessId, Report] = {}
    for report in reports:
        found.setdefault(report.process, report)
    return found
