"""The life of calls between their two ends: sends requests, orphans calls, and forgets finished ones."""

from __future__ import annotations

from detector.simulator.diagram import Kind
from detector.simulator.world.actions import streaming
from detector.simulator.world.state import SimCall
from detector.simulator.world.world import World


def send_request(world: World, call: SimCall) -> None:
    """Send the request, for the first time or as a retry."""
    call.requests += 1
    call.copies_there += 1
    packet = ("request", call.key, call.copies_there)
    world.network.post(packet, call.key[0], call.service)
    world.draw(call.party.process, Kind.SEND, packet=packet, label=f"{call.method} {call.key[2]}")


def forget_if_done(world: World, call: SimCall) -> None:
    """Forget a call that has left no trace anywhere."""
    if call.over and not (call.requests or call.replies or call.served or call.queued or call.zombies):
        world.calls.pop(call.key, None)
        streaming.drop(world, call)


def orphan(world: World, call: SimCall) -> None:
    """The caller has died: no party waits for the call any longer."""
    call.over = True
    world.enabled.discard("expire", "expire", call.key)
    world.enabled.discard("deliver", "fail", call.key)


def fail_if_lost(world: World, call: SimCall) -> None:
    """A server has died: let a call fail at its caller if it was lost with the server, or no server is left to take it."""
    if not world.candidates(call.service):
        for packet in world.network.requests_of(call.key):
            world.network.remove(packet)
        call.requests = 0
    if not (call.over or call.requests or call.replies or call.served or call.queued):
        call.broken = True
        world.enabled.add("deliver", "fail", call.key)
    forget_if_done(world, call)
