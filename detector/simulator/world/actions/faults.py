"""Faults from outside the system, such as crashes, stalls and lost reports. Only they may end a stable state."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from detector.simulator.plans.plan import Fault
from detector.simulator.world.actions import calls, cancellation, locks, parties
from detector.simulator.world.enabled_actions import Action
from detector.simulator.world.state import Process
from detector.simulator.world.world import World
from stilltrue.model import PartyName, ProcessName, process_of

INTERVENTIONS = (Fault.FAIL_CALL, Fault.LOSE_CONNECTION, Fault.CRASH, Fault.RESTART, Fault.JOIN, Fault.LEAVE)


class Membership(Protocol):
    """What faults need of the detector."""

    def join(self, name: ProcessName) -> None:
        """A process connects."""

    def leave(self, name: ProcessName) -> None:
        """A process has left with a goodbye."""

    def lose(self, name: ProcessName) -> None:
        """A process's stream to the detector has broken, without a goodbye."""

    def restart(self) -> None:
        """The detector itself restarts."""

    def curable(self) -> list[tuple[PartyName, ...]]:
        """The victims of each known deadlock."""

    def cure(self, victims: tuple[PartyName, ...]) -> None:
        """An operator requests the abort of these victims of one deadlock."""


class Faults:
    """The faults that may still strike a world."""

    def __init__(self, world: World, members: Membership) -> None:
        self._world = world
        self._members = members
        self.left = {fault: count for fault, count in world.plan.faults.items() if count}
        self._dead: dict[ProcessName, tuple[str, int]] = {}

    def choose(self, random: Random) -> Action | None:
        """A fault that can strike now, or None."""
        if not self.left:
            return None
        fault = random.choice(sorted(self.left, key=lambda one: one.name))
        targets = self._targets(fault)
        return ("fault", fault.name, random.choice(targets)) if targets else None

    def _targets(self, fault: Fault) -> list[Any]:
        """The possible targets of a fault."""
        bags = self._world.enabled.bags
        match fault:
            case Fault.LOSE_MARKER:
                return [action for action in bags["marker"].actions if action[0] == "marker"]
            case Fault.LOSE_REPORT | Fault.DUPLICATE:
                return list(bags["report"].actions)
            case Fault.NEW_DETECTOR:
                return ["detector"]
            case Fault.CURE:
                return self._members.curable()
            case Fault.FAIL_CALL | Fault.RETRY | Fault.LOSE_CONNECTION:
                return self._calls_to_fail(fault)
            case _:
                return self._processes_to_change(fault)

    def _processes_to_change(self, fault: Fault) -> list[Any]:
        up = self._world.processes
        if fault is Fault.RESTART:
            return list(self._dead)
        if fault is Fault.JOIN:
            return [name for name in self._world.plan.spares if name not in up and name not in self._dead]
        if fault is Fault.CRASH:
            return list(up) if len(up) > 1 else []
        return [name for name in up if not up[name].stalled]

    def _calls_to_fail(self, fault: Fault) -> list[Any]:
        world = self._world
        if fault is Fault.FAIL_CALL:
            return [call.key for call in world.calls.values() if not call.over]
        if fault is Fault.RETRY:
            found = [packet for packet in world.replies if not world.calls[packet[1]].over]
            if world.plan.copies_max > 1:
                return [packet for packet in found if cancellation.may_repeat(world, world.calls[packet[1]])]
            return found
        served = [who for call in world.calls.values() if cancellation.may_repeat(world, call) for who in call.served]
        return [who.name for who in served if who.block is not None]  # the loss matters little for others

    def strike(self, action: Action) -> None:
        """Perform a fault."""
        fault, target = Fault[action[1]], action[2]
        self.left[fault] -= 1
        if not self.left[fault]:
            del self.left[fault]
        world = self._world
        world.now += 0.001
        if world.story is not None:
            world.story.append(f"{world.now:7.2f}  {'outside':<10} {fault.value}: {target}")
        if fault in INTERVENTIONS:
            self._world.intervene()
        self._happen(fault, target)

    def _happen(self, fault: Fault, target: Any) -> None:
        world = self._world
        match fault:
            case Fault.LOSE_MARKER:
                world.enabled.discard("marker", *target)
            case Fault.LOSE_REPORT:
                world.enabled.discard("report", *target)
                world.reports.pop(target, None)
                world.looks.pop(target, None)
            case Fault.DUPLICATE:
                again = (*target, self.left.get(fault, 0))
                if target in world.looks:
                    world.looks[again] = world.looks[target]
                else:
                    world.reports[again] = world.reports[target]
                world.enabled.add("report", *again)
            case Fault.FAIL_CALL | Fault.RETRY | Fault.LOSE_CONNECTION:
                self._fail(fault, target)
            case Fault.STALL:
                world.processes[target].stalled = True
            case Fault.CURE:
                self._members.cure(target)
            case _:
                self._come_or_go(fault, target)

    def _fail(self, fault: Fault, target: Any) -> None:
        world = self._world
        if fault is Fault.FAIL_CALL:
            world.enabled.discard("deliver", "fail", target)
            parties.abandon(world, world.calls[target], "fails, perhaps received")
        elif fault is Fault.RETRY:
            self._retry(target)
        else:
            cancellation.lose_connection(world, world.processes[process_of(target)].parties[target])

    def _come_or_go(self, fault: Fault, target: Any) -> None:
        if fault is Fault.CRASH:
            self._crash(self._world.processes[target])
        elif fault is Fault.LEAVE:
            self._members.leave(target)
        elif fault is Fault.LOSE_MEMBER:
            self._members.lose(target)
        elif fault is Fault.NEW_DETECTOR:
            self._members.restart()
        else:
            self._start(target)

    def _retry(self, packet: Action) -> None:
        """The caller's library treats the reply as a failure and silently retries the call."""
        world, call = self._world, self._world.calls[packet[1]]
        world.network.remove(packet)
        world.tokens_lost += world.replies.pop(packet)[1]
        call.replies -= 1
        calls.send_request(world, call)

    def _start(self, name: ProcessName) -> None:
        service, incarnation = self._dead.pop(name, (self._world.plan.spares.get(name, ""), 0))
        self._world.start(name, service, incarnation + 1)
        self._members.join(name)

    def _crash(self, process: Process) -> None:
        world = self._world
        process.up = False
        self._dead[process.name] = (process.id.service, process.id.incarnation)
        del world.processes[process.name]
        for service in process.services:
            world.of_service[service].remove(process.name)
        for call in world.calls.values():
            for copy in [q for q in call.queued if q[0] is process]:
                call.queued.remove(copy)
            call.served[:] = [who for who in call.served if who.process is not process]
            call.zombies[:] = [who for who in call.zombies if who.process is not process]
            if call.party.process is process:
                calls.orphan(world, call)
        for who in list(process.parties.values()):
            world.enabled.discard("step", "step", process.name, who.name)
            cancellation.clear_interrupts(world, who)
            world.enabled.discard("expire", "expire", process.name, who.name)
            if who.block is not None and who.block.lock is not None and who in who.block.lock.queue:
                who.block.lock.queue.remove(who)
            for lock in list(who.locks):
                locks.hand_over(world, who, lock)
        for pool in process.queues:
            world.enabled.discard("take", "take", process.name, pool)
        for call in list(world.calls.values()):
            calls.fail_if_lost(world, call)
        self._members.lose(process.name)
