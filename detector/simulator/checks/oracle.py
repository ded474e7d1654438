"""The oracle: computes which parties can ever move again, naively and from the world's true state, without any recorder.

A party can move if it waits for nothing, or if some sequence of grants frees it: parties that can move release what they hold
and answer what they serve; messages arrive; deadlines fire. The other parties can never move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from detector.simulator.plans.plan import Limits, Plan
from detector.simulator.world.actions import cancellation
from detector.simulator.world.state import Lane, Lock, Party, Process, SimCall
from detector.simulator.world.tasks import awaiting, holders, stoppers
from detector.simulator.world.world import DOUBT_SECONDS, World
from stilltrue.model import PartyName, ProcessName

Takers = dict[tuple[str, str], bool]
"""A cache for one round: whether any process can take a request to a service and method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The assumptions of the oracle. ``deadlines``: waits end at their deadline. ``stops``: tasks may stop others.

    ``members``: the processes that may receive a request (None: all). ``doubt``: a request in transit, which no server has
    seen, will be answered, since any process may have it. ``inside``: the processes of a scope, outside which all parties can
    move (None: no scope).
    """

    deadlines: bool = True
    stops: bool = True
    members: frozenset[ProcessName] | None = None
    doubt: bool = False
    inside: frozenset[ProcessName] | None = None


TRUTH = View()
"""The truth."""

KNOWABLE = View(doubt=True)
"""What can be known from the two cuts of every channel; a verdict must not report less."""


def stuck(world: World, view: View = TRUTH, only: frozenset[PartyName] | None = None) -> frozenset[PartyName]:
    """The parties that no sequence of grants can ever free; with ``only``, if all parties except these can move."""
    left = {
        who
        for process in world.processes.values()
        if not view.doubt or view.members is None or process.name in view.members
        if view.inside is None or process.name in view.inside
        for who in process.parties.values()
        if who.block is not None and (only is None or who.name in only)
    }
    while True:
        takers: Takers = {}
        moving = [who for who in left if can_move(world, who, left, view, takers)]
        if not moving:
            return frozenset(who.name for who in left)
        left.difference_update(moving)


def can_move(world: World, who: Party, left: set[Party], view: View, takers: Takers) -> bool:
    """Whether a blocked party can go on if all parties except ``left`` can move."""
    block = who.block
    assert block is not None
    if _can_be_freed(world, who, left, view):
        return True
    if block.task is not None or block.lock is not None:
        return block.task not in left if block.lock is None else _share_can_come(block.lock, left)
    if block.lane is not None and _item_can_come(block.calls[0], block.lane, left):
        return True
    if not block.calls or block.lane is block.calls[0].up:
        return False
    return sum(call.over or can_end(world, call, left, view, takers) for call in block.calls) >= block.needs


def _can_be_freed(world: World, who: Party, left: set[Party], view: View) -> bool:
    """Whether a party may go on, whatever it waits for: by cancellation, by being stopped, or by a deadline."""
    chain = (who, *awaiting(who)) if world.has_jobs else (who,)
    if any(_can_be_cancelled(world, one, left) for one in chain):
        return True
    if view.deadlines and who.block is not None and who.block.deadline is not None:
        return True
    if view.deadlines and any(map(_interrupted_by_deadline, chain)):
        return True
    return _can_be_stopped(who, left, view)


def can_end(world: World, call: SimCall, left: set[Party], view: View, takers: Takers) -> bool:
    """Whether the outcome of an outstanding call can become known at its caller."""
    if call.replies or call.broken or (view.deadlines and call.deadline is not None):
        return True
    if any(server not in left for server in call.served):
        return True
    if any(_worker_can_come(process, pool, left) for process, pool in call.queued):
        return True
    if view.doubt and _has_unknown_copies(call, left, world.plan):
        return True
    return bool(call.requests or cancellation.may_hedge(world, call)) and _can_be_taken(world, call, left, view, takers)


def _share_can_come(lock: Lock, left: set[Party]) -> bool:
    """Whether a share of a lock is free or may be released; any party may release a share that was acquired bare."""
    return len(lock.holders) < lock.capacity or bool(lock.bare) or any(holder not in left for holder in lock.holders)


def _can_be_stopped(who: Party, left: set[Party], view: View) -> bool:
    """Whether another task may cancel ``who``. In doubt for a k-of-n wait, since a report cannot express that."""
    if not view.stops:
        return False
    others = stoppers(who)
    if view.doubt and others and who.block is not None and 1 < who.block.needs < len(who.block.calls):
        return True
    return any(other not in left for other in (*others, *(holders(who) if view.doubt else ())))


def _item_can_come(call: SimCall, lane: Lane, left: set[Party]) -> bool:
    """Whether an item is in transit to the reader, or a party that can move may send one."""
    return lane.sent > lane.taken or call.over or (lane is call.up and call.party not in left)


def _interrupted_by_deadline(who: Party) -> bool:
    return who.method is not None and who.method.interruptible and who.call is not None and who.call.deadline is not None


def _worker_can_come(process: Process, pool: str, left: Iterable[Party]) -> bool:
    return process.has_worker(pool) or any(worker not in left for worker in process.busy[pool])


def _can_be_taken(world: World, call: SimCall, left: set[Party], view: View, takers: Takers) -> bool:
    """Whether a request in transit can reach a process that will serve it."""
    if view.doubt:
        return True
    asked = (call.service, call.method)
    if asked not in takers:
        takers[asked] = _any_can_take(world, call, left, view)
    return takers[asked]


def _any_can_take(world: World, call: SimCall, left: set[Party], view: View) -> bool:
    names = world.candidates(call.service)
    candidates = [world.processes[name] for name in names if view.members is None or name in view.members]
    for process in candidates:
        pool = process.method(world.plan.route(call.service), call.method).pool
        if not pool or _worker_can_come(process, pool, left):
            return True
    return False


def core(world: World, remainder: frozenset[PartyName], view: View = TRUTH) -> frozenset[PartyName]:
    """The parties of the remainder that wait for themselves, through others in it."""
    parties = {who.name: who for process in world.processes.values() for who in process.parties.values()}
    left, takers = {parties[name] for name in remainder}, Takers()
    edges = {
        name: {other.name for other in _awaited(world, parties[name], left, view, takers)} & remainder for name in remainder
    }
    return frozenset(name for name in remainder if name in _reachable(edges, name))


def _reachable(edges: dict[PartyName, set[PartyName]], start: PartyName) -> set[PartyName]:
    seen: set[PartyName] = set()
    todo = list(edges[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(edges[name])
    return seen


def _awaited(world: World, who: Party, left: set[Party], view: View, takers: Takers) -> Iterable[Party]:
    """The parties that a blocked party's wait depends on; a call that can end while ``left`` are stuck depends on none."""
    block = who.block
    if block is None:
        return
    yield from _cancellers(world, who)
    yield from stoppers(who)
    yield from () if block.task is None else (block.task,)
    yield from () if block.lock is None else block.lock.holders
    if block.lane is not None and block.lane is block.calls[0].up:
        yield block.calls[0].party
        return
    for call in block.calls:
        if call.over or can_end(world, call, left, view, takers):
            continue
        yield from call.served
        for process, pool in call.queued:
            yield from process.busy[pool]
        if call.requests and not call.served and not call.queued:
            for name in world.candidates(call.service):
                if view.members is None or name in view.members:
                    yield from (party for busy in world.processes[name].busy.values() for party in busy)


