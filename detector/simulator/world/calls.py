"""Calls between their two ends: requests sent, calls without a waiter, calls that can be forgotten."""

from __future__ import annotations

from detector.simulator.diagram import Kind
from detector.simulator.world import streaming
from detector.simulator.world.state import SimCall
from detector.simulator.world.world import World


def requests(world: World, call: SimCall) -> None:
    """The request sets out: once, or once more when it is retried."""
    call.requests += 1
    call.copies_there += 1
    packet = ("request", call.key, call.copies_there)
    world.network.post(packet, call.key[0], call.service)
    world.draw(call.party.process, Kind.SEND, packet=packet, label=f"{call.method} {call.key[2]}")


def tidy(world: World, call: SimCall) -> None:
    """Forget a call of which nothing is left anywhere."""
    if call.over and not (call.requests or call.replies or call.served or call.queued or call.zombies):
        world.calls.pop(call.key, None)
        streaming.drops(world, call)


def orphan(world: World, call: SimCall) -> None:
    """The caller has died: no party waits for the call any more."""
    call.over = True
    world.enabled.discard("expire", "expire", call.key)
    world.enabled.discard("deliver", "fail", call.key)


def mourn(world: World, call: SimCall) -> None:
    """A server has died: a call that is lost with it, or that no server is left to take, will fail at its caller."""
    if not world.candidates(call.service):
        for packet in world.network.requests_of(call.key):
            world.network.remove(packet)
        call.requests = 0
    if not (call.over or call.requests or call.replies or call.served or call.queued):
        call.broken = True
        world.enabled.add("deliver", "fail", call.key)
    tidy(world, call)
