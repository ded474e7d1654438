"""Streams: items in both directions, counted as the agent counts them, with the half-close as one more item.

Items bear no stamp. On its way an item is in flight, then in the reader's buffer; it counts as received in the step in which
the reader takes it, and that step ends the reader's wait.
"""

from __future__ import annotations

from collections.abc import Callable

from detector.simulator.plans.plan import Call, Finish, Open, Put, Take
from detector.simulator.world.state import Block, Party, SimCall
from detector.simulator.world.world import World
from stilltrue.protocol.report import CallerTarget, CallTarget

Sends = Callable[[World, Party, Call, tuple[str, str]], SimCall]
"""Makes a call that no party awaits yet."""


def opens(world: World, who: Party, op: Open, sends: Sends) -> None:
    """A stream begins; no party awaits its outcome yet."""
    if who.depth > 0:
        call = sends(world, who, Call(targets=(op.target,), needs=0, deadline_seconds=op.deadline_seconds), op.target)
        call.streams = True
        who.streams.append(call)
    who.next()


def puts(world: World, who: Party, op: Put) -> None:
    """The party hands one item to the stream that it answers (``up``), or to the newest one that it has opened."""
    call = _stream(who, up=op.up)
    if call is not None and not (call.over or (call.up.closed and not op.up)):
        _sends(world, who, call, up=op.up)
        world.tell(who.process, f"{who.name} sends an item of {call.name}")
    who.next()


def takes(world: World, who: Party, op: Take) -> None:
    """The party takes the next item of its caller (``up``) or of the newest stream that it has opened, or waits for it."""
    call = _stream(who, up=op.up)
    if call is None:
        who.next()
        return
    lane = call.up if op.up else call.down
    if lane.there > lane.taken:
        lane.taken += 1
        handle = who.handle if op.up else call.made
        assert handle is not None
        who.process.recorder.item_received(handle)
        world.tell(who.process, f"{who.name} takes an item of {call.name}")
        who.next()
    elif call.over or (lane.closed and lane.taken == lane.sent):
        who.next()
    else:
        target = CallerTarget(served=who.name) if op.up else CallTarget(number=call.key[2])
        recorder = who.process.recorder
        who.waits.append(
            recorder.waits(
                who.name, (target,), who.process.at(world.now), deadline=who.process.until(call.deadline), uncoloured=True
            )
        )
        world.tell(who.process, f"{who.name} waits for an item of {call.name}")
        who.block = Block(calls=(call,), needs=1, lane=lane, deadline=call.deadline if op.up else None)
        world.blocks(who)


def finishes(world: World, who: Party, _: Finish) -> None:
    """The party half-closes, and waits for the outcome of the newest stream that it has opened."""
    if not who.streams:
        who.next()
        return
    call = who.streams[-1]
    if call.over:
        who.streams.pop()
        who.next()
        return
    if not call.up.closed:
        call.up.closed = True
        _sends(world, who, call, up=False)
    who.process.recorder.awaits(call.made, who.process.at(world.now))
    world.tell(who.process, f"{who.name} has sent all of {call.name} and waits for its outcome")
    who.block = Block(calls=(call,), needs=1)
    world.blocks(who)


def arrives(world: World, call: SimCall, *, up: bool) -> None:
    """One item reaches the reader's side; or, when the call is over, the news of that."""
    lane = call.up if up else call.down
    lane.there = min(lane.sent, lane.there + 1)
    if lane.there == lane.sent:
        world.enabled.discard("deliver", "item", call.key, up)
    for reader in call.served if up else [call.party]:
        if reader.block is not None and reader.block.lane is lane:
            world.wakes(reader)


def sets_out(world: World, call: SimCall) -> None:
    """The request has arrived: items may follow it."""
    if call.up.there < call.up.sent:
        world.enabled.add("deliver", "item", call.key, True)


def flushes(world: World, call: SimCall) -> None:
    """The outcome comes behind all items."""
    call.down.there = call.down.sent
    world.enabled.discard("deliver", "item", call.key, False)


def hangs_up(world: World, call: SimCall) -> None:
    """The call is over at its caller: who still reads its requests will learn of it."""
    world.enabled.discard("deliver", "item", call.key, False)
    if call.streams and call.served:
        world.enabled.add("deliver", "item", call.key, True)
    else:
        world.enabled.discard("deliver", "item", call.key, True)


def drops(world: World, call: SimCall) -> None:
    """Nothing is left of a call: no item of it will arrive."""
    for up in (True, False):
        world.enabled.discard("deliver", "item", call.key, up)


def _stream(who: Party, *, up: bool) -> SimCall | None:
    if up:
        return who.call if who.call is not None and who.call.streams else None
    return who.streams[-1] if who.streams else None


def _sends(world: World, who: Party, call: SimCall, *, up: bool) -> None:
    lane = call.down if up else call.up
    lane.sent += 1
    handle = who.handle if up else call.made
    assert handle is not None
    who.process.recorder.item_sent(handle)
    if up or call.served or call.queued:
        world.enabled.add("deliver", "item", call.key, not up)