def quiet(world: World, stuck_now: frozenset[PartyName]) -> bool:
    """Whether nothing will ever happen again, except that messages arrive at processes that cannot receive them."""
    if any(not process.idle or process.parties.keys() - stuck_now for process in world.processes.values()):
        return False
    if world.enabled.has("take") or any(cancellation.may_hedge(world, call) for call in world.calls.values()):
        return False
    if any(call.replies and not call.over for call in world.calls.values()):
        return False
    return not any(call.requests and _can_be_taken(world, call, set(), TRUTH, {}) for call in world.calls.values())


def knowably_quiet(world: World, knowable: frozenset[PartyName]) -> bool:
    """Whether no party can move and no message in transit can be received, as far as can be known."""
    if any(not process.idle or process.parties.keys() - knowable for process in world.processes.values()):
        return False
    if any(who.spawned for process in world.processes.values() for who in process.parties.values()):
        return False  # its process reports that it is busy
    if world.enabled.has("take") or any(_in_doubt(world, call, since) for call, since in world.doubts.values()):
        return False
    return not any(call.requests or call.replies or call.broken or _is_unattended(call) for call in world.calls.values())


def _is_unattended(call: SimCall) -> bool:
    """Whether its maker does not wait for it: as far as can be known, its outcome may have consequences."""
    block = call.party.block
    return not call.over and (block is None or call not in block.calls)


