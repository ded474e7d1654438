"""Cancelled, retried and hedged calls; lost connections, and the zombie handlers they leave behind."""

from __future__ import annotations

from detector.simulator.world.actions import calls
from detector.simulator.world.state import Party, SimCall
from detector.simulator.world.world import World


def notify_handlers(world: World, call: SimCall) -> None:
    """The call is over at its caller: let its interruptible handlers learn of it."""
    if not call.party.process.instrumented:
        world.intervene()  # no report can predict cancellation by a process without an agent
    for who in call.served:
        if who.method is not None and who.method.interruptible:
            world.enabled.add("deliver", "reset", who.process.name, who.name)


def send_hedge(world: World, call: SimCall) -> None:
    """The caller's library sends another copy after its hedging delay."""
    world.narrate(call.party.process, f"call {call.key[2]} is sent once more, beside the others")
    calls.send_request(world, call)
    if call.copies_there >= world.plan.copies_max:
        world.enabled.discard("expire", "hedge", call.key)


def may_hedge(world: World, call: SimCall) -> bool:
    """Whether another copy may be sent while others are in transit."""
    return world.plan.hedged and not call.over and call.copies_there < world.plan.copies_max


def may_repeat(world: World, call: SimCall) -> bool:
    """Whether the request may be sent again after a failed attempt."""
    return not call.over and not world.plan.hedged and call.copies_there < world.plan.copies_max


def lose_connection(world: World, who: Party) -> None:
    """The connection to a server is lost. The server continues with the call, and the caller's library sends it again."""
    call = who.call
    assert call is not None
    call.served.remove(who)
    call.zombies.append(who)
    who.hung = True
    interruptible = who.method is not None and who.method.interruptible
    action = ("reset" if interruptible else "hangup", who.process.name, who.name)
    world.enabled.add("deliver", *action)
    world.network.unnoticed[action] = False
    calls.send_request(world, call)


def notice_hangup(world: World, who: Party) -> None:
    """The server learns that its reply cannot be received."""
    world.enabled.discard("deliver", "hangup", who.process.name, who.name)
    world.network.unnoticed.pop(("hangup", who.process.name, who.name), None)
    assert who.handle is not None
    who.process.recorder.hung_up(who.handle)
    who.noticed = True
    world.narrate(who.process, f"{who.name} has lost its caller")


def clear_interrupts(world: World, who: Party) -> None:
    """A handler is over: nothing can interrupt it any longer."""
    name = who.process.name
    world.enabled.discard("expire", "interrupt", name, who.name)
    for event in ("reset", "hangup"):
        world.enabled.discard("deliver", event, name, who.name)
        world.network.unnoticed.pop((event, name, who.name), None)
