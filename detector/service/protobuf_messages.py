"""Converts members, incidents, cures and stacks to messages of the gRPC service, for the command and the JSON API, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from detector.service.cure.cures import Plan
from detector.service.detection.incident.explanation import first_explanation
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.membership.members import Member, MemberState, Sight
from detector.service.detection.stacks import ProcessStacks
from stilltrue.protocol.wire.stacks import found_to_wire
from stilltrue.protocol.wire.values import process_to_wire
from stilltrue.v1 import agent_pb2 as agent_pb
from stilltrue.v1 import detector_pb2 as pb

STATES = {
    MemberState.LIVE: pb.AGENT_STATE_LIVE,
    MemberState.MISSING: pb.AGENT_STATE_MISSING,
    MemberState.LOST: pb.AGENT_STATE_LOST,
}


def agent_to_wire(member: Member, state: MemberState) -> pb.Agent:
    """A member as a message."""
    return pb.Agent(
        process=process_to_wire(member.process),
        labels=member.labels,
        state=STATES[state],
        connected_at=member.connected_at,
        heard_at=member.heard_at,
        colour=member.colour,
        agent=member.agent,
        reports_dropped=member.reports_dropped,
        reactive=member.reactive,
        sight=_sight(member.sight),
        parties=member.party_count(),
        blind=member.blind_spots(),
    )


def incident_to_wire(incident: Incident, lost: Sequence[str] = (), waits: Sequence[str] = ()) -> pb.Incident:
    """An incident as a message; ``lost``: the lost processes of its core; ``waits``: its present waits, if known."""
    return pb.Incident(
        id=incident.id,
        predicate=incident.predicate,
        scope=incident.scope,
        core=incident.core,
        behind=incident.behind,
        opened=incident.opened,
        seen=incident.seen,
        closed=incident.closed,
        formed=incident.formed,
        first_snapshot=incident.first_snapshot,
        last_snapshot=incident.last_snapshot,
        text=incident.text,
        waits=waits or (incident.waits if incident.open and not lost else first_explanation(incident)),
        ending=incident.ending,
        lost=lost,
        cures=[pb.CureRecord(at=note.at, who=note.who, text=note.text) for note in incident.cures],
    )


def plan_to_wire(plan: Plan, *, text: str, over: bool = False, snapshot: int = 0) -> pb.CureResponse:
    """The plan or result of a cure as a message."""
    victims = (pb.CureVictim(party=one.party, aborted=one.aborted, text=one.text) for one in plan.victims)
    return pb.CureResponse(incident=plan.incident, victims=victims, freed=plan.freed, over=over, snapshot=snapshot, text=text)


def stacks_to_wire(stacks: ProcessStacks) -> pb.ProcessStacks:
    """The stacks of one process as a message."""
    found = found_to_wire(stacks.found)
    return pb.ProcessStacks(process=stacks.process, parties=found.parties, left_out=found.left_out, silent=stacks.silent)


def _sight(sight: Sight | None) -> agent_pb.Sight | None:
    return None if sight is None else agent_pb.Sight(**dataclasses.asdict(sight))
