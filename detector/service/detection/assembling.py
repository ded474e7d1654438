"""Assembles ended snapshots and has them evaluated; large ones are assembled off the event loop."""

from __future__ import annotations

import asyncio

from detector.core.protocol.assembler import Assembled
from detector.core.protocol.initiator import Assemble, EvaluatePartial, Initiator
from detector.core.waits.resolved import Resolved
from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.service.detection.evaluator import WorkerThread
from detector.service.detection.snapshot_verdicts import Evaluated, SnapshotVerdicts
from detector.service.metrics import Metrics
from stilltrue.model import ProcessName, SnapshotId

THREAD_MEMBERS_MIN = 100
"""Snapshots of at least this many members are assembled on a thread, which takes up to a millisecond per member."""
STORY_LINES_MAX = 20
"""Lines of a snapshot's story that are logged when reports of it were set aside."""


class Assembling:
    """Assembles snapshots. Every method is called on the event loop."""

    def __init__(
        self,
        *,
        initiator: Initiator,
        verdicts: SnapshotVerdicts,
        clock: Clock,
        metrics: Metrics,
        log: Log,
        remote: bool = False,
    ) -> None:
        """``initiator`` is given the results.

        ``remote``: another process assembles and evaluates; this one only knows which members reported.
        """
        self._remote = remote
        self._initiator = initiator
        self._verdicts = verdicts
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._worker = WorkerThread("stilltrue-assembler")
        self._partial_worker = WorkerThread("stilltrue-partial")
        self._resolved_partial: Resolved | None = None
        self._partial: dict[SnapshotId, asyncio.Task[Evaluated | None]] = {}
        """Evaluations of partial snapshots."""
        self._heavy = 0
        """The number of snapshots with heavy reports in progress."""
        self.missed: frozenset[ProcessName] = frozenset()
        """The members missing from the newest snapshot."""

    def evaluate_partial(self, part: EvaluatePartial) -> asyncio.Task[Evaluated | None]:
        """Evaluate a partial snapshot; only TRUE verdicts are published."""
        before = self._partial.get(part.part.id)
        evaluation = self._partial[part.part.id] = asyncio.get_running_loop().create_task(self._evaluate_partial(part, before))
        return evaluation

    async def _evaluate_partial(self, part: EvaluatePartial, before: asyncio.Task[Evaluated | None] | None) -> Evaluated | None:
        try:
            if before is not None:
                await before
            earlier = self._resolved_partial
            assembled = await self._partial_worker.submit(lambda: part.assembled(earlier))
            self._resolved_partial = assembled.resolved
            return await self._verdicts.evaluate_partial(assembled, part.tickets)
        except Exception as error:  # noqa: BLE001 - as in `evaluate`
            self._log.failure("snapshot failed", error, snapshot=part.part.id)
            return None

    async def evaluate(self, ended: Assemble) -> None:
        """Assemble and evaluate a large snapshot. Never raises: a failed assembly must not stop the service.

        If it has heavy reports while another such snapshot is in progress, and its questions have been answered, it is stored
        without them.
        """
        first = await self._partial_result(ended.pending.id)
        heavy = bool(ended.pending.heavy)
        if heavy and self._heavy and first is not None and not self._verdicts.has_pending(ended.tickets):
            self._initiator.settled(first.assembled.settled)
            self._metrics.finished(first.assembled)
            self._verdicts.keep(first.assembled, first.verdicts, pinned=False)
            return
        self._heavy += heavy
        try:
            await self._evaluate(ended)
        finally:
            self._heavy -= heavy

    async def evaluate_assembled(self, assembled: Assembled, tickets: tuple[int, ...]) -> None:
        """Evaluate a snapshot that is already assembled."""
        if assembled.snapshot.ref.id is not None:
            await self._partial_result(assembled.snapshot.ref.id)
        await self._verdicts.evaluate(assembled, tickets)

    async def _partial_result(self, snapshot: SnapshotId) -> Evaluated | None:
        """Wait for the partial evaluation, so that its answer is never published after the full one."""
        first = self._partial.get(snapshot)
        if first is None:
            return None
        try:
            return await first
        finally:
            del self._partial[snapshot]

    async def _evaluate(self, ended: Assemble) -> None:
        try:
            if self._remote:
                assembled = ended.pending.attendance(ended.at)
            else:
                assembled = await self._worker.submit(ended.assembled)
            self._initiator.assembled(assembled, self._clock.now())
            self.record(assembled)
        except Exception as error:  # noqa: BLE001 - as above
            self._log.failure("snapshot failed", error, snapshot=ended.pending.id)
        else:
            await self._verdicts.evaluate(assembled, ended.tickets)

    def record(self, assembled: Assembled) -> None:
        """Record an assembled snapshot."""
        self._metrics.finished(assembled)
        self.missed = frozenset(assembled.snapshot.missing)
        if assembled.orphans:
            self._set_aside(assembled)

    def record_remote(self, assembled: Assembled) -> None:
        """Record the outcome of a snapshot that another process assembled."""
        self._initiator.settled(assembled.settled)
        if assembled.orphans:
            self._set_aside(assembled)

    def _set_aside(self, assembled: Assembled) -> None:
        """Count and log reports that contradict others (protocol rule 5), with their snapshot's story."""
        ref = assembled.snapshot.ref
        story = [] if ref.id is None else self._initiator.story(ref.id)[-STORY_LINES_MAX:]
        for name, orphan in sorted(assembled.snapshot.set_aside.items()):
            self._metrics.report_refused("contradictory")
            self._log.failure("report set aside", process=name, snapshot=ref.id, orphan=orphan, story="; ".join(story))

    def close(self) -> None:
        """Stop starting assemblies."""
        self._worker.close()
        self._partial_worker.close()
