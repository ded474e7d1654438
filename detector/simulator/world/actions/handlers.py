"""The handlers of all kinds of actions, as a table for the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from detector.simulator.diagram import Kind
from detector.simulator.plans.plan import Method
from detector.simulator.world import tasks
from detector.simulator.world.actions import calls, cancellation, locks, parties, streaming
from detector.simulator.world.engine import Handler
from detector.simulator.world.state import CallKey, Process, Queued, SimCall
from detector.simulator.world.world import World
from stilltrue.model import CallNumber, PartyName, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.protocol.requests.look import LookRequest, PartyLook, WayOut
from stilltrue.protocol.stamp import encode


def _step(world: World, name: ProcessName, who: PartyName) -> Process:
    process = world.processes[name]
    parties.advance(world, process.parties[who])
    return process


def _request(world: World, key: CallKey, copy: int, name: ProcessName) -> Process:
    process, call = world.processes[name], world.calls[key]
    world.network.remove(("request", key, copy))
    call.requests -= 1
    method = process.method(world.plan.route(call.service), call.method)
    handle = _arrive(world, process, call, method)
    if process.instrumented and key[0] in world.plan.forgers:
        world.forgeries.arrived(process, call.stamp)
    world.draw(process, Kind.RECEIVE, packet=("request", key, copy))
    world.narrate(process, f"receives {call.name} of {call.method}" + (f", behind pool {method.pool}" if method.pool else ""))
    if method.pool:
        process.queues[method.pool].append(Queued(call, handle))
        call.queued.append((process, method.pool))
        world.offer_work(process, method.pool)
    else:
        parties.start(world, process, call, handle)
    streaming.enable_items(world, call)
    return process


def _arrive(world: World, process: Process, call: SimCall, method: Method) -> ServerCall:
    """Record the arrival of a request as the shells do: by the shorter way if there is one."""
    recorder, path, now = process.recorder, f"/{call.service}/{call.method}", process.at(world.now)
    stamp, deadline = call.stamp if process.instrumented else None, process.until(call.deadline)
    if stamp is not None:
        handle = recorder.arrived_again(encode(stamp), path, now, method.interruptible)
        if handle is not None:
            recorder.queued(handle, method.pool, deadline)
            return handle
    handle, report = recorder.arrived(
        stamp, method=path, now=now, pool=method.pool, deadline=deadline, interruptible=method.interruptible
    )
    world.cut(process, report)
    return handle


def _item(world: World, key: CallKey, up: bool) -> None:
    streaming.deliver_item(world, world.calls[key], up=up)


def _take(world: World, name: ProcessName, pool: str) -> Process:
    process = world.processes[name]
    queued = process.queues[pool].popleft()
    queued.call.queued.remove((process, pool))
    parties.start(world, process, queued.call, queued.handle)
    world.offer_work(process, pool)
    return process


def _reply(world: World, key: CallKey, copy: int) -> Process | None:
    packet = ("reply", key, copy)
    world.network.remove(packet)
    process, call = world.alive(key[0], key[1]), world.calls[key]
    stamp, token = world.replies.pop(packet)
    streaming.flush(world, call)
    call.replies -= 1
    if process is None:
        world.tokens_lost += token
        calls.forget_if_done(world, call)
        return None
    if call.over:
        world.tokens_lost += token
    else:
        call.token_back = token
    world.narrate(process, f"receives the reply to call {key[2]}" + (", too late" if call.over else ""))
    heard = stamp if process.instrumented else None
    world.cut(process, process.recorder.settled(call.made, heard, process.at(world.now)))
    world.draw(process, Kind.RECEIVE, packet=packet)
    if world.plan.hedged and not call.over:
        world.doubts[call.key] = (call, world.now)
    parties.settle(world, call)
    return process


def _fail(world: World, key: CallKey) -> Process:
    """The caller learns that a call has failed, but not whether it was received (protocol rule 8)."""
    process, call = world.processes[key[0]], world.calls[key]
    world.enabled.discard("deliver", "fail", key)
    parties.abandon(world, call, "fails, perhaps received")
    return process


def _expire(world: World, name: ProcessName | CallKey, who: PartyName | None = None) -> Process:
    """A deadline passes: of a call (given by its key), or of a party's wait for a lock."""
    world.expired += 1
    if who is not None:
        return locks.expire_wait(world, world.processes[name].parties[who])  # type: ignore[index]
    call = world.calls[name]  # type: ignore[index]
    world.now = max(world.now, call.deadline or 0.0)
    parties.abandon(world, call, "passes its deadline")
    return world.processes[call.key[0]]


