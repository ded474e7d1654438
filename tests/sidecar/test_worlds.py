"""Seeded worlds of programs behind sidecars: no false deadlock is reported.

Programs have a queue before N workers; handlers call, fan out, wait for all or for the first, and give up the rest. What a
program and its sidecar say to each other travels in order on each of four connections, and between these in any order. The one
assumption (docs/sidecar.md, "Second look"): what a program has sent reaches its sidecar before a wait of its sender counts as
settled, and before the next snapshot begins.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from detector.core.protocol.assembler import Assembled, PendingSnapshot
from detector.core.verification.suspicion import suspicion_of
from detector.core.verification.verifier import AskLook, Verified, Verifier
from detector.predicates.deadlock import Deadlock
from detector.sidecar.tracking.calls import InboundCall, OutboundCall
from detector.sidecar.tracking.possible_waits import UNACTED_SECONDS
from detector.sidecar.tracking.program import SETTLING_SECONDS, UNKNOWN_SECONDS, Program
from stilltrue.model import Holds, ProcessId, ProcessName, SnapshotId, Verdict
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.stamp import Stamp, decode
from stilltrue.runtime.locked_recorder import LockedRecorder

WORLDS = 120
SOAK_WORLDS = 5_000
STEPS = 160
SECONDS_A_STEP = 0.01
SNAPSHOTS_AT_THE_END = 3


@dataclass(eq=False)
class Sent:
    """A message in transit between a program and its sidecar; called, it arrives."""

    at: float
    arrives: Callable[[], None]

    def __call__(self) -> None:
        self.arrives()


@dataclass(eq=False)
class Call:
    """A call in truth."""

    trace: bytes
    target: App
    maker: Handler | None = None
    state: str = "travels"
    stamp: Stamp | None = None
    out: OutboundCall | None = None
    inbound: InboundCall | None = None
    given_up: bool = False


@dataclass(eq=False)
class Handler:
    """A worker at a call: what it has still to do, and what it waits for (``needs`` of ``made``)."""

    app: App
    call: Call
    plan: list[tuple[str, list[App]]]
    haste: float
    made: list[Call] = field(default_factory=list)
    needs: int = 0
    gives_up_the_rest: bool = False

    @property
    def blocked(self) -> bool:
        return sum(call.state == "done" for call in self.made) < self.needs


class App:
    """A program in truth, and its sidecar."""

    def __init__(self, name: str, world: World, *, workers: int, told: bool, forwards: bool, all_told: bool) -> None:
        self.name = name
        self.workers = workers
        self.forwards = forwards
        self.queue: list[Call] = []
        self.busy: list[Handler] = []
        self.id = ProcessId(service=name, instance=ProcessName(name), incarnation=1)
        self.live = LockedRecorder(lambda: Recorder(process=self.id), clock=lambda: world.now)
        self.channels: dict[str, ChannelRecord] = {}
        self.program = Program(
            self.live,
            later=world.later,
            warn=world.warnings.append,
            workers=workers if told else None,
            needs_all=all_told,
        )


class World:
    """Everything that happens, by the dice."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.now = 0.0
        self.links: dict[tuple[str, str], deque[Sent]] = {}
        self.net: list[Callable[[], None]] = []
        self.put_off: list[Callable[[], None]] = []
        self.warnings: list[str] = []
        self.arrived: list[Call] = []
        """The calls that have reached their target's sidecar."""
        self.only_all = dice.random() < 0.4
        forwards = dice.choice((0.0, 1.0, 0.5))
        sizes = dice.choice(((1, 1, 2), (2, 3), (2, 3, 4)))
        self.rate = dice.choice((0.12, 0.05))
        self.apps = [
            App(
                f"p{index}", self, workers=dice.choice(sizes), told=dice.random() < 0.85,
                forwards=dice.random() < forwards, all_told=self.only_all and dice.random() < 0.5,
            )
            for index in range(dice.choice((2, 2, 3)))
        ]  # fmt: skip
        self.snapshots = 0
        self.pending: PendingSnapshot | None = None
        self.verifier = Verifier(again_seconds_min=0.0)
        self.verdicts: list[Verdict] = []
        self._traces = 0

    # -- truth ---------------------------------------------------------------------------------------------------------

    def root(self) -> None:
        """A client outside calls."""
        self._traces += 1
        call = Call(trace=b"trace%d" % self._traces, target=self.dice.choice(self.apps))
        self.net.append(lambda: self.reaches_target(call))

    def plan(self) -> list[tuple[str, list[App]]]:
        """What a handler will do."""
        steps = self.dice.choice((0, 0, 1, 1, 2))
        modes = ("all",) if self.only_all else ("all", "all", "first", "first and give up")
        return [
            (self.dice.choice(modes), [self.dice.choice(self.apps) for _ in range(self.dice.choice((1, 1, 1, 2)))])
            for _ in range(steps)
        ]

    def start_queued(self, app: App) -> None:
        while app.queue and len(app.busy) < app.workers:
            call = app.queue.pop(self.dice.randrange(len(app.queue)))
            call.state = "served"
            app.busy.append(Handler(app, call, self.plan(), self.dice.choice((1.0, 0.3, 0.02))))

    def step_of(self, handler: Handler) -> None:
        """An unblocked worker proceeds: it cancels the remaining calls, calls, or answers."""
        if handler.gives_up_the_rest:
            for call in handler.made:
                if call.state != "done":
                    self.give_up(call)
        handler.gives_up_the_rest = False
        if not handler.plan:
            self.answer(handler)
            return
        mode, targets = handler.plan.pop(0)
        handler.made = [Call(trace=handler.call.trace, target=target, maker=handler) for target in targets]
        handler.needs = len(targets) if mode == "all" else 1
        handler.gives_up_the_rest = mode == "first and give up"
        for call in handler.made:
            self.link(handler.app, "out", partial(self.leaves_maker, call))

    def answer(self, handler: Handler) -> None:
        app, call = handler.app, handler.call
        app.busy.remove(handler)
        if not call.given_up:
            call.state = "answered"
            self.link(app, "answers", lambda: self.leaves_target(call))
        self.start_queued(app)

    def give_up(self, call: Call) -> None:
        assert call.maker is not None
        call.given_up = True
        call.state = "done"
        self.link(call.maker.app, "out", lambda: self.given_up_at_sidecar(call))

    # -- what passes the sidecars --------------------------------------------------------------------------------------

    def leaves_maker(self, call: Call) -> None:
        assert call.maker is not None
        app, target = call.maker.app, call.target
        inbound = call.maker.call.inbound
        party = inbound.party if app.forwards and inbound is not None else ""
        channel = app.channels.setdefault(target.name, ChannelRecord(target.name))
        call.out, pair = app.program.calls("/s/M", channel, None, traces=(call.trace,), party=party)
        call.stamp = decode(pair[1])
        app.program.asked(call.out)
        self.net.append(lambda: self.reaches_target(call))

    def reaches_target(self, call: Call) -> None:
        target = call.target
        self.arrived.append(call)
        call.inbound = target.program.arrives("/s/M", call.stamp, None, (call.trace,))

        def arrives() -> None:
            if call.state == "travels":
                call.state = "queued"
                target.queue.append(call)
                self.start_queued(target)

        self.link(target, "calls", arrives)

    def leaves_target(self, call: Call) -> None:
        assert call.inbound is not None
        if call.inbound.over:
            return
        pair = call.target.program.ends(call.inbound)
        if call.maker is not None:
            self.net.append(lambda: self.answer_reaches_maker(call, None if pair is None else decode(pair[1])))

    def answer_reaches_maker(self, call: Call, stamp: Stamp | None) -> None:
        assert call.maker is not None
        assert call.out is not None
        if call.out.over:
            return
        app = call.maker.app
        app.program.answering(call.out)
        app.program.settles(call.out, stamp, in_doubt=False)

        def done() -> None:
            call.state = "done"

        self.link(app, "replies", done)

    def given_up_at_sidecar(self, call: Call) -> None:
        assert call.maker is not None
        assert call.out is not None
        call.maker.app.program.cancels(call.out)
        self.net.append(lambda: self.given_up_at_target(call))

    def given_up_at_target(self, call: Call) -> None:
        if call.inbound is None:  # it overtook its request: a connection that is reset
            call.state = "done"
            return
        call.target.program.leaves(call.inbound)

        def cancelled() -> None:
            if call in call.target.queue:
                call.target.queue.remove(call)

        self.link(call.target, "calls", cancelled)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.flush()
        self.snapshots += 1
        members = {app.id.instance: app.id for app in self.apps}
        self.pending = PendingSnapshot(
            snapshot=SnapshotId(self.snapshots), members=members, begun=self.now, begun_by="the dice"
        )
        for app in self.apps:
            self.net.append(partial(self.mark, app))

    def mark(self, app: App) -> None:
        report = app.live.marked(SnapshotId(self.snapshots))
        if report is not None:
            app.live.post(report)

    def collect(self) -> None:
        """Take what was reported; when all have, judge, and hold the verdict against the truth."""
        if self.pending is None:
            return
        for app in self.apps:
            while app.live.reports:
                assert self.pending.offer(app.live.reports.popleft()) is None
        if self.pending.missing():
            return
        assembled = self.pending.assembled(self.now)
        self.pending = None
        assert assembled.orphans == ()
        verdict = Deadlock().evaluate(self.looked_again(assembled).snapshot)
        self.verdicts.append(verdict)
        if verdict.holds is Holds.TRUE:
            served = self.stuck()
            queued = {call for call in self.arrived if call.state in {"travels", "queued"} and not self._comes(call, served)}
            stuck = {str(call.inbound.party) for call in served | queued if call.inbound is not None}
            assert set(verdict.remainder) <= stuck, f"{verdict.remainder} is called, {sorted(stuck)} is true"

    def looked_again(self, assembled: Assembled) -> Assembled:
        """The verification round: every sidecar answers at once, from its record."""
        programs = {app.id: app.program for app in self.apps}
        effects = self.verifier.suspected(assembled, suspicion_of(assembled.snapshot, with_idle=False), self.now)
        for effect in effects:
            if isinstance(effect, AskLook):
                effects += self.verifier.looked(effect.process, programs[effect.process].look(effect.request, ""), self.now)
        return next(effect.assembled for effect in effects if isinstance(effect, Verified))

    def stuck(self) -> set[Call]:
        """The calls that will never be answered: each is freed by what its server can still do."""
        served = {handler.call: handler for app in self.apps for handler in app.busy}
        stuck = set(served)
        while True:
            free = {call for call in stuck if self._goes_on(served[call], stuck)}
            if not free:
                return stuck
            stuck -= free

    def _goes_on(self, handler: Handler, stuck: set[Call]) -> bool:
        coming = sum(call.state == "done" or self._comes(call, stuck) for call in handler.made)
        return not handler.blocked or coming >= handler.needs

    def _comes(self, call: Call, stuck: set[Call]) -> bool:
        if call.state in {"answered", "done"}:
            return True
        if call.state == "served":
            return call not in stuck
        busy = call.target.busy
        return len(busy) < call.target.workers or any(handler.call not in stuck for handler in busy)

    # -- time ----------------------------------------------------------------------------------------------------------

    def later(self, _: float, do: Callable[[], None]) -> None:
        self.put_off.append(do)

    def link(self, app: App, name: str, happening: Callable[[], None]) -> None:
        self.links.setdefault((app.name, name), deque()).append(Sent(self.now, happening))

    def flush(self) -> None:
        """What programs have sent reaches their sidecars; then what was put off is looked at again."""
        self.deliver(self.now)
        put_off, self.put_off = self.put_off, []
        for do in put_off:
            do()

    def deliver(self, until: float) -> None:
        """What programs have sent up to ``until`` reaches their sidecars."""
        for (_, name), link in sorted(self.links.items()):
            while name in {"out", "answers"} and link and link[0].at <= until:
                link.popleft()()

    def step(self) -> bool:
        """One thing happens; False when nothing can."""
        self.now += SECONDS_A_STEP
        self.deliver(self.now - SETTLING_SECONDS)
        choices: list[Callable[[], Any]] = [link.popleft for link in self.links.values() if link]
        choices += [partial(self.net.pop, index) for index in range(len(self.net))]
        ready = [handler for app in self.apps for handler in app.busy if not handler.blocked]
        runners = [handler for handler in ready if self.dice.random() < handler.haste]
        choices += [partial(partial, self.step_of, handler) for handler in runners]
        if not choices:
            return bool(ready)
        self.dice.choice(choices)()()
        self.collect()
        return True

    def run(self) -> None:
        for _ in range(STEPS):
            if self.dice.random() < self.rate:
                self.root()
            if self.pending is None and self.dice.random() < 0.3:
                self.begin()
            self.step()
        while self.step():
            pass
        for _ in range(SNAPSHOTS_AT_THE_END):
            self.now += SETTLING_SECONDS
            self.begin()
            while self.step():
                pass


