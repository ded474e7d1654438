"""Acts from outside the system: crashes, stalls, lost reports. They end what was stable by decree, not by a step of its own."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from detector.simulator.agenda import Action
from detector.simulator.plan import Fault
from detector.simulator import running
from detector.simulator.state import Process
from stilltrue.model import ProcessName

if TYPE_CHECKING:
    from detector.simulator.watch import Watch
    from detector.simulator.world import World


class Faults:
    """The faults that may still strike a world."""

    def __init__(self, world: World, watch: Watch) -> None:
        self._world = world
        self._watch = watch
        self.left = {fault: count for fault, count in world.plan.faults.items() if count}
        self._dead: dict[ProcessName, tuple[str, int]] = {}

    def choose(self, random: Random) -> Action | None:
        """One fault that can strike now, or None."""
        if not self.left:
            return None
        fault = random.choice(sorted(self.left, key=lambda one: one.name))
        targets = self._targets(fault)
        return ("fault", fault.name, random.choice(targets)) if targets else None

    def _targets(self, fault: Fault) -> list[object]:
        world = self._world
        match fault:
            case Fault.LOSE_MARK:
                return list(world.agenda.bags["mark"].actions)
            case Fault.LOSE_REPORT:
                return list(world.agenda.bags["report"].actions)
            case Fault.FAIL_CALL:
                return [call.key for call in world.calls.values() if not call.over]
            case Fault.RETRY:
                return [packet for packet in world.replies if not world.calls[packet[1]].over]
            case Fault.CRASH:
                return [name for name in world.processes if world.processes[name].up] if len(world.processes) > 1 else []
            case Fault.RESTART:
                return list(self._dead)
            case Fault.JOIN:
                return [name for name in world.plan.spares if name not in world.processes and name not in self._dead]
            case Fault.LEAVE | Fault.STALL:
                return [name for name in world.processes if not world.processes[name].stalled]

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
        match fault:
            case Fault.LOSE_MARK:
                world.agenda.discard("mark", *target)
            case Fault.LOSE_REPORT:
                world.agenda.discard("report", *target)
                del world.reports[target]
            case Fault.FAIL_CALL:
                self._decree()
                call = world.calls[target]
                world.agenda.discard("deliver", "fail", target)
                running.gives_up(world, call, "fails, perhaps received")
            case Fault.RETRY:
                call = world.calls[target[1]]
                world.gone(target)
                world.tokens_lost += world.replies.pop(target)[1]
                call.replies -= 1
                world.requests(call)
            case Fault.STALL:
                world.processes[target].stalled = True
            case Fault.CRASH:
                self._decree()
                self._crash(world.processes[target])
            case Fault.RESTART | Fault.JOIN:
                self._decree()
                self._start(target)
            case Fault.LEAVE:
                self._decree()
                self._watch.leaves(target)

    def _decree(self) -> None:
        """What was said to be for ever was said of the system without this."""
        self._world.outside += 1
        self._world.frozen.clear()
        self._world.frozen_until.clear()

    def _start(self, name: ProcessName) -> None:
        service, incarnation = self._dead.pop(name, (self._world.plan.spares.get(name, ""), 0))
        self._world.start(name, service, incarnation + 1)
        self._watch.joins(name)

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
            if call.party.process is process:
                world.orphan(call)
        for who in list(process.parties.values()):
            world.agenda.discard("step", "step", process.name, who.name)
            world.agenda.discard("expire", "interrupt", process.name, who.name)
            world.agenda.discard("expire", "expire", process.name, who.name)
            if who.block is not None and who.block.lock is not None and who in who.block.lock.queue:
                who.block.lock.queue.remove(who)
            for lock in list(who.locks):
                running.hand_over(world, who, lock)
        for pool in process.queues:
            world.agenda.discard("take", "take", process.name, pool)
        for call in list(world.calls.values()):
            world.mourn(call)
        self._watch.leaves(process.name)
