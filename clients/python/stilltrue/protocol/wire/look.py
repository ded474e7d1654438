"""Converts looks of the verification round to protobuf and back."""

from __future__ import annotations

from stilltrue.model import PartyName, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook, Suspect, WayOut
from stilltrue.protocol.wire.values import any_party, checked_time, deadline_to_wire, own_party
from stilltrue.v1 import agent_pb2 as pb


def request_to_wire(request: LookRequest) -> pb.Look:
    """Convert a look request."""
    return pb.Look(
        snapshot=request.snapshot,
        suspects=(pb.Suspect(party=suspect.party, waits=suspect.waits) for suspect in request.suspects),
        activity=request.activity,
    )


def request_from_wire(message: pb.Look) -> LookRequest:
    """Convert a look request back."""
    return LookRequest(
        snapshot=SnapshotId(message.snapshot),
        suspects=tuple(
            Suspect(party=PartyName(suspect.party), waits=tuple(map(WaitNumber, suspect.waits))) for suspect in message.suspects
        ),
        activity=message.activity,
    )


def look_to_wire(look: Look) -> pb.Looked:
    """Convert an answer."""
    return pb.Looked(
        snapshot=look.snapshot,
        parties=map(_party_to_wire, look.parties),
        happenings=look.happenings,
        unaccounted=look.unaccounted,
    )


def look_from_wire(own: ProcessName, message: pb.Looked) -> Look:
    """Convert the answer of the process ``own`` back; it may only name parties of its own."""
    return Look(
        snapshot=SnapshotId(message.snapshot),
        parties=tuple(_party_from_wire(own, party) for party in message.parties),
        happenings=message.happenings,
        unaccounted=tuple(message.unaccounted),
    )


def _party_to_wire(look: PartyLook) -> pb.PartyLook:
    return pb.PartyLook(
        party=look.party,
        unchanged=look.unchanged,
        deadline=deadline_to_wire(look.deadline),
        ways_out=(pb.WayOut(text=way.text, party=way.party or "") for way in look.ways_out),
        doubt=look.doubt,
        stack=look.stack,
        trace=look.trace,
        interruptible=look.interruptible,
        grown_by=look.grown_by,
    )


def _party_from_wire(own: ProcessName, message: pb.PartyLook) -> PartyLook:
    party = own_party(own, "looked.parties.party", message.party)
    deadline = checked_time("looked.parties.deadline", message.deadline) if message.HasField("deadline") else None
    return PartyLook(
        party=party,
        unchanged=message.unchanged,
        deadline=deadline,
        ways_out=tuple(
            WayOut(text=way.text, party=any_party("looked.parties.ways_out.party", way.party) if way.party else None)
            for way in message.ways_out
        ),
        doubt=message.doubt,
        stack=tuple(message.stack),
        trace=message.trace,
        interruptible=message.interruptible,
        grown_by=message.grown_by,
    )
