"""The JSON documents of members, snapshots, incidents and cures, shared by ``--json`` and ``/api/v1``."""

from __future__ import annotations

from typing import Any

from detector.core.times import write_time
from detector.service.deprecated_names import with_former_keys
from stilltrue.v1 import detector_pb2 as pb
from stilltrue.v1 import snapshot_pb2

ANSWERS = {snapshot_pb2.HOLDS_TRUE: True, snapshot_pb2.HOLDS_FALSE: False}
STATES = {pb.AGENT_STATE_LIVE: "live", pb.AGENT_STATE_MISSING: "missing", pb.AGENT_STATE_LOST: "lost"}


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
        "seconds_to_detection": time_to_detection(incident),
        "first_snapshot": incident.first_snapshot,
        "last_snapshot": incident.last_snapshot,
        "text": incident.text,
        "waits": list(incident.waits),
        "ending": incident.ending or None,
        "lost": list(incident.lost),
        "cures": [{"at": write_time(note.at), "who": note.who, "text": note.text} for note in incident.cures],
    }


def written_cure(answer: pb.CureResponse) -> dict[str, Any]:
    """The plan or result of a cure as JSON."""
    return {
        "incident": answer.incident,
        "victims": [{"party": one.party, "aborted": one.aborted, "text": one.text} for one in answer.victims],
        "freed": list(answer.freed),
        "over": answer.over,
        "snapshot": answer.snapshot or None,
        "text": answer.text,
    }


def written_stacks(process: pb.ProcessStacks) -> dict[str, Any]:
    """What the parties of one process are blocked on, as JSON."""
    return {
        "process": process.process,
        "silent": process.silent or None,
        "left_out": process.left_out,
        "parties": [
            {
                "party": one.party,
                "blocked_in": one.blocked_in or None,
                "held_by": list(one.held_by),
                "unexplained": one.unexplained,
                "stack": list(one.stack),
            }
            for one in process.parties
        ],
    }


def time_to_detection(incident: pb.Incident) -> float | None:
    """Seconds from the formation of an incident to its first sighting; None if unknown."""
    return max(0.0, incident.opened - incident.formed) if incident.HasField("formed") else None


def written_summary(summary: pb.SnapshotSummary) -> dict[str, Any]:
    """A snapshot's summary as JSON."""
    document = {
        "id": summary.ref.id,
        "begun": write_time(summary.ref.begun),
        "ended": write_time(summary.ref.ended),
        "members": summary.ref.members,
        "outcome": summary.outcome,
        "trigger": summary.begun_by,
        "missing": list(summary.missing),
        "verdicts": {name: ANSWERS.get(answer) for name, answer in sorted(summary.verdicts.items())},
        "kept": summary.kept,
    }
    return with_former_keys(document)


def written_agent(agent: pb.Agent) -> dict[str, Any]:
    """A member as JSON."""
    last_seen = write_time(agent.heard_at) if agent.HasField("heard_at") else None
    document = {
        "process": agent.process.instance,
        "service": agent.process.service,
        "incarnation": agent.process.incarnation,
        "state": STATES.get(agent.state, "unknown"),
        "labels": dict(sorted(agent.labels.items())),
        "connected_at": write_time(agent.connected_at),
        "last_seen_at": last_seen,
        "colour": agent.colour,
        "agent": agent.agent,
        "reports_dropped": agent.reports_dropped,
        "reactive": agent.reactive,
        "servers": agent.sight.servers if agent.HasField("sight") else None,
        "channels": agent.sight.channels if agent.HasField("sight") else None,
        "calls": agent.sight.calls if agent.HasField("sight") else None,
        "parties": agent.parties,
        "unexplained": agent.sight.unexplained if agent.sight.HasField("unexplained") else None,
        "blind": list(agent.blind),
    }
    return with_former_keys(document)
