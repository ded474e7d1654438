"""What an agent does to a victim of a cure, as in ``stilltrue.runtime.cure.aborter``: a task is cancelled; a thread goes on.

Of a thread, the call that it serves ends at its caller, and so do the calls that it waits for. A lock that it waits for is not
taken from its holder: there the thread stays.
"""

from __future__ import annotations

from detector.simulator.world import cancellation, parties
from detector.simulator.world.state import Party
from detector.simulator.world.world import World


def is_task(who: Party) -> bool:
    """Whether it can be cancelled where it stands; else it is a thread of a pool."""
    return who.method is None or who.method.interruptible


def aborts(world: World, who: Party) -> bool:
    """Abort a blocked party; whether it has been let go."""
    if is_task(who):
        parties.abort(world, who)
        return True
    block, call = who.block, who.call
    assert block is not None
    assert call is not None
    world.tell(who.process, f"the call that {who.name} serves is aborted")
    if not who.hung:
        call.served.remove(who)
        call.zombies.append(who)
        who.hung = True
        cancellation.notices(world, who)
        parties.unheard(world, call)
    for waited in block.calls:
        if not waited.over:
            parties.gives_up(world, waited, "is ended by a cure")
    return block.lock is None
