"""The verification rounds in the service: sends the verifier's requests to the agents, and awaits the result."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

from detector.core.look.verification import AskLook, RoundEffect, Suspicion, Verified, Verifier, suspicion_of
from detector.core.protocol.assembler import Assembled
from detector.ops.clock import Clock
from detector.ops.patience import Patience
from detector.service.detection.membership.members import Roster
from detector.service.metrics import Metrics
from detector.service.settings import Settings
from stilltrue.model import ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.look import Look

Step = Callable[[float], list[RoundEffect]]


class Rounds:
    """Every method is called on the event loop."""

    def __init__(
        self, *, roster: Roster, clock: Clock, settings: Settings, metrics: Metrics, patience: Patience | None = None
    ) -> None:
        """``roster``: which members can be reached and can look."""
        self._patience = patience or Patience()
        self._roster = roster
        self._clock = clock
        self._give_up_seconds = settings.look_give_up_seconds
        self._metrics = metrics
        self._verifier = Verifier(
            give_up_seconds=settings.look_give_up_seconds, again_seconds_min=settings.look_again_seconds_min
        )
        self._waiting: dict[SnapshotId, asyncio.Future[Assembled]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def of_waits(self, assembled: Assembled) -> Assembled:
        """The snapshot after the round about parties that seem stuck; unchanged if there are none."""
        suspicion = suspicion_of(assembled.snapshot, leaning=False)
        return await self._of(assembled, suspicion) if suspicion else assembled

    async def of_idleness(self, assembled: Assembled) -> Assembled:
        """The same after a second round, about processes that seem idle."""
        suspicion = suspicion_of(assembled.snapshot, leaning=True)
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

    async def _of(self, assembled: Assembled, suspicion: Suspicion) -> Assembled:
        snapshot = assembled.snapshot.ref.id
        if snapshot is None:
            return assembled
        future: asyncio.Future[Assembled] = asyncio.get_running_loop().create_future()
        self._waiting[snapshot] = future
        begun = time.monotonic()
        self._step(lambda now: self._verifier.suspected(assembled, suspicion, now))
        verified = await future
        self._metrics.verified(time.monotonic() - begun, self._give_up_seconds)
        return verified

    def _step(self, happening: Step) -> None:
        """Tell the verifier what happened now, and carry out its answer."""
        now = self._clock.now()
        effects = deque(happening(now))
        while effects:
            match effects.popleft():
                case AskLook() as ask:
                    effects += self._ask(ask, now)
                case Verified(assembled=assembled):
                    if assembled.snapshot.ref.id is not None:
                        self._waiting.pop(assembled.snapshot.ref.id).set_result(assembled)
        self._arm()

    def _ask(self, ask: AskLook, now: float) -> list[RoundEffect]:
        name = ask.process.instance
        member = self._roster.get(name)
        if member is None or member.process != ask.process or member.stream is None:
            return self._verifier.unable(name, f"{name} is not connected", now, ask.request.snapshot)
        if not member.looks:
            agent = member.agent or "unknown"
            return self._verifier.unable(
                name, f"the agent of {name} ({agent}) is too old to look again", now, ask.request.snapshot
            )
        member.stream.send_look(ask.request)
        return []

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._verifier.due()
        if due < math.inf:
            at = self._patience.due(due)
            delay = max(0.001, at - self._clock.now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick, at)

    def _tick(self, at: float) -> None:
        """Who has not answered is late, unless the loop was held up."""
        now = self._clock.now()
        self._patience.held(now - at, now)
        if now < self._patience.due(at):
            self._arm()
        else:
            self._step(self._verifier.ticked)
