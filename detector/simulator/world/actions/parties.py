"""Runs parties: one step of a task or handler at a time, each recorded as one atomic event (protocol rule 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detector.simulator.diagram import Kind
from detector.simulator.plans.plan import (
    Acquire,
    Call,
    Cancel,
    Close,
    Finish,
    GiveBack,
    Join,
    Open,
    Plan,
    Put,
    Release,
    Shut,
    Spawn,
    Stop,
    Take,
    Work,
)
from detector.simulator.world import forgery, tasks
from detector.simulator.world.actions import calls, cancellation, locks, streaming
from detector.simulator.world.state import Block, CallKey, Party, Process, SimCall
from detector.simulator.world.world import PHASE, World
from stilltrue.model import ProcessName, WaitNumber, party
from stilltrue.protocol.books.ledger import ChannelRecord, ServerCall
from stilltrue.protocol.report import OBSERVED_MIN, CallTarget
from stilltrue.protocol.stamp import Stamp
from stilltrue.protocol.step import Step


def advance(world: World, who: Party) -> None:
    """Run one step of a party that can go on."""
    world.note_move(who)
    while who.waits:
        who.process.recorder.resumes(who.waits.pop())
    for call in who.sent:
        close_step(world, call)
    if who.call is not None and who.call.token and not who.took:
        _take_token(world, who)
        return
    if who.at >= len(who.body):
        _wind_down(world, who)
        return
    op = who.body[who.at]
    _RUN[type(op)](world, who, op)


def start(world: World, process: Process, call: SimCall, handle: ServerCall) -> None:
    """Start to serve a call, by a worker of its pool or at once."""
    method = process.method(world.plan.route(call.service), call.method)
    process.recorder.started(handle)
    if world.plan.counted and not method.loses:
        process.received += 1
        process.recorder.fact({"received": process.received})
    who = Party(handle.party, process, method.body, call.depth)
    who.call, who.handle, who.method, who.pool = call, handle, method, method.pool
    if method.pool:
        process.busy[method.pool].append(who)
    call.served.append(who)
    world.begin(who)
    world.narrate(process, f"{who.name} starts to serve {call.name}")
    if method.interruptible and call.deadline is not None:
        world.enabled.add("expire", "interrupt", process.name, who.name)
    if call.over:
        cancellation.notify_handlers(world, call)


def settle(world: World, call: SimCall) -> None:
    """The outcome of a call has become known at its caller."""
    if not call.over:
        call.over = True
        call.party.process.calls.pop(call.key[2], None)
        world.enabled.discard("expire", "expire", call.key)
        world.enabled.discard("deliver", "fail", call.key)
        world.enabled.discard("expire", "hedge", call.key)
        streaming.hang_up(world, call)
        cancellation.notify_handlers(world, call)
        block = call.party.block
        if block is None or block.calls != (call,) or call not in call.party.sent:  # otherwise its maker closes it later
            close_step(world, call)
        if block is not None and _enough_over(block):
            world.wake(call.party)
    calls.forget_if_done(world, call)


def close_step(world: World, call: SimCall) -> None:
    """The maker of a finished call closes the step that the call belongs to, and takes the token of the reply."""
    step = call.step
    if step is None or not call.over:
        return
    call.step = None
    process = call.party.process
    if call.token_back:
        process.tokens += call.token_back
        step.fact(token=process.tokens)
    process.recorder.closed(step, process.at(world.now))


def abandon(world: World, call: SimCall, why: str) -> None:
    """The caller abandons a call and cannot tell whether it was received (protocol rule 8)."""
    process = call.party.process
    world.doubts[call.key] = (call, world.now)
    world.narrate(process, f"call {call.key[2]} of {call.party.name} {why}")
    world.cut(process, process.recorder.settled(call.made, None, process.at(world.now), in_doubt=True))
    settle(world, call)


def abort(world: World, who: Party) -> None:
    """Cancel a handler or task and the task that it awaits: its waits end, its locks are released, its reply is dropped."""
    if who.done:
        return
    world.narrate(who.process, f"{who.name} is cancelled")
    world.note_move(who)
    below = who.block.task if who.block is not None and who.block.passes_on else None
    if who.block is not None and who.block.lock is not None and who in who.block.lock.queue:
        who.block.lock.queue.remove(who)
        world.enabled.discard("expire", "expire", who.process.name, who.name)
    who.block = None
    for call in [call for call in who.process.calls.values() if call.party is who]:
        abandon(world, call, "is cancelled with its maker")
    while who.waits:
        who.process.recorder.resumes(who.waits.pop())
    for lock in list(who.locks):
        locks.release_share(world, who, lock)
    who.aborted = True
    _end(world, who)
    if below is not None:
        abort(world, below)


def _enough_over(block: Block) -> bool:
    """Whether enough of the awaited calls are over."""
    return bool(block.calls) and sum(call.over for call in block.calls) >= block.needs


def _take_token(world: World, who: Party) -> None:
    assert who.call is not None
    assert who.handle is not None
    who.took = True
    who.process.tokens += who.call.token
    step = Step(who.handle)
    step.fact(token=who.process.tokens)
    step.takes()
    who.process.recorder.closed(step, who.process.at(world.now))
    world.narrate(who.process, f"{who.name} takes the token")


def _call(world: World, who: Party, op: Call) -> None:
    """Send one request per step; then wait in one step for as many outcomes as needed."""
    if who.depth <= 0:
        who.next()
    elif who.step < len(op.targets):
        alone = len(op.targets) == 1 and op.needs == 1
        call = _send(world, who, op, op.targets[who.step], waiting=alone)
        who.sent.append(call)
        who.step += 1
        if alone:
            _block(world, who, Block(calls=(call,), needs=1))
        elif op.needs == 0 and who.step == len(op.targets):
            who.next()
    else:
        _wait_for_calls(world, who, op)


def _wait_for_calls(world: World, who: Party, op: Call) -> None:
    block = Block(calls=tuple(who.sent), needs=op.needs)
    if _enough_over(block):
        who.next()
        return
    recorder = who.process.recorder
    if op.needs == len(op.targets):
        for call in who.sent:
            if not call.over:
                recorder.awaits(call.made, who.process.at(world.now))
    else:
        among = [CallTarget(number=call.key[2]) for call in who.sent]
        who.waits.append(recorder.waits(who.name, among, who.process.at(world.now), needs=op.needs))
    world.narrate(who.process, f"{who.name} waits for {op.needs} of calls {', '.join(str(call.key[2]) for call in who.sent)}")
    _block(world, who, block)


def _block(world: World, who: Party, block: Block) -> None:
    who.block = block
    world.block(who)


def _send(world: World, who: Party, op: Call, target: tuple[str, str], *, waiting: bool = False) -> SimCall:
    process, (service, method) = who.process, target
    token = 1 if op.token and process.tokens else 0
    returns = any(world.plan.services[one].methods[method].returns_token for one in world.plan.route(service))
    step = Step(who.handle) if token or returns or world.plan.counted else None
    if step is not None and world.plan.counted:
        process.sent += 1
        step.fact(sent=process.sent)
        step.carries(phase=PHASE)
    if token and step is not None:
        process.tokens -= 1
        step.fact(token=process.tokens)
        step.carries(token=1)
    deadline = None if op.deadline_seconds is None else world.now + op.deadline_seconds
    made, stamp = process.recorder.sent(
        method=f"/{service}/{method}",
        channel=_channel(process, service, world.plan),
        now=process.at(world.now),
        party=who.name,
        deadline=process.until(deadline),
        waiting=waiting,
        step=step,
    )
    key = (process.name, process.id.incarnation, made.number)
    call = SimCall(key, made, _stamp_of(world, key, who, stamp), who, service, method, deadline, token)
    call.step = step
    world.calls[key] = process.calls[made.number] = call
    if world.candidates(service):
        calls.send_request(world, call)
    else:
        calls.fail_if_lost(world, call)
    world.narrate(process, f"{who.name} calls {service}.{method}: call {made.number}" + (", with the token" if token else ""))
    if deadline is not None:
        world.enabled.add("expire", "expire", key)
    if world.plan.hedged:
        world.enabled.add("expire", "hedge", key)
    return call


def _stamp_of(world: World, key: CallKey, who: Party, stamp: Stamp) -> Stamp | None:
    """The stamp on a request: None without an agent, except at gateways, which pass one on, and forgers."""
    if who.process.instrumented:
        return stamp
    if who.process.name in world.plan.forgers:
        return forgery.forged(world.processes, world.plan.seed, key)
    return who.call.stamp if who.call is not None and who.process.gateway else None


def _channel(process: Process, service: str, plan: Plan) -> ChannelRecord:
    if service not in process.channels:
        process.channels[service] = ChannelRecord(service, copies_max=plan.copies_max, hedged=plan.hedged)
    return process.channels[service]


def _join(world: World, who: Party, op: Join) -> None:
    task = tasks.task_named(who.process, op.task) if op.task else who.newest
    if task is None or task is who or task.done or who.block is not None:
        who.next()
        return
    who.process.joined += 1
    who.next()  # when the task is over, it continues with the next operation
    world.narrate(who.process, f"{who.name} waits for {task.name}")
    _block(world, who, Block(task=task, passes_on=op.passes_on, number=WaitNumber(OBSERVED_MIN + who.process.joined)))


def _spawn(world: World, who: Party, op: Spawn) -> None:
    process = who.process
    process.spawned += 1
    task = Party(party(process.name, f"job#{process.spawned}"), process, op.body, who.depth - 1)
    task.spawned, who.newest = True, task
    process.recorder.busy()
    world.narrate(process, f"{who.name} starts {task.name}")
    world.begin(task)
    who.next()


def _close_channel(world: World, who: Party, op: Close) -> None:
    world.narrate(who.process, f"{who.name} closes the channel to {op.service}")
    who.next()
    for call in [call for call in who.process.calls.values() if call.service == op.service]:
        abandon(world, call, "ends with its channel")


def _shut(world: World, who: Party, _: Shut) -> None:
    process = who.process
    world.narrate(process, f"{who.name} stops the server")
    who.next()
    for pool, queue in process.queues.items():
        while queue:
            queued = queue.pop()
            queued.call.queued.remove((process, pool))
            queued.call.answered.append(process.id)
            process.recorder.replied(queued.handle, failed=True)
            drop_reply(world, queued.call)
        world.offer_work(process, pool)
    for served in [one for one in process.parties.values() if one.call is not None and one is not who]:
        abort(world, served)


def _stop(world: World, who: Party, op: Stop) -> None:
    task = tasks.task_named(who.process, op.task)
    who.next()
    if task is not None and task is not who:
        abort(world, task)


def _cancel(world: World, who: Party, _: Cancel) -> None:
    for call in [call for call in who.process.calls.values() if call.party is who]:
        abandon(world, call, "is cancelled by its maker")
    who.next()


def _work(world: World, who: Party, _: Work) -> None:
    world.narrate(who.process, f"{who.name} works")
    who.next()


def _wind_down(world: World, who: Party) -> None:
    """The program has ended: release one lock per step, then send the reply."""
    if who.streams:  # an unfinished stream is cancelled when its maker drops it
        stream = who.streams.pop()
        if not stream.over:
            abandon(world, stream, "is dropped with its maker")
    elif who.locks:
        locks.release_share(world, who, who.locks[0])
    else:
        _end(world, who)


def _end(world: World, who: Party) -> None:
    process = who.process
    who.done = True
    del process.parties[who.name]
    world.enabled.discard("step", "step", process.name, who.name)
    for other in [other for other in process.parties.values() if other.block is not None and other.block.task is who]:
        world.wake(other)
    if who.call is None or who.handle is None:
        world.narrate(process, f"{who.name} is done")
        if who.spawned:
            process.recorder.done()
        else:
            world.root_done(process)
        return
    call = who.call
    cancellation.clear_interrupts(world, who)
    (call.zombies if who.hung else call.served).remove(who)
    heard = not (who.aborted or who.hung)
    token = 1 if heard and who.method is not None and who.method.returns_token and process.tokens else 0
    process.tokens -= token
    if token:
        step = Step(who.handle)
        step.fact(token=process.tokens)
        step.carries(token=1)
        step.with_reply()
        process.recorder.closed(step, process.at(world.now))
    call.answered.append(process.id)
    stamp = process.recorder.replied(who.handle)
    if who.pool:
        process.busy[who.pool].remove(who)
        world.offer_work(process, who.pool)
    if not heard:
        drop_reply(world, call)
        return
    call.replies += 1
    call.copies_back += 1
    call.down.closed = True
    packet = ("reply", call.key, call.copies_back)
    world.replies[packet] = (stamp if process.instrumented else None, token)
    world.narrate(process, f"{who.name} replies to {call.name}" + (", with the token" if token else ""))
    world.network.post(packet, process.name, ProcessName(call.key[0]))
    world.draw(process, Kind.SEND, packet=packet, label=f"reply {call.key[2]}")


def drop_reply(world: World, call: SimCall) -> None:
    """A cancelled handler sends no reply that matters: its caller has cancelled, or learns that the call failed."""
    if not (call.over or call.requests or call.replies or call.served or call.queued):
        call.broken = True
        world.enabled.add("deliver", "fail", call.key)
    calls.forget_if_done(world, call)


_RUN: Mapping[type, Callable[[World, Party, Any], None]] = {
    Call: _call,
    Acquire: locks.acquire,
    Release: locks.release,
    GiveBack: locks.release_for_another,
    Join: _join,
    Stop: _stop,
    Spawn: _spawn,
    Close: _close_channel,
    Shut: _shut,
    Work: _work,
    Cancel: _cancel,
    Open: lambda world, who, op: streaming.open_stream(world, who, op, _send),
    Put: streaming.put,
    Take: streaming.take,
    Finish: streaming.finish,
}
"""The function that performs each kind of operation."""
