"""Calls that are cancelled, sent again, or sent to several; lost connections, and the zombies they leave behind."""

from __future__ import annotations

from detector.simulator.world import calls
from detector.simulator.world.state import Party, SimCall
from detector.simulator.world.world import World


def cancels(world: World, call: SimCall) -> None:
    """The call is over at its caller: those who still serve it, and can be interrupted, will learn of it."""
    if not call.party.process.instrumented:
        world.decree()  # no report can predict what a stranger cancels
    for who in call.served:
        if who.method is not None and who.method.interruptible:
            world.enabled.add("deliver", "reset", who.process.name, who.name)


def hedges(world: World, call: SimCall) -> None:
    """The caller's library loses patience and sends another copy."""
    world.tell(call.party.process, f"call {call.key[2]} is sent once more, beside the others")
    calls.requests(world, call)
    if call.copies_there >= world.plan.copies_max:
        world.enabled.discard("expire", "hedge", call.key)


def may_hedge(world: World, call: SimCall) -> bool:
    """Whether a further copy may be sent while others are in transit."""
    return world.plan.hedged and not call.over and call.copies_there < world.plan.copies_max


def may_repeat(world: World, call: SimCall) -> bool:
    """Whether the request may be sent once more when a try has failed."""
    return not call.over and not world.plan.hedged and call.copies_there < world.plan.copies_max


def loses_connection(world: World, who: Party) -> None:
    """The connection to a server is lost, which goes on with the call; the caller's library sends the request once more."""
    call = who.call
    assert call is not None
    call.served.remove(who)
    call.zombies.append(who)
    who.hung = True
    interruptible = who.method is not None and who.method.interruptible
    action = ("reset" if interruptible else "hangup", who.process.name, who.name)
    world.enabled.add("deliver", *action)
    world.network.unnoticed[action] = False
    calls.requests(world, call)


def notices(world: World, who: Party) -> None:
    """The server learns that its reply will not be received."""
    world.enabled.discard("deliver", "hangup", who.process.name, who.name)
    world.network.unnoticed.pop(("hangup", who.process.name, who.name), None)
    assert who.handle is not None
    who.process.recorder.hung_up(who.handle)
    who.noticed = True
    world.tell(who.process, f"{who.name} has lost its caller")


def forgets(world: World, who: Party) -> None:
    """A handler is over: nothing can interrupt it any more."""
    name = who.process.name
    world.enabled.discard("expire", "interrupt", name, who.name)
    for news in ("reset", "hangup"):
        world.enabled.discard("deliver", news, name, who.name)
        world.network.unnoticed.pop((news, name, who.name), None)
