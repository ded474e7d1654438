"""The verification rounds in the service: sends the verifier's requests to the agents, and awaits the result.

While a large snapshot is in a round, the verifier's steps run on a separate thread, since each takes up to tenths of a second;
otherwise they run at once. Only one of the two calls the verifier at a time.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from detector.core.protocol.assembler import ENTRIES_PER_MEMBER, Assembled
from detector.core.snapshot import Snapshot
from detector.core.verification.suspicion import Suspicion, suspicion_of
from detector.core.verification.verifier import AskLook, Interim, RoundEffect, Verified, Verifier
from detector.ops.clock import Clock
from detector.ops.deadline_extension import DeadlineExtension
from detector.service.detection.evaluator import WorkerThread
from detector.service.detection.membership.members import Roster
from detector.service.metrics import Metrics
from detector.service.settings import Settings
from stilltrue.model import ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.requests.look import Look

OnInterim = Callable[[Interim], None]
"""Called during a long round with its interim result."""
Step = Callable[[float], list[RoundEffect]]
THREAD_WEIGHT_MIN = 100
"""Rounds of snapshots of at least this weight run on a separate thread."""


class Rounds:
    """Runs verification rounds. Every method is called on the event loop."""

    def __init__(
        self, *, roster: Roster, clock: Clock, settings: Settings, metrics: Metrics, extension: DeadlineExtension | None = None
    ) -> None:
        """``roster``: the members to ask."""
        self._extension = extension or DeadlineExtension()
        self._roster = roster
        self._clock = clock
        self._metrics = metrics
        self._verifier = Verifier(
            give_up_seconds=settings.look_give_up_seconds, again_seconds_min=settings.look_again_seconds_min
        )
        self._waiting: dict[SnapshotId, asyncio.Future[Verified]] = {}
        self._on_interim: dict[SnapshotId, OnInterim] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._pending_steps: deque[Step] = deque()
        self._running: asyncio.Task[None] | None = None
        self._large: set[SnapshotId] = set()
        self._worker = WorkerThread("stilltrue-verifier")

    async def verify_waits(self, assembled: Assembled, on_interim: OnInterim = lambda _: None) -> Assembled:
        """Verify the parties that seem stuck; returns the snapshot unchanged if there are none."""
        suspicion = await self._suspicion(assembled.snapshot, with_idle=False)
        return await self._verify(assembled, suspicion, on_interim) if suspicion else assembled

    async def verify_idleness(self, assembled: Assembled) -> Assembled:
        """Verify the processes that seem idle, in a second round."""
        suspicion = await self._suspicion(assembled.snapshot, with_idle=True)
        return await self._verify(assembled, Suspicion(processes=suspicion.processes))

    def looked(self, process: ProcessId, look: Look) -> None:
        """Take a process's look."""
        self._step(lambda now: self._verifier.looked(process, look, now))

    def unable(self, process: ProcessName, reason: str) -> None:
        """Stop waiting for a process that is gone."""
        self._step(lambda now: self._verifier.unable(process, reason, now))

    def close(self) -> None:
        """End all rounds with the looks received so far."""
        self._step(lambda _: self._verifier.ticked(math.inf))
        if self._timer is not None:
            self._timer.cancel()

    def stop(self) -> None:
        """Stop the thread after the queued steps."""
        self._worker.close()

    async def _verify(self, assembled: Assembled, suspicion: Suspicion, on_interim: OnInterim = lambda _: None) -> Assembled:
        snapshot = assembled.snapshot.ref.id
        if snapshot is None:
            return assembled
        future: asyncio.Future[Verified] = asyncio.get_running_loop().create_future()
        self._waiting[snapshot], self._on_interim[snapshot] = future, on_interim
        if _weight(assembled.snapshot) >= THREAD_WEIGHT_MIN:
            self._large.add(snapshot)
        begun = time.monotonic()
        self._step(lambda now: self._verifier.suspected(assembled, suspicion, now))
        verified = await future
        self._metrics.verified(time.monotonic() - begun, given_up=verified.given_up)
        return verified.assembled

    async def _suspicion(self, snapshot: Snapshot, *, with_idle: bool) -> Suspicion:
        if _weight(snapshot) < THREAD_WEIGHT_MIN:
            return suspicion_of(snapshot, with_idle=with_idle)
        return await self._worker.submit(lambda: suspicion_of(snapshot, with_idle=with_idle))

    def _step(self, step: Step) -> None:
        """Pass an event to the verifier and carry out its effects."""
        self._pending_steps.append(step)
        if self._running is not None:
            return
        if self._large or any(_weight(late.snapshot) >= THREAD_WEIGHT_MIN for late in self._verifier.to_complete()):
            self._running = asyncio.get_running_loop().create_task(self._run_on_thread())
            return
        now = self._clock.now()
        while self._pending_steps:
            self._carry_out(self._pending_steps.popleft()(now))
        self._arm()

    async def _run_on_thread(self) -> None:
        """Run the pending steps on the thread, in order, including those added meanwhile."""
        try:
            while self._pending_steps:
                now, steps = self._clock.now(), list(self._pending_steps)
                self._pending_steps.clear()
                self._carry_out(await self._worker.submit(partial(_run_steps, steps, now)))
        except Exception as error:  # noqa: BLE001 - fails the rounds in progress
            self._fail(error)
        self._running = None
        self._arm()

    def _carry_out(self, effects: list[RoundEffect]) -> None:
        for effect in effects:
            match effect:
                case AskLook() as ask:
                    self._ask(ask)
                case Interim(assembled=assembled) as interim:
                    if assembled.snapshot.ref.id is not None:
                        self._on_interim[assembled.snapshot.ref.id](interim)
                case Verified(assembled=assembled) as verified:
                    if assembled.snapshot.ref.id is not None:
                        self._large.discard(assembled.snapshot.ref.id)
                        self._on_interim.pop(assembled.snapshot.ref.id)
                        self._waiting.pop(assembled.snapshot.ref.id).set_result(verified)

    def _fail(self, error: Exception) -> None:
        self._large.clear()
        for future in self._waiting.values():
            future.set_exception(error)
        self._waiting.clear()
        self._on_interim.clear()

    def _ask(self, ask: AskLook) -> None:
        name, snapshot = ask.process.instance, ask.request.snapshot
        reason = self._roster.send_look(ask)
        if reason:
            self._pending_steps.append(lambda now: self._verifier.unable(name, reason, now, snapshot))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = min(self._extension.due(self._verifier.due()), self._verifier.interim_due())
        if at < math.inf:
            delay = max(0.001, at - self._clock.now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick, at)

    def _tick(self, at: float) -> None:
        """Let the verifier act on the time: processes that have not answered are late, unless the loop was blocked."""
        now = self._clock.now()
        self._extension.held(now - at, now)
        if now >= self._extension.due(at):
            self._step(self._verifier.ticked)
        self._step(self._verifier.interim)


def _weight(snapshot: Snapshot) -> int:
    """The size of a snapshot, in ordinary members."""
    return len(snapshot.processes) + len(snapshot.waits) // ENTRIES_PER_MEMBER


def _run_steps(steps: Sequence[Step], now: float) -> list[RoundEffect]:
    return [effect for step in steps for effect in step(now)]