def _interrupt(world: World, name: ProcessName, who: PartyName) -> Process:
    """A handler is cancelled at the deadline of its call."""
    served = world.processes[name].parties[who]
    world.expired += 1
    world.now = max(world.now, served.call.deadline or 0.0) if served.call else world.now
    parties.abort(world, served)
    return world.processes[name]


def _hedge(world: World, key: CallKey) -> Process:
    cancellation.send_hedge(world, world.calls[key])
    return world.processes[key[0]]


def _reset(world: World, name: ProcessName, who: PartyName) -> Process:
    """A server learns that the call is cancelled, and interrupts the handler."""
    parties.abort(world, world.processes[name].parties[who])
    return world.processes[name]


def _hangup(world: World, name: ProcessName, who: PartyName) -> Process:
    """A server learns that the connection is lost; the handler continues."""
    cancellation.notice_hangup(world, world.processes[name].parties[who])
    return world.processes[name]


def _marker(world: World, snapshot: SnapshotId, name: ProcessName, incarnation: int) -> Process | None:
    world.enabled.discard("marker", "marker", snapshot, name, incarnation)
    process = world.alive(name, incarnation)
    if process is not None:
        world.cut(process, process.recorder.marked(snapshot, process.at(world.now)))
    return process


def _settles(
    world: World, snapshot: SnapshotId, name: ProcessName, incarnation: int, numbers: tuple[CallNumber, ...]
) -> Process | None:
    """A process learns, with a marker or separately, that calls it has in doubt were answered (protocol rule 8)."""
    world.enabled.discard("marker", "settles", snapshot, name, incarnation, numbers)
    process = world.alive(name, incarnation)
    if process is not None:
        process.recorder.doubts_settled(numbers)
        world.narrate(process, f"learns that {', '.join(map(str, numbers))} of its calls in doubt were answered")
    return process


def _look(world: World, request: LookRequest, name: ProcessName, incarnation: int) -> None:
    """A process is asked to look again (protocol rule 10), and sends what it sees to the detector."""
    world.enabled.discard("marker", "look", request, name, incarnation)
    process = world.alive(name, incarnation)
    if process is None:
        return
    world.narrate(process, f"looks again at {', '.join(suspect.party for suspect in request.suspects) or 'itself'}")
    key = ("looked", request.snapshot, name, incarnation)
    look = process.recorder.look(request, process.at(world.now))
    suspected = {suspect.party for suspect in request.suspects}
    world.looks[key] = (
        process.id,
        replace(look, parties=tuple(_looked_into(process, seen, suspected) for seen in look.parties)),
    )
    world.enabled.add("report", *key)


def _looked_into(process: Process, seen: PartyLook, suspected: set[PartyName]) -> PartyLook:
    """Add to the recorder's look at a party the ways out through parties that hold a reference to it."""
    found = tuple(WayOut(text="a task that may stop it", party=other) for other in tasks.found_by_look(process, seen.party))
    doubt = "a task has awaited it only since the cut" if tasks.awaited_since(process, seen.party, suspected) else ""
    return replace(seen, ways_out=(*seen.ways_out, *found), doubt=seen.doubt or doubt)


HANDLERS: Mapping[str, Handler] = {
    "step": _step,
    "request": _request,
    "reply": _reply,
    "item": _item,
    "take": _take,
    "expire": _expire,
    "interrupt": _interrupt,
    "fail": _fail,
    "hedge": _hedge,
    "reset": _reset,
    "hangup": _hangup,
    "marker": _marker,
    "settles": _settles,
    "look": _look,
}
