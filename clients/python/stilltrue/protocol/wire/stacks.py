"""Converts the stacks of standing parties to protobuf and back."""

from __future__ import annotations

from stilltrue.model import ProcessName
from stilltrue.protocol.requests.stacks import StacksFound, StandingParty
from stilltrue.protocol.wire.values import own_party
from stilltrue.v1 import agent_pb2 as pb

TEXT_MAX = 500
"""The maximum length of each text from a process, in characters; the rest is cut off."""
PARTIES_MAX = 1_000
FRAMES_MAX = 50


def found_to_wire(found: StacksFound) -> pb.StacksFound:
    """Convert an answer."""
    parties = (
        pb.StandingParty(
            party=one.party, blocked_in=one.blocked_in, held_by=one.held_by, stack=one.stack, unexplained=one.unexplained
        )
        for one in found.parties
    )
    return pb.StacksFound(number=found.number, parties=parties, left_out=found.left_out)


def found_from_wire(own: ProcessName, message: pb.StacksFound) -> StacksFound:
    """Convert the answer of the process ``own`` back, within bounds; it may only name parties of its own."""
    parties = (
        StandingParty(
            party=own_party(own, "stacks_found.parties.party", one.party),
            blocked_in=one.blocked_in[:TEXT_MAX],
            held_by=tuple(who[:TEXT_MAX] for who in one.held_by[:FRAMES_MAX]),
            stack=tuple(frame[:TEXT_MAX] for frame in one.stack[:FRAMES_MAX]),
            unexplained=one.unexplained,
        )
        for one in message.parties[:PARTIES_MAX]
    )
    beyond = max(0, len(message.parties) - PARTIES_MAX)
    return StacksFound(number=message.number, parties=tuple(parties), left_out=message.left_out + beyond)
