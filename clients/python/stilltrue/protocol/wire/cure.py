"""Converts cures to protobuf and back."""

from __future__ import annotations

from stilltrue.model import PartyName, ProcessName, WaitNumber
from stilltrue.protocol.requests.cure import Cured, CureRequest, PartyCured
from stilltrue.protocol.requests.look import Suspect
from stilltrue.protocol.wire.values import own_party
from stilltrue.v1 import agent_pb2 as pb

TEXT_MAX = 500
"""The maximum length of a process's text about one victim, in characters; the rest is cut off."""


def cure_to_wire(request: CureRequest) -> pb.Cure:
    """Convert a cure request."""
    victims = (pb.Suspect(party=victim.party, waits=victim.waits) for victim in request.victims)
    return pb.Cure(number=request.number, incident=request.incident, victims=victims)


def cure_from_wire(message: pb.Cure) -> CureRequest:
    """Convert a cure request back."""
    victims = (Suspect(party=PartyName(one.party), waits=tuple(map(WaitNumber, one.waits))) for one in message.victims)
    return CureRequest(number=message.number, incident=message.incident, victims=tuple(victims))


def cured_to_wire(cured: Cured) -> pb.Cured:
    """Convert an answer."""
    parties = (pb.PartyCured(party=one.party, aborted=one.aborted, text=one.text) for one in cured.parties)
    return pb.Cured(number=cured.number, parties=parties)


def cured_from_wire(own: ProcessName, message: pb.Cured) -> Cured:
    """Convert the answer of the process ``own`` back; it may only name parties of its own."""
    parties = (
        PartyCured(party=own_party(own, "cured.parties.party", one.party), aborted=one.aborted, text=one.text[:TEXT_MAX])
        for one in message.parties
    )
    return Cured(number=message.number, parties=tuple(parties))