def terminated(world: World, *, knowable: bool = False) -> bool:
    """Whether nothing will ever happen again: no active party, no request, no awaited reply.

    ``knowable``: and there is no call in doubt that no server can settle.
    """
    if any(process.parties or not process.idle for process in world.processes.values()):
        return False
    for call in world.calls.values():
        if call.requests or call.queued or call.served or (call.replies and not call.over) or call.broken:
            return False
    return not knowable or not any(_in_doubt(world, call, since) for call, since in world.doubts.values())


def lost_messages(world: World) -> int:
    """The number of counted messages that were sent but not received; meaningful once nothing moves."""
    return sum(process.sent - process.received for process in world.processes.values())


def _in_doubt(world: World, call: SimCall, since: float) -> bool:
    """Whether no running process knows that all copies of a call were answered (protocol rule 8), and its doubt still stands.

    Two copies at one server are one record there, so servers are counted.
    """
    if world.plan.limits != Limits():
        return True  # the servers may have forgotten
    if world.alive(call.key[0], call.key[1]) is None or world.now - since >= DOUBT_SECONDS:
        return False
    knowing = {server for server in call.answered if world.alive(server.instance, server.incarnation) is not None}
    return len(knowing) < world.plan.copies_max


def _can_be_cancelled(world: World, who: Party, left: set[Party]) -> bool:
    """Whether the cancellation of its call is in transit to a party, or its caller can move and may cancel it."""
    if who.method is None or who.call is None or not who.method.interruptible:
        return False
    if ("reset", who.process.name, who.name) in world.enabled.bags["deliver"]:
        return True
    call = who.call
    known = call.party.process.instrumented  # cancellation by a process without an agent is an intervention
    return known and not call.over and not who.hung and call.party not in left


def _cancellers(world: World, who: Party) -> Iterator[Party]:
    """The parties that may cancel what a party serves: its caller, or the callers of one that is bound to wait for it."""
    todo, seen = [who], {who}
    while todo:
        who = todo.pop()
        above = awaiting(who) if world.has_jobs else []
        call = who.call
        if who.method is not None and who.method.interruptible and call is not None and not (call.over or who.hung):
            if world.plan.copies_max > 1 or not _is_bound(call.party, call):
                yield call.party
            else:
                above.append(call.party)
        todo += [one for one in above if one not in seen]
        seen.update(above)


def _is_bound(who: Party, call: SimCall) -> bool:
    block = who.block
    if block is None or block.lane is not None or call not in block.calls or block.needs != len(block.calls):
        return False
    interrupted = who.method is not None and who.method.interruptible and who.call is not None and who.call.deadline is not None
    return call.deadline is None and not interrupted and not stoppers(who)


def _has_unknown_copies(call: SimCall, left: set[Party], plan: Plan) -> bool:
    """Whether a call may have copies that neither end's records show: in transit, or zombies that have not noticed."""
    if call.requests and call.copies_there > 1:
        return True
    if plan.hedged and call.copies_there < plan.copies_max:
        return True
    return any(who not in left and not who.noticed for who in call.zombies)


def tokens_gone(world: World) -> int:
    """The number of tokens that no process will ever hold again, because they are lost or in replies no longer awaited."""
    replies = [(world.calls[packet[1]], token) for packet, (_, token) in world.replies.items()]
    return world.tokens_lost + sum(token for call, token in replies if call.over)
