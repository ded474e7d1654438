"""A world of processes with real recorders: all that can happen next, and what happens when it does.

A step is one atomic event of one process, or one delivery. Everything random lies outside: the same actions give the same run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from detector.simulator.diagram import Event, Kind
from detector.simulator.world import cancellation as copies
from detector.simulator.world import parties as running
from detector.simulator.world import streaming
from detector.simulator.world.enabled_actions import Action, Agenda
from detector.simulator.world.plan import Order, Plan
from detector.simulator.world.state import CallKey, Lock, Party, Process, Queued, SimCall
from stilltrue.model import CallNumber, Facts, PartyName, ProcessId, ProcessName, SnapshotId, party
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.report import Report
from stilltrue.protocol.stamp import Stamp

STEP_SECONDS = 0.01
DOUBT_SECONDS = 1_000.0
"""How long a simulated recorder remembers a doubt: longer than any run, for the bound is a promise of the network's."""

RecorderOf = Callable[[ProcessId, bool], Recorder]


def plain_recorder(process: ProcessId, reactive: bool) -> Recorder:
    """The recorder as it is shipped."""
    return Recorder(process=process, reactive=reactive, bounds=Bounds(doubt_seconds_max=DOUBT_SECONDS))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log: the action, when, whose event it was, and that process's colour when it was handled."""

    action: Action
    now: float
    process: ProcessName
    colour: SnapshotId


