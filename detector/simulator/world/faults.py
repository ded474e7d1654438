"""Acts from outside the system: crashes, stalls, lost reports. They end what was stable by decree, not by a step of its own."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from detector.simulator.world import calls, cancellation, parties
from detector.simulator.world.enabled_actions import Action
from detector.simulator.world.plan import Fault
from detector.simulator.world.state import Process
from detector.simulator.world.world import World
from stilltrue.model import ProcessName, process_of

DECREES = (Fault.FAIL_CALL, Fault.LOSE_CONNECTION, Fault.CRASH, Fault.RESTART, Fault.JOIN, Fault.LEAVE)


class Membership(Protocol):
    """The detector's side of a process that comes or goes."""

    def joins(self, name: ProcessName) -> None:
        """A process says hello."""

    def leaves(self, name: ProcessName) -> None:
        """A process's stream to the detector has ended."""


class Faults:
    """The faults that may still strike a world."""

    def __init__(self, world: World, members: Membership) -> None:
        self._world = world
        self._members = members
        self.left = {fault: count for fault, count in world.plan.faults.items() if count}
        self._dead: dict[ProcessName, tuple[str, int]] = {}

    def choose(self, random: Random) -> Action | None:
        """One fault that can strike now, or None."""
        if not self.left:
            return None
        fault = random.choice(sorted(self.left, key=lambda one: one.name))
        targets = self._targets(fault)
        return ("fault", fault.name, random.choice(targets)) if targets else None

    def _targets(self, fault: Fault) -> list[Any]:
        world = self._world
        up = list(world.processes)
        match fault:
            case Fault.LOSE_MARKER | Fault.LOSE_REPORT:
                found: list[Any] = list(world.enabled.bags["marker" if fault is Fault.LOSE_MARKER else "report"].actions)
            case Fault.FAIL_CALL:
                found = [call.key for call in world.calls.values() if not call.over]
            case Fault.RETRY:
                found = [packet for packet in world.replies if not world.calls[packet[1]].over]
                if world.plan.copies_max > 1:
                    found = [packet for packet in found if cancellation.may_repeat(world, world.calls[packet[1]])]
            case Fault.LOSE_CONNECTION:
                found = [who for call in world.calls.values() if cancellation.may_repeat(world, call) for who in call.served]
                found = [who.name for who in found if who.block is not None]  # else its loss changes little
            case Fault.CRASH:
                found = up if len(up) > 1 else []
            case Fault.RESTART:
                found = list(self._dead)
            case Fault.JOIN:
                found = [name for name in world.plan.spares if name not in world.processes and name not in self._dead]
            case Fault.LEAVE | Fault.STALL:
                found = [name for name in up if not world.processes[name].stalled]
        return found

    def strike(self, action: Action) -> None:
        """Let a fault happen."""
        fault, target = Fault[action[1]], action[2]
        self.left[fault] -= 1
        if not self.left[fault]:
            del self.left[fault]
        world = self._world
        world.now += 0.001
        if world.story is not None:
            world.story.append(f"{world.now:7.2f}  {'outside':<10} {fault.value}: {target}")
        if fault in DECREES:
            self._decree()
        self._happen(fault, target)

    def _happen(self, fault: Fault, target: Any) -> None:
        world = self._world
        match fault:
            case Fault.LOSE_MARKER:
                world.enabled.discard("marker", *target)
            case Fault.LOSE_REPORT:
                world.enabled.discard("report", *target)
                del world.reports[target]
            case Fault.FAIL_CALL:
                world.enabled.discard("deliver", "fail", target)
                parties.gives_up(world, world.calls[target], "fails, perhaps received")
            case Fault.RETRY:
                self._retry(target)
            case Fault.LOSE_CONNECTION:
                cancellation.loses_connection(world, world.processes[process_of(target)].parties[target])
            case Fault.STALL:
                world.processes[target].stalled = True
            case Fault.CRASH:
                self._crash(world.processes[target])
            case Fault.RESTART | Fault.JOIN:
                self._start(target)
            case Fault.LEAVE:
                self._members.leaves(target)

    def _retry(self, packet: Action) -> None:
        """The caller's library takes the reply for a failure that it may repeat, and tells nobody."""
        world, call = self._world, self._world.calls[packet[1]]
        world.network.remove(packet)
        world.tokens_lost += world.replies.pop(packet)[1]
        call.replies -= 1
        calls.requests(world, call)

    def _decree(self) -> None:
        """What was said to be for ever was said of the system without this."""
        self._world.outside += 1
        self._world.frozen.clear()
        self._world.frozen_until.clear()

    def _start(self, name: ProcessName) -> None:
        service, incarnation = self._dead.pop(name, (self._world.plan.spares.get(name, ""), 0))
        self._world.start(name, service, incarnation + 1)
        self._members.joins(name)

    def _crash(self, process: Process) -> None:
        world = self._world
        process.up = False
        self._dead[process.name] = (process.service_name, process.id.incarnation)
        del world.processes[process.name]
        world.of_service[process.service_name].remove(process.name)
        for call in world.calls.values():
            for copy in [q for q in call.queued if q[0] is process]:
                call.queued.remove(copy)
            call.served[:] = [who for who in call.served if who.process is not process]
            call.zombies[:] = [who for who in call.zombies if who.process is not process]
            if call.party.process is process:
                calls.orphan(world, call)
        for who in list(process.parties.values()):
            world.enabled.discard("step", "step", process.name, who.name)
            cancellation.forgets(world, who)
            world.enabled.discard("expire", "expire", process.name, who.name)
            if who.block is not None and who.block.lock is not None and who in who.block.lock.queue:
                who.block.lock.queue.remove(who)
            for lock in list(who.locks):
                parties.hand_over(world, who, lock)
        for pool in process.queues:
            world.enabled.discard("take", "take", process.name, pool)
        for call in list(world.calls.values()):
            calls.mourn(world, call)
        self._members.leaves(process.name)