@pytest.mark.parametrize("part", range(4))
def test_no_false_deadlock_is_called(part: int) -> None:
    for seed in range(part * WORLDS // 4, (part + 1) * WORLDS // 4):
        try:
            World(seed).run()
        except AssertionError as breach:
            raise AssertionError(f"seed {seed}: {breach}") from breach


@pytest.mark.longer
def test_no_deadlock_is_denied_without_a_word() -> None:
    """A FALSE about a deadlock that has lasted is one of a sidecar that names its blind spots."""
    denied = 0
    for seed in range(WORLDS // 2):
        world = World(seed)
        world.run()
        world.now += max(UNKNOWN_SECONDS, UNACTED_SECONDS)
        world.begin()
        while world.step():
            pass
        if world.stuck() and world.verdicts[-1].holds is Holds.FALSE:
            denied += 1
            assert any(app.program.counts()["blind"] for app in world.apps), f"seed {seed}"
    assert denied < WORLDS // 10


@pytest.mark.soak
def test_in_many_more_worlds_no_false_deadlock_is_called() -> None:
    for seed in range(WORLDS, SOAK_WORLDS):
        World(seed).run()


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_every_deadlock_is_called_if_handlers_wait_for_all_and_parties_are_forwarded() -> None:
    found = 0
    for seed in range(WORLDS):
        world = World(seed)
        world.only_all = True
        for app in world.apps:
            app.forwards = True
            app.program = Program(
                app.live, later=world.later, warn=world.warnings.append,
                workers=app.workers, needs_all=True,
            )  # fmt: skip
        world.run()
        assert world.warnings == [], f"seed {seed}"
        holds = world.verdicts[-1].holds is Holds.TRUE
        assert holds == bool(world.stuck()), f"seed {seed}"
        found += holds
    assert found > WORLDS // 10