class World:
    """The truth. ``frozen`` are parties that were said to be stuck for ever: one that moves is a breach."""

    def __init__(
        self,
        plan: Plan,
        *,
        recorder: RecorderOf = plain_recorder,
        story: list[str] | None = None,
        step_seconds: float = STEP_SECONDS,
    ) -> None:
        """``story``, when given, gets a sentence for each step. ``step_seconds``: how long a step takes."""
        self.step_seconds = step_seconds
        self.plan = plan
        self.now = 0.0
        self.agenda = Agenda()
        self.processes: dict[ProcessName, Process] = {}
        self.of_service: dict[str, list[ProcessName]] = {name: [] for name in plan.services}
        self.calls: dict[CallKey, SimCall] = {}
        self.locks: dict[str, Lock] = {}
        self.replies: dict[Action, tuple[Stamp, int]] = {}
        self.reports: dict[Action, Report] = {}
        self.log: list[Entry] = []
        self.events: list[Event] = []
        self.story = story
        self.frozen: dict[PartyName, str] = {}
        self.frozen_until: dict[PartyName, float] = {}
        self.breaches: list[str] = []
        self.outside = 0
        self.tokens_lost = 0
        self.unnoticed: dict[Action, bool] = {}
        """Lost connections that a server does not know of yet, and whether a snapshot has ended since."""
        self._drawn: dict[Action, int] = {}
        self._recorder = recorder
        self._lanes: dict[tuple[str, str], deque[Action]] = {}
        self._lane_of: dict[Action, tuple[str, str]] = {}
        self._roots: dict[ProcessName, int] = {}
        for name in plan.instances:
            self.start(name, plan.instances[name], 1)
        self._handlers: dict[str, Callable[..., Process | None]] = {
            "step": self._step,
            "request": self._request,
            "reply": self._reply,
            "item": self._item,
            "take": self._take,
            "expire": self._expire,
            "interrupt": self._interrupt,
            "fail": self._fail,
            "hedge": self._hedge,
            "reset": self._reset,
            "hangup": self._hangup,
            "mark": self._mark,
            "settles": self._settles,
        }

    # -- steps ---------------------------------------------------------------------------------------------------------

    def do(self, action: Action) -> None:
        """Let ``action`` happen."""
        self.now += self.step_seconds
        process = self._handlers[action[0]](*action[1:])
        if process is not None:
            self.log.append(Entry(action, self.now, process.name, process.recorder.colour))

    def concrete(self, action: Action) -> list[Action]:
        """The ways in which an entry of the agenda can happen: a request may reach any instance of its service."""
        if action[0] != "request":
            return [action]
        return [(*action, name) for name in self.of_service[self.calls[action[1]].service]]

    def tell(self, process: Process, text: str) -> None:
        """A sentence for the story."""
        if self.story is not None:
            self.story.append(f"{self.now:7.2f}  {process.name:<10} {text}")

    def breach(self, text: str) -> None:
        """Something happened that a promise forbids."""
        self.breaches.append(text)
        if self.story is not None:
            self.story.append(f"{self.now:7.2f}  !! {text}")

    # -- processes -----------------------------------------------------------------------------------------------------

    def start(self, name: ProcessName, service: str, incarnation: int) -> Process:
        """A process begins, with its root tasks in its first incarnation."""
        runs = incarnation == 1 or self.plan.reruns
        roots = [body for process, body in self.plan.roots if process == name] if runs else []
        identity = ProcessId(service=service, instance=name, incarnation=incarnation)
        recorder = self._recorder(identity, not roots)
        spec = self.plan.services[service]
        process = Process(identity, spec, recorder, self.plan.tokens.get(name, 0) if incarnation == 1 else 0)
        self.processes[name] = process
        self.of_service[service] = sorted({*self.of_service[service], name})
        for pool, size in spec.pools.items():
            recorder.pool_opened(pool, size)
        if self.plan.tokens:
            recorder.fact({"token": process.tokens})
        process.idle = not roots
        self._roots[name] = len(roots)
        for index, body in enumerate(roots, start=1):
            self.begins(Party(party(name, f"task#{index}"), process, body, self.plan.depth))
        return process

    def root_done(self, process: Process) -> None:
        """A root task is over; the last one says that the process owes nothing any more, in the same step."""
        self._roots[process.name] -= 1
        if not self._roots[process.name]:
            process.idle = True
            process.recorder.idle()

    def begins(self, who: Party) -> None:
        """A party starts to run."""
        who.process.parties[who.name] = who
        self.agenda.add("step", "step", who.process.name, who.name)

    def blocks(self, who: Party) -> None:
        """A party goes no further until :meth:`wakes`."""
        self.agenda.discard("step", "step", who.process.name, who.name)

    def wakes(self, who: Party) -> None:
        """What a party waited for has come."""
        if who.block is not None and who.block.lock is not None:
            self.agenda.discard("expire", "expire", who.process.name, who.name)
        who.block = None
        self.agenda.add("step", "step", who.process.name, who.name)
        self.moves(who)

    def moves(self, who: Party) -> None:
        """A party goes on: nobody may have said that it never would."""
        if self.frozen and who.name in self.frozen:
            self.breach(f"stable: {who.name} goes on, though {self.frozen[who.name]} said that it never would")
        if self.frozen_until and self.frozen_until.get(who.name, 0.0) > self.now:
            self.breach(f"stable: {who.name} goes on before {self.frozen_until[who.name]:g}, until when a gridlock was to last")

    def cut(self, process: Process, report: Report | None) -> None:
        """A process has recorded itself: its report sets out for the detector."""
        if report is None:
            return
        self.tell(process, f"cuts for snapshot {report.snapshot}")
        self.draw(process, Kind.CUT, snapshot=report.snapshot)
        key = ("report", process.name, process.id.incarnation, report.snapshot)
        self.reports[key] = report
        self.agenda.add("report", *key)

    def draw(
        self, process: Process, kind: Kind, *, packet: Action = (), label: str = "", snapshot: SnapshotId | None = None
    ) -> None:
        """Something for the diagram; a packet is drawn as an arrow from its sending to its arrival."""
        if self.story is not None:
            number = self._drawn.setdefault(packet, len(self._drawn) + 1) if packet else None
            self.events.append(Event(process=process.name, kind=kind, label=label, message=number, snapshot=snapshot))

    # -- the network ---------------------------------------------------------------------------------------------------

    def post(self, packet: Action, source: str, target: str) -> None:
        """A packet sets out on the channel from ``source`` to ``target``."""
        if self.plan.order is Order.ANY:
            self.agenda.add("deliver", *packet)
            return
        lane = self._lanes.setdefault((source, target), deque())
        self._lane_of[packet] = (source, target)
        lane.append(packet)
        if len(lane) == 1:
            self.agenda.add("deliver", *packet)

    def gone(self, packet: Action) -> None:
        """A packet has arrived, or is lost."""
        self.agenda.discard("deliver", *packet)
        if self.plan.order is Order.ANY:
            return
        lane = self._lanes[self._lane_of.pop(packet)]
        first = lane[0] == packet
        lane.remove(packet)
        if first and lane:
            self.agenda.add("deliver", *lane[0])

    def requests(self, call: SimCall) -> None:
        """The request sets out: once, or once more when it is retried."""
        call.requests += 1
        call.copies_there += 1
        packet = ("request", call.key, call.copies_there)
        self.post(packet, call.key[0], call.service)
        self.draw(call.party.process, Kind.SEND, packet=packet, label=f"{call.method} {call.key[2]}")

    def tidy(self, call: SimCall) -> None:
        """Forget a call of which nothing is left anywhere."""
        if call.over and not (call.requests or call.replies or call.served or call.queued or call.zombies):
            self.calls.pop(call.key, None)
            streaming.drops(self, call)

    def alive(self, name: ProcessName, incarnation: int) -> Process | None:
        """The process, if it is up and still the same incarnation."""
        process = self.processes.get(name)
        return process if process is not None and process.id.incarnation == incarnation else None

    def orphan(self, call: SimCall) -> None:
        """The caller has died: nobody waits for the call any more."""
        call.over = True
        self.agenda.discard("expire", "expire", call.key)
        self.agenda.discard("deliver", "fail", call.key)

    def mourn(self, call: SimCall) -> None:
        """A server has died: a call that is nowhere any more, or that nobody is left to take, will fail at its caller."""
        if not self.of_service[call.service]:
            for packet in [one for one in self.agenda.bags["deliver"].actions if one[:2] == ("request", call.key)]:
                self.gone(packet)
            call.requests = 0
        if not (call.over or call.requests or call.replies or call.served or call.queued):
            call.broken = True
            self.agenda.add("deliver", "fail", call.key)
        self.tidy(call)

    # -- happenings ----------------------------------------------------------------------------------------------------

    def _step(self, name: ProcessName, who: PartyName) -> Process:
        process = self.processes[name]
        running.advance(self, process.parties[who])
        return process

    def _request(self, key: CallKey, copy: int, name: ProcessName) -> Process:
        process, call = self.processes[name], self.calls[key]
        self.gone(("request", key, copy))
        call.requests -= 1
        method = process.service.methods[call.method]
        handle, report = process.recorder.arrived(
            call.stamp,
            method=f"/{call.service}/{call.method}",
            now=self.now,
            pool=method.pool,
            deadline=call.deadline,
            interruptible=method.interruptible,
        )
        self.cut(process, report)
        self.draw(process, Kind.RECEIVE, packet=("request", key, copy))
        self.tell(process, f"receives {call.name} of {call.method}" + (f", behind pool {method.pool}" if method.pool else ""))
        if method.pool:
            process.queues[method.pool].append(Queued(call, handle))
            call.queued.append((process, method.pool))
            self.offer_work(process, method.pool)
        else:
            running.start(self, process, call, handle)
        streaming.sets_out(self, call)
        return process

    def _item(self, key: CallKey, up: bool) -> None:
        streaming.arrives(self, self.calls[key], up=up)

    def offer_work(self, process: Process, pool: str) -> None:
        """Say whether a worker of the pool can take a call."""
        if process.queues[pool] and process.has_worker(pool):
            self.agenda.add("take", "take", process.name, pool)
        else:
            self.agenda.discard("take", "take", process.name, pool)

    def _take(self, name: ProcessName, pool: str) -> Process:
        process = self.processes[name]
        queued = process.queues[pool].popleft()
        queued.call.queued.remove((process, pool))
        running.start(self, process, queued.call, queued.handle)
        self.offer_work(process, pool)
        return process

    def _reply(self, key: CallKey, copy: int) -> Process | None:
        packet = ("reply", key, copy)
        self.gone(packet)
        process, call = self.alive(key[0], key[1]), self.calls[key]
        stamp, token = self.replies.pop(packet)
        streaming.flushes(self, call)
        call.replies -= 1
        if process is None:
            self.tokens_lost += token
            self.tidy(call)
            return None
        changes: Facts = {}
        if token and not call.over:
            process.tokens += token
            changes = {"token": process.tokens}
        elif token:
            self.tokens_lost += token
        self.tell(process, f"receives the reply to call {key[2]} from {stamp.source}" + (", too late" if call.over else ""))
        self.cut(process, process.recorder.settled(call.made, stamp, self.now, changes=changes))
        self.draw(process, Kind.RECEIVE, packet=packet)
        running.settles(self, call)
        return process

    def _fail(self, key: CallKey) -> Process:
        """The caller learns that a call has failed, not whether it was received (rule 8)."""
        process, call = self.processes[key[0]], self.calls[key]
        self.agenda.discard("deliver", "fail", key)
        running.gives_up(self, call, "fails, perhaps received")
        return process

    def _expire(self, name: ProcessName | CallKey, who: PartyName | None = None) -> Process:
        """A deadline passes: that of a call (given by its key), or that of a party's wait for a lock."""
        if who is not None:
            return running.lock_expires(self, self.processes[name].parties[who])  # type: ignore[index]
        call = self.calls[name]  # type: ignore[index]
        self.now = max(self.now, call.deadline or 0.0)
        running.gives_up(self, call, "passes its deadline")
        return self.processes[call.key[0]]

    def _interrupt(self, name: ProcessName, who: PartyName) -> Process:
        """A handler is cancelled at the deadline of its call."""
        served = self.processes[name].parties[who]
        self.now = max(self.now, served.call.deadline or 0.0) if served.call else self.now
        running.abort(self, served)
        return self.processes[name]

    def _hedge(self, key: CallKey) -> Process:
        copies.hedges(self, self.calls[key])
        return self.processes[key[0]]

    def _reset(self, name: ProcessName, who: PartyName) -> Process:
        """A server learns that the call is cancelled, and interrupts the handler."""
        running.abort(self, self.processes[name].parties[who])
        return self.processes[name]

    def _hangup(self, name: ProcessName, who: PartyName) -> Process:
        """A server learns that the connection is lost; the handler goes on."""
        copies.notices(self, self.processes[name].parties[who])
        return self.processes[name]

    def _mark(self, snapshot: SnapshotId, name: ProcessName, incarnation: int) -> Process | None:
        self.agenda.discard("mark", "mark", snapshot, name, incarnation)
        process = self.alive(name, incarnation)
        if process is not None:
            self.cut(process, process.recorder.marked(snapshot, self.now))
        return process

    def _settles(
        self, snapshot: SnapshotId, name: ProcessName, incarnation: int, numbers: tuple[CallNumber, ...]
    ) -> Process | None:
        """A process learns, with a mark or by itself, that calls it has in doubt were answered (rule 8)."""
        self.agenda.discard("mark", "settles", snapshot, name, incarnation, numbers)
        process = self.alive(name, incarnation)
        if process is not None:
            process.recorder.doubts_settled(numbers)
            self.tell(process, f"learns that {', '.join(map(str, numbers))} of its calls in doubt were answered")
        return process
