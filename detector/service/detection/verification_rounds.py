"""The verification rounds in the service: sends the verifier's requests to the agents, and awaits the result.

What the verifier is told while a large snapshot is in a round, it is told on a thread of its own: that takes up to tenths of a
second. Else it is told at once. Only one of the two at a time ever calls it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from detector.core.look.suspicion import Suspicion, suspicion_of
from detector.core.look.verification import AskLook, Interim, RoundEffect, Verified, Verifier
from detector.core.protocol.assembler import ENTRIES_PER_MEMBER, Assembled
from detector.core.snapshot import Snapshot
from detector.ops.clock import Clock
from detector.ops.patience import Patience
from detector.service.detection.evaluator import WorkerThread
from detector.service.detection.membership.members import Roster
from detector.service.metrics import Metrics
from detector.service.settings import Settings
from stilltrue.model import ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.requests.look import Look

Early = Callable[[Interim], None]
"""Called when a round lasts, with what it has shown so far."""
Step = Callable[[float], list[RoundEffect]]
APART_MIN = 100
"""The rounds of a snapshot of so many processes, or with as many waits, are on a thread of its own."""


class Rounds:
    """Every method is called on the event loop."""

    def __init__(
        self, *, roster: Roster, clock: Clock, settings: Settings, metrics: Metrics, patience: Patience | None = None
    ) -> None:
        """``roster``: which members can be reached and can look."""
        self._patience = patience or Patience()
        self._roster = roster
        self._clock = clock
        self._metrics = metrics
        self._verifier = Verifier(
            give_up_seconds=settings.look_give_up_seconds, again_seconds_min=settings.look_again_seconds_min
        )
        self._waiting: dict[SnapshotId, asyncio.Future[Verified]] = {}
        self._early: dict[SnapshotId, Early] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._untold: deque[Step] = deque()
        self._telling: asyncio.Task[None] | None = None
        self._large: set[SnapshotId] = set()
        self._worker = WorkerThread("stilltrue-verifier")

    async def of_waits(self, assembled: Assembled, early: Early = lambda _: None) -> Assembled:
        """The snapshot after the round about parties that seem stuck; unchanged if there are none."""
        suspicion = await self._suspicion(assembled.snapshot, leaning=False)
        return await self._of(assembled, suspicion, early) if suspicion else assembled

    async def of_idleness(self, assembled: Assembled) -> Assembled:
        """The same after a second round, about processes that seem idle."""
        suspicion = await self._suspicion(assembled.snapshot, leaning=True)
        return await self._of(assembled, Suspicion(processes=suspicion.processes))

    def looked(self, process: ProcessId, look: Look) -> None:
        """A process reports what it saw."""
        self._step(lambda now: self._verifier.looked(process, look, now))

    def unable(self, process: ProcessName, reason: str) -> None:
        """A process has gone: no round waits for it."""
        if self._waiting:
            self._step(lambda now: self._verifier.unable(process, reason, now))

    def close(self) -> None:
        """End all rounds with what is known so far."""
        self._step(lambda _: self._verifier.ticked(math.inf))
        if self._timer is not None:
            self._timer.cancel()

    def stop(self) -> None:
        """End the thread, once the results are there."""
        self._worker.close()

    async def _of(self, assembled: Assembled, suspicion: Suspicion, early: Early = lambda _: None) -> Assembled:
        snapshot = assembled.snapshot.ref.id
        if snapshot is None:
            return assembled
        future: asyncio.Future[Verified] = asyncio.get_running_loop().create_future()
        self._waiting[snapshot], self._early[snapshot] = future, early
        if _weight(assembled.snapshot) >= APART_MIN:
            self._large.add(snapshot)
        begun = time.monotonic()
        self._step(lambda now: self._verifier.suspected(assembled, suspicion, now))
        verified = await future
        self._metrics.verified(time.monotonic() - begun, given_up=verified.given_up)
        return verified.assembled

    async def _suspicion(self, snapshot: Snapshot, *, leaning: bool) -> Suspicion:
        if _weight(snapshot) < APART_MIN:
            return suspicion_of(snapshot, leaning=leaning)
        return await self._worker.submit(lambda: suspicion_of(snapshot, leaning=leaning))

    def _step(self, happening: Step) -> None:
        """Tell the verifier what happened, and carry out its answer."""
        self._untold.append(happening)
        if self._telling is not None:
            return
        if self._large:
            self._telling = asyncio.get_running_loop().create_task(self._tell_apart())
            return
        now = self._clock.now()
        while self._untold:
            self._carry_out(self._untold.popleft()(now))
        self._arm()

    async def _tell_apart(self) -> None:
        """All that has happened, in its order, on the thread; what happens meanwhile is next."""
        try:
            while self._untold:
                now, steps = self._clock.now(), list(self._untold)
                self._untold.clear()
                self._carry_out(await self._worker.submit(partial(_told, steps, now)))
        except Exception as error:  # noqa: BLE001 - whoever awaits a round is told
            self._fail(error)
        self._telling = None
        self._arm()

    def _carry_out(self, effects: list[RoundEffect]) -> None:
        for effect in effects:
            match effect:
                case AskLook() as ask:
                    self._ask(ask)
                case Interim(assembled=assembled) as interim:
                    if assembled.snapshot.ref.id is not None:
                        self._early[assembled.snapshot.ref.id](interim)
                case Verified(assembled=assembled) as verified:
                    if assembled.snapshot.ref.id is not None:
                        self._large.discard(assembled.snapshot.ref.id)
                        self._early.pop(assembled.snapshot.ref.id)
                        self._waiting.pop(assembled.snapshot.ref.id).set_result(verified)

    def _fail(self, error: Exception) -> None:
        self._large.clear()
        for future in self._waiting.values():
            future.set_exception(error)
        self._waiting.clear()
        self._early.clear()

    def _ask(self, ask: AskLook) -> None:
        name, snapshot = ask.process.instance, ask.request.snapshot
        reason = self._roster.send_look(ask)
        if reason:
            self._untold.append(lambda now: self._verifier.unable(name, reason, now, snapshot))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = min(self._patience.due(self._verifier.due()), self._verifier.interim_due())
        if at < math.inf:
            delay = max(0.001, at - self._clock.now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick, at)

    def _tick(self, at: float) -> None:
        """Who has not answered is late, unless the loop was held up."""
        now = self._clock.now()
        self._patience.held(now - at, now)
        if now >= self._patience.due(at):
            self._step(self._verifier.ticked)
        self._step(self._verifier.interim)


def _weight(snapshot: Snapshot) -> int:
    """How large it is, in ordinary members."""
    return len(snapshot.processes) + len(snapshot.waits) // ENTRIES_PER_MEMBER


def _told(steps: Sequence[Step], now: float) -> list[RoundEffect]:
    return [effect for step in steps for effect in step(now)]
