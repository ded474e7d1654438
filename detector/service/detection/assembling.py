"""From a snapshot whose reports are there to its verdicts; large ones are assembled while the event loop goes on."""

from __future__ import annotations

import asyncio

from detector.core.protocol.assembler import Assembled
from detector.core.protocol.initiator import Assemble, Initiator, SoFar
from detector.core.waits.resolved import Resolved
from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.service.detection.evaluator import WorkerThread
from detector.service.detection.snapshot_verdicts import Judged, SnapshotVerdicts
from detector.service.metrics import Metrics
from stilltrue.model import ProcessName, SnapshotId

APART_MIN = 100
"""A snapshot of so many members is assembled on a thread of its own: it takes up to a millisecond a member."""
STORY_LINES_MAX = 20
"""How much of what happened to a snapshot goes into the log when reports of it were set aside."""


class Assembling:
    """Every method is called on the event loop."""

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
        """``initiator`` says what has ended, and is told what came of it.

        ``remote``: snapshots are assembled and judged by another process; here it is only known who reported.
        """
        self._remote = remote
        self._initiator = initiator
        self._verdicts = verdicts
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._worker = WorkerThread("stilltrue-assembler")
        self._first_worker = WorkerThread("stilltrue-first")
        self._resolved_first: Resolved | None = None
        self._first: dict[SnapshotId, asyncio.Task[Judged | None]] = {}
        """By snapshot, what has been reported so far, being judged before the rest."""
        self._heavy = 0
        """How many snapshots with heavy reports are assembled or judged now."""
        self.missed: frozenset[ProcessName] = frozenset()
        """The members that did not report to the newest snapshot."""

    def judge_first(self, part: SoFar) -> None:
        """Judge what has been reported so far; only what is TRUE is said."""
        before = self._first.get(part.part.id)
        self._first[part.part.id] = asyncio.get_running_loop().create_task(self._judge_first(part, before))

    async def _judge_first(self, part: SoFar, before: asyncio.Task[Judged | None] | None) -> Judged | None:
        try:
            if before is not None:
                await before
            earlier = self._resolved_first
            assembled = await self._first_worker.submit(lambda: part.assembled(earlier))
            self._resolved_first = assembled.resolved
            return await self._verdicts.judge_first(assembled, part.tickets)
        except Exception as error:  # noqa: BLE001 - as in `judge`
            self._log.failure("snapshot failed", error, snapshot=part.part.id)
            return None

    async def judge(self, ended: Assemble) -> None:
        """Assemble a large snapshot, and judge it. Never raises: one that cannot be assembled must not end the service.

        Where that takes long for the size of some reports, and it goes on for another snapshot, this one is kept without them
        once its questions are answered.
        """
        first = await self._judged_first(ended.pending.id)
        heavy = bool(ended.pending.heavy)
        if heavy and self._heavy and first is not None and not self._verdicts.awaited(ended.tickets):
            self._initiator.settled(first.assembled.settled)
            self._metrics.finished(first.assembled)
            self._verdicts.keep(first.assembled, first.verdicts, pinned=False)
            return
        self._heavy += heavy
        try:
            await self._judge(ended)
        finally:
            self._heavy -= heavy

    async def judge_small(self, assembled: Assembled, tickets: tuple[int, ...]) -> None:
        """Judge one that was assembled at once."""
        if assembled.snapshot.ref.id is not None:
            await self._judged_first(assembled.snapshot.ref.id)
        await self._verdicts.judge(assembled, tickets)

    async def _judged_first(self, snapshot: SnapshotId) -> Judged | None:
        """What is said before the rest is not said after it."""
        first = self._first.get(snapshot)
        if first is None:
            return None
        try:
            return await first
        finally:
            del self._first[snapshot]

    async def _judge(self, ended: Assemble) -> None:
        try:
            if self._remote:
                assembled = ended.pending.attended(ended.at)
            else:
                assembled = await self._worker.submit(ended.assembled)
            self._initiator.assembled(assembled, self._clock.now())
            self.take(assembled)
        except Exception as error:  # noqa: BLE001 - as above
            self._log.failure("snapshot failed", error, snapshot=ended.pending.id)
        else:
            await self._verdicts.judge(assembled, ended.tickets)

    def take(self, assembled: Assembled) -> None:
        """A snapshot is assembled."""
        self._metrics.finished(assembled)
        self.missed = frozenset(assembled.snapshot.missing)
        if assembled.orphans:
            self._set_aside(assembled)

    def shown(self, assembled: Assembled) -> None:
        """What came of a snapshot elsewhere."""
        self._initiator.settled(assembled.settled)
        if assembled.orphans:
            self._set_aside(assembled)

    def _set_aside(self, assembled: Assembled) -> None:
        """Reports that contradict others (rule 5) are counted, and logged with what happened to their snapshot."""
        ref = assembled.snapshot.ref
        story = [] if ref.id is None else self._initiator.story(ref.id)[-STORY_LINES_MAX:]
        for name, orphan in sorted(assembled.snapshot.set_aside.items()):
            self._metrics.report_refused("contradictory")
            self._log.failure("report set aside", process=name, snapshot=ref.id, orphan=orphan, story="; ".join(story))

    def close(self) -> None:
        """Assemble nothing more."""
        self._worker.close()
        self._first_worker.close()
