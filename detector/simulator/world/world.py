"""A world: processes with real recorders, the network between them, and the truth about both.

It holds the state: the enabled actions and the past events. The handlers (:mod:`~detector.simulator.world.actions.handlers`),
called by an :class:`~detector.simulator.world.engine.Engine`, define the effect of each action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from detector.simulator.diagram import Event, Kind
from detector.simulator.plans.plan import Limits, Plan
from detector.simulator.world.enabled_actions import Action, EnabledActions
from detector.simulator.world.forgery import ForgeryLog
from detector.simulator.world.network import Network
from detector.simulator.world.state import CallKey, Lock, Party, Process, SimCall
from detector.simulator.world.tasks import observed
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId, party
from stilltrue.protocol.observation import Observation, observe_nothing
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import Look
from stilltrue.protocol.stamp import Stamp

STEP_SECONDS = 0.01
PHASE = 1
"""The only phase, for requests that are counted."""
DOUBT_SECONDS = 1_000.0
"""How long a simulated recorder remembers a doubt: longer than any run, since the bound relies on the network."""

Observe = Callable[[float], Observation]
RecorderOf = Callable[[ProcessId, bool, Limits, Observe], Recorder]


def plain_recorder(process: ProcessId, reactive: bool, limits: Limits, observe: Observe) -> Recorder:
    """The unmodified recorder."""
    bounds = Bounds(
        callers_max=limits.callers_max,
        answered_max=limits.answered_max,
        doubts_max=limits.doubts_max,
        doubt_seconds_max=DOUBT_SECONDS,
    )
    return Recorder(process=process, reactive=reactive, bounds=bounds, observe=observe)


@dataclass(frozen=True, slots=True)
class Entry:
    """One log entry: the action, its time, its process, and that process's colour when it was handled."""

    action: Action
    now: float
    process: ProcessName
    colour: SnapshotId


