"""Aborts a victim of a cure as an agent does (``stilltrue.runtime.cure.aborter``): a task is cancelled, a thread continues.

For a thread, the call that it serves ends at its caller, and the calls that it waits for end. A lock that it waits for is not
taken from its holder, so the thread stays blocked there.
"""

from __future__ import annotations

from detector.simulator.world.actions import cancellation, parties
from detector.simulator.world.state import Party
from detector.simulator.world.world import World


def is_task(who: Party) -> bool:
    """Whether the party can be cancelled; otherwise it is a thread of a pool."""
    return who.method is None or who.method.interruptible


def abort_victim(world: World, who: Party) -> bool:
    """Abort a blocked party; returns whether that unblocked it."""
    if is_task(who):
        parties.abort(world, who)
        return True
    block, call = who.block, who.call
    assert block is not None
    assert call is not None
    world.narrate(who.process, f"the call that {who.name} serves is aborted")
    if not who.hung:
        call.served.remove(who)
        call.zombies.append(who)
        who.hung = True
        cancellation.notice_hangup(world, who)
        parties.drop_reply(world, call)
    for waited in block.calls:
        if not waited.over:
            parties.abandon(world, waited, "is ended by a cure")
    return block.lock is None
