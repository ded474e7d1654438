"""Streams: items in both directions, counted as the agent counts them; the half-close is an item, too.

Items carry no stamp. An item is first in transit, then in the reader's buffer; it counts as received in the step in which the
reader takes it, and that step ends the reader's wait.
"""

from __future__ import annotations

from collections.abc import Callable

from detector.simulator.plans.plan import Call, Finish, Open, Put, Take
from detector.simulator.world.state import Block, Party, SimCall
from detector.simulator.world.world import World
from stilltrue.protocol.report import CallerTarget, CallTarget

Sends = Callable[[World, Party, Call, tuple[str, str]], SimCall]
"""Makes a call without waiting for it."""


def open_stream(world: World, who: Party, op: Open, sends: Sends) -> None:
    """Open a stream without waiting for its outcome."""
    if who.depth > 0:
        call = sends(world, who, Call(targets=(op.target,), needs=0, deadline_seconds=op.deadline_seconds), op.target)
        call.streams = True
        who.streams.append(call)
    who.next()


def put(world: World, who: Party, op: Put) -> None:
    """Send one item on the stream that the party answers (``up``), or on the newest one that it has opened."""
    call = _stream(who, up=op.up)
    if call is not None and not (call.over or (call.up.closed and not op.up)):
        _send_item(world, who, call, up=op.up)
        world.narrate(who.process, f"{who.name} sends an item of {call.name}")
    who.next()


def take(world: World, who: Party, op: Take) -> None:
    """Take, or wait for, the next item from the party's caller (``up``) or from the newest stream that it has opened."""
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
        world.narrate(who.process, f"{who.name} takes an item of {call.name}")
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
        world.narrate(who.process, f"{who.name} waits for an item of {call.name}")
        who.block = Block(calls=(call,), needs=1, lane=lane, deadline=call.deadline if op.up else None)
        world.block(who)


def finish(world: World, who: Party, _: Finish) -> None:
    """Half-close the newest stream that the party has opened, and wait for its outcome."""
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
        _send_item(world, who, call, up=False)
    who.process.recorder.awaits(call.made, who.process.at(world.now))
    world.narrate(who.process, f"{who.name} has sent all of {call.name} and waits for its outcome")
    who.block = Block(calls=(call,), needs=1)
    world.block(who)


def deliver_item(world: World, call: SimCall, *, up: bool) -> None:
    """One item, or the news that the call is over, reaches the reader's side."""
    lane = call.up if up else call.down
    lane.there = min(lane.sent, lane.there + 1)
    if lane.there == lane.sent:
        world.enabled.discard("deliver", "item", call.key, up)
    for reader in call.served if up else [call.party]:
        if reader.block is not None and reader.block.lane is lane:
            world.wake(reader)


def enable_items(world: World, call: SimCall) -> None:
    """The request has arrived, so its items may arrive, too."""
    if call.up.there < call.up.sent:
        world.enabled.add("deliver", "item", call.key, True)


def flush(world: World, call: SimCall) -> None:
    """The outcome arrives after all items."""
    call.down.there = call.down.sent
    world.enabled.discard("deliver", "item", call.key, False)


def hang_up(world: World, call: SimCall) -> None:
    """The call is over at its caller: let parties that still read its items learn of it."""
    world.enabled.discard("deliver", "item", call.key, False)
    if call.streams and call.served:
        world.enabled.add("deliver", "item", call.key, True)
    else:
        world.enabled.discard("deliver", "item", call.key, True)


def drop(world: World, call: SimCall) -> None:
    """The call is forgotten: none of its items will arrive."""
    for up in (True, False):
        world.enabled.discard("deliver", "item", call.key, up)


def _stream(who: Party, *, up: bool) -> SimCall | None:
    if up:
        return who.call if who.call is not None and who.call.streams else None
    return who.streams[-1] if who.streams else None


def _send_item(world: World, who: Party, call: SimCall, *, up: bool) -> None:
    lane = call.down if up else call.up
    lane.sent += 1
    handle = who.handle if up else call.made
    assert handle is not None
    who.process.recorder.item_sent(handle)
    if up or call.served or call.queued:
        world.enabled.add("deliver", "item", call.key, not up)
