"""Acquires, releases and hands over the locks of the simulated processes and of their shared store."""

from __future__ import annotations

from detector.simulator.plans.plan import Acquire, GiveBack, Release
from detector.simulator.world.state import Block, Lock, Party, Process
from detector.simulator.world.world import World
from stilltrue.protocol.report import ResourceTarget


def acquire(world: World, who: Party, op: Acquire) -> None:
    """Take a share, or queue for one. A granted share counts as held from the step in which the party learns of it."""
    lock = _lock(world, who.process, op)
    recorder = who.process.recorder
    if who.step == 0 and (len(lock.holders) >= lock.capacity or lock.queue):
        deadline = None if op.deadline_seconds is None else world.now + op.deadline_seconds
        target = (ResourceTarget(resource=lock.name),)
        now, until = who.process.at(world.now), who.process.until(deadline)
        who.waits.append(recorder.waits(who.name, target, now, deadline=until, uncoloured=op.fleet, what=lock.name))
        lock.queue.append(who)
        who.step = 1
        world.narrate(who.process, f"{who.name} waits for {lock.name}")
        who.block = Block(lock=lock, deadline=deadline, bare=op.bare)
        world.block(who)
        if deadline is not None:
            world.enabled.add("expire", "expire", who.process.name, who.name)
        return
    if who.step == 0:
        _grant(lock, who, bare=op.bare)
    if lock in who.locks and not op.bare:
        recorder.holds(who.name, lock.name, lock.capacity)
        world.narrate(who.process, f"{who.name} holds {lock.name}")
    who.next()


def release(world: World, who: Party, op: Release) -> None:
    """Perform a ``Release``: release the lock of this name if the party holds it."""
    names = {f"store/{op.resource}", f"{who.process.name}/{op.resource}"}
    for lock in [lock for lock in who.locks if lock.name in names][:1]:
        release_share(world, who, lock)
    who.next()


def release_share(world: World, who: Party, lock: Lock) -> None:
    """Release a share that the party holds."""
    who.locks.remove(lock)
    who.process.recorder.releases(who.name, lock.name)
    world.narrate(who.process, f"{who.name} releases {lock.name}")
    hand_over(world, who, lock)


def release_for_another(world: World, who: Party, op: GiveBack) -> None:
    """Release a share that another party took bare, as a done callback may."""
    for name in (f"{who.process.name}/{op.resource}", f"store/{op.resource}"):
        lock = world.locks.get(name)
        if lock is not None and lock.bare:
            world.narrate(who.process, f"{who.name} releases {lock.name}, which {lock.bare[0].name} acquired")
            hand_over(world, lock.bare.pop(0), lock)
            break
    who.next()


def hand_over(world: World, who: Party, lock: Lock) -> None:
    """A share is free: grant it to the first party in the queue."""
    lock.holders.remove(who)
    if lock.queue:
        first = lock.queue.popleft()
        _grant(lock, first, bare=first.block is not None and first.block.bare)
        world.wake(first)


def expire_wait(world: World, who: Party) -> Process:
    """A wait for a lock ends at its deadline; the party goes on without the lock."""
    block = who.block
    if block is not None and block.lock is not None:
        world.now = max(world.now, block.deadline or 0.0)
        block.lock.queue.remove(who)
        world.narrate(who.process, f"{who.name} no longer waits for {block.lock.name}")
        world.wake(who)
    return who.process


def _grant(lock: Lock, who: Party, *, bare: bool) -> None:
    lock.holders.append(who)
    if bare:
        lock.bare.append(who)
    else:
        who.locks.append(lock)


def _lock(world: World, process: Process, op: Acquire) -> Lock:
    name = f"store/{op.resource}" if op.fleet else f"{process.name}/{op.resource}"
    if name not in world.locks:
        world.locks[name] = Lock(name, world.plan.locks.get(op.resource, 1), fleet=op.fleet)
    return world.locks[name]