class World:
    """The true state. ``frozen``: parties that a verdict reported as stuck forever; if one moves, a promise is broken."""

    def __init__(
        self,
        plan: Plan,
        *,
        recorder: RecorderOf = plain_recorder,
        story: list[str] | None = None,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        """``story``: if given, a sentence for each step is appended to it. ``step_seconds``: the duration of a step."""
        self.step_seconds = step_seconds
        self.plan = plan
        self.now = 0.0
        self.enabled = EnabledActions()
        self.network = Network(plan.order, self.enabled)
        self.processes: dict[ProcessName, Process] = {}
        self.of_service: dict[str, list[ProcessName]] = {name: [] for name in plan.services}
        self.calls: dict[CallKey, SimCall] = {}
        self.locks: dict[str, Lock] = {}
        self.replies: dict[Action, tuple[Stamp | None, int]] = {}
        self.reports: dict[Action, Report] = {}
        self.looks: dict[Action, tuple[ProcessId, Look]] = {}
        self.log: list[Entry] = []
        self.events: list[Event] = []
        self.story = story
        self.frozen: dict[PartyName, str] = {}
        self.frozen_until: dict[PartyName, float] = {}
        self.breaches: list[str] = []
        self.outside = 0
        self.doubts: dict[CallKey, tuple[SimCall, float]] = {}
        """Calls in doubt at their callers, and since when."""
        self.tokens_lost = 0
        self.expired = 0
        """Number of deadlines that have passed."""
        self.departed = set(plan.uninstrumented)
        """Running processes that are not members: without an agent, or after a goodbye."""
        self._drawn: dict[Action, int] = {}
        self._recorder = recorder
        self._has_tasks = plan.has_tasks()
        self.forgeries = ForgeryLog()
        self.has_jobs = plan.has_jobs()
        self._roots: dict[ProcessName, int] = {}
        for name in plan.instances:
            self.start(name, plan.instances[name], 1)

    # -- events -----------------------------------------------------------------------------------------------------------

    def concrete(self, action: Action) -> list[Action]:
        """The concrete actions that an enabled action stands for: a request may reach any instance of its service."""
        if action[0] != "request":
            return [action]
        return [(*action, name) for name in self.candidates(self.calls[action[1]].service)]

    def candidates(self, address: str) -> list[ProcessName]:
        """The processes that may take a request to an address."""
        route = self.plan.route(address)
        if len(route) == 1:
            return self.of_service[route[0]]
        return sorted({name for service in route for name in self.of_service[service]})

    def narrate(self, process: Process, text: str) -> None:
        """Add a sentence to the story."""
        if self.story is not None:
            self.story.append(f"{self.now:7.2f}  {process.name:<10} {text}")

    def intervene(self) -> None:
        """An event from outside: earlier verdicts of permanence were about the system without it."""
        self.outside += 1
        self.frozen.clear()
        self.frozen_until.clear()

    def breach(self, text: str) -> None:
        """Record that a promise was broken."""
        self.breaches.append(text)
        if self.story is not None:
            self.story.append(f"{self.now:7.2f}  !! {text}")

    # -- processes -----------------------------------------------------------------------------------------------------

    def start(self, name: ProcessName, service: str, incarnation: int) -> Process:
        """Start a process; its root tasks run in its first incarnation, or in all with ``reruns``."""
        runs = incarnation == 1 or self.plan.reruns
        roots = [body for process, body in self.plan.roots if process == name] if runs else []
        identity = ProcessId(service=service, instance=name, incarnation=incarnation)
        observe: Observe = (lambda _: observed(self.processes[name])) if self._has_tasks else observe_nothing
        recorder = self._recorder(identity, not roots, self.plan.limits, observe)
        names = (service, *self.plan.also.get(name, ()))
        process = Process(
            identity,
            {one: self.plan.services[one] for one in names},
            recorder,
            self.plan.tokens.get(name, 0) if incarnation == 1 else 0,
            instrumented=name not in self.plan.uninstrumented,
            gateway=name in self.plan.gateways,
            ahead=self.plan.clocks.get(name, 0.0),
        )
        self.processes[name] = process
        for one in names:
            self.of_service[one] = sorted({*self.of_service[one], name})
        for pool, size in process.sizes.items():
            recorder.pool_opened(pool, size)
        if self.plan.tokens:
            recorder.fact({"token": process.tokens})
        if self.plan.counted:
            recorder.fact({"sent": 0, "received": 0, "phase": PHASE})
        process.idle = not roots
        self._roots[name] = len(roots)
        for index, body in enumerate(roots, start=1):
            self.begin(Party(party(name, f"task#{index}"), process, body, self.plan.depth))
        return process

    def root_done(self, process: Process) -> None:
        """A root task is over; after the last one the process becomes idle in the same step."""
        self._roots[process.name] -= 1
        if not self._roots[process.name]:
            process.idle = True
            process.recorder.idle()

    def begin(self, who: Party) -> None:
        """Start a party."""
        who.process.parties[who.name] = who
        self.enabled.add("step", "step", who.process.name, who.name)

    def block(self, who: Party) -> None:
        """Stop a party from running until :meth:`wake`."""
        self.enabled.discard("step", "step", who.process.name, who.name)

    def wake(self, who: Party) -> None:
        """End a party's block, since what it waited for has come."""
        if who.block is not None and who.block.lock is not None:
            self.enabled.discard("expire", "expire", who.process.name, who.name)
        who.block = None
        self.enabled.add("step", "step", who.process.name, who.name)
        self.note_move(who)

    def note_move(self, who: Party) -> None:
        """A party moves: check that no verdict said it never would."""
        if self.frozen and who.name in self.frozen:
            self.breach(f"stable: {who.name} moves, though {self.frozen[who.name]} said that it never would")
        if self.frozen_until and self.frozen_until.get(who.name, 0.0) > self.now:
            self.breach(f"stable: {who.name} moves before {self.frozen_until[who.name]:g}, the end of a reported gridlock")

    def cut(self, process: Process, report: Report | None) -> None:
        """A process has cut: send its report to the detector."""
        if report is None:
            return
        self.narrate(process, f"cuts for snapshot {report.snapshot}")
        self.draw(process, Kind.CUT, snapshot=report.snapshot)
        self.forgeries.cut(process, report.after, report.snapshot)
        key = ("report", process.name, process.id.incarnation, report.snapshot)
        self.reports[key] = report
        self.enabled.add("report", *key)

    def draw(
        self, process: Process, kind: Kind, *, packet: Action = (), label: str = "", snapshot: SnapshotId | None = None
    ) -> None:
        """Add an event to the diagram; a packet is drawn as an arrow from its sending to its arrival."""
        if self.story is not None:
            number = self._drawn.setdefault(packet, len(self._drawn) + 1) if packet else None
            self.events.append(Event(process=process.name, kind=kind, label=label, message=number, snapshot=snapshot))

    def alive(self, name: ProcessName, incarnation: int) -> Process | None:
        """The process, if it is running in this incarnation."""
        process = self.processes.get(name)
        return process if process is not None and process.id.incarnation == incarnation else None

    def offer_work(self, process: Process, pool: str) -> None:
        """Enable or disable taking a queued call by a worker of the pool."""
        if process.queues[pool] and process.has_worker(pool):
            self.enabled.add("take", "take", process.name, pool)
        else:
            self.enabled.discard("take", "take", process.name, pool)
