"""Calls that are given up, sent again, or sent to several: cancellation, lost connections, hedges, and the zombies they leave.

What the network promises: when a snapshot has ended since a connection was lost, and another begins, the server knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from detector.simulator.world.plan import Plan
from detector.simulator.world.state import Party, SimCall

if TYPE_CHECKING:
    from detector.simulator.world.world import World


def cancels(world: World, call: SimCall) -> None:
    """The call is over at its caller: those who still serve it, and can be interrupted, will learn of it."""
    for who in call.served:
        if who.method is not None and who.method.interruptible:
            world.agenda.add("deliver", "reset", who.process.name, who.name)


def hedges(world: World, call: SimCall) -> None:
    """The caller's library loses patience and sends another copy."""
    world.tell(call.party.process, f"call {call.key[2]} is sent once more, beside the others")
    world.requests(call)
    if call.copies_there >= world.plan.copies_max:
        world.agenda.discard("expire", "hedge", call.key)


def may_hedge(world: World, call: SimCall) -> bool:
    """Whether a further copy may be sent while others are under way."""
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
    world.agenda.add("deliver", *action)
    world.unnoticed[action] = False
    world.requests(call)


def notices(world: World, who: Party) -> None:
    """The server learns that nobody will hear the reply."""
    world.agenda.discard("deliver", "hangup", who.process.name, who.name)
    world.unnoticed.pop(("hangup", who.process.name, who.name), None)
    assert who.handle is not None
    who.handle.hang_up()
    world.tell(who.process, f"{who.name} has lost its caller")


def ended_unnoticed(world: World) -> None:
    """A snapshot has ended that may have missed what is not noticed yet."""
    world.unnoticed.update(dict.fromkeys(world.unnoticed, True))


def notice_overdue(world: World) -> None:
    """A snapshot begins: losses that one before it may have missed are known by now."""
    for action in [action for action, overdue in world.unnoticed.items() if overdue]:
        if action in world.unnoticed:
            world.do(action)


def forgets(world: World, who: Party) -> None:
    """A handler is over: nothing can interrupt it any more."""
    name = who.process.name
    world.agenda.discard("expire", "interrupt", name, who.name)
    for news in ("reset", "hangup"):
        world.agenda.discard("deliver", news, name, who.name)
        world.unnoticed.pop((news, name, who.name), None)


def can_be_cancelled(world: World, who: Party, left: set[Party]) -> bool:
    """Whether the news that its call is given up is on its way to a party, or its caller can move and might give it up."""
    if who.method is None or who.call is None or not who.method.interruptible:
        return False
    if ("reset", who.process.name, who.name) in world.agenda.bags["deliver"]:
        return True
    return not who.call.over and not who.hung and who.call.party not in left


def cancellers(plan: Plan, who: Party) -> Iterator[Party]:
    """Those who might cancel what a party serves: its caller, or the caller's own where it is bound to wait for the outcome."""
    while who.method is not None and who.method.interruptible and who.call is not None and not (who.call.over or who.hung):
        call, caller = who.call, who.call.party
        if plan.copies_max > 1 or not _is_bound(caller, call):
            yield caller
            return
        who = caller


def _is_bound(who: Party, call: SimCall) -> bool:
    block = who.block
    if block is None or block.lane is not None or call not in block.calls or block.needs != len(block.calls):
        return False
    interrupted = who.method is not None and who.method.interruptible and who.call is not None and who.call.deadline is not None
    return call.deadline is None and not interrupted


def untraced(call: SimCall, left: set[Party], plan: Plan) -> bool:
    """Whether more may happen to a call than the two ends' records tell: copies on their way, zombies that do not know it."""
    if call.requests and call.copies_there > 1:
        return True
    if plan.hedged and call.copies_there < plan.copies_max:
        return True
    return any(who not in left and who.handle is not None and not who.handle.hung_up for who in call.zombies)
