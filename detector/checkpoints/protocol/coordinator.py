"""The coordinator of one connected pipeline: when to take a point, who takes part, and when it is complete or aborted.

1. *Triggers.* A periodic point is due every ``interval_seconds``, if fewer than ``pending_max`` are in progress. A savepoint is
   taken on demand under its own name, regardless of other points, and kept forever.
2. *Plan.* The vertices that begin and those that must acknowledge are fixed when the point is triggered
   (:mod:`detector.checkpoints.graph.plan`).
3. *Completion.* A point is complete when all have acknowledged and the two ends of every channel agree. It subsumes older
   pending periodic points. The newest ``kept_max`` completed periodic points are kept.
4. *Abort.* A point is aborted after ``timeout_seconds``, when a vertex fails or declines, or when records contradict each
   other. An acknowledgement for a settled point is late; one for a point that never existed is unknown.
5. *End of sources.* An exhausted bounded source may end once a point that was triggered after its end is complete. When all
   sources are exhausted, final points are taken until one has no records in transit (in a loop): that one is the end. So the
   end of a loop is found by a snapshot, not by a time-out.
6. *Failure.* A failed vertex aborts all pending points of its pipeline; no point is triggered until it has restarted.

Pure: ``now`` (seconds) is an argument; every method returns the effects for the host to carry out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from detector.checkpoints.graph.graph import DataflowGraph
from detector.checkpoints.graph.plan import plan
from detector.checkpoints.protocol.points import (
    Acknowledgement,
    Begin,
    Completed,
    CompletedPoint,
    CoordinatorEffect,
    Drop,
    FailReason,
    GivenUp,
    Local,
    Over,
    PendingPoint,
    PointKind,
    Refusal,
    State,
    StopVertex,
)
from stilltrue.fifo import ChannelError, PendingSnapshot
from stilltrue.model import ProcessName, SnapshotId

Effects = tuple[CoordinatorEffect, ...]
_REMEMBERED_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When points are taken. With ``interval_seconds`` None, only on demand and at the end."""

    interval_seconds: float | None = 10.0
    pending_max: int = 1
    timeout_seconds: float = 600.0
    kept_max: int = 2

    def __post_init__(self) -> None:
        positive = self.timeout_seconds > 0 and (self.interval_seconds is None or self.interval_seconds > 0)
        if not positive or self.pending_max < 1 or self.kept_max < 1:
            raise ValueError("interval and timeout must be greater than 0, pending_max and kept_max at least 1")


class Coordinator:
    """Decides for the pipeline of the vertices ``pipeline``; ids continue after ``newest``."""

    def __init__(
        self,
        graph: DataflowGraph,
        pipeline: tuple[ProcessName, ...],
        schedule: Schedule,
        *,
        now: float,
        newest: SnapshotId = SnapshotId(0),
    ) -> None:
        self._graph = graph
        self._pipeline = pipeline
        self._schedule = schedule
        self._sources = frozenset(graph.sources()) & frozenset(pipeline)
        self._newest = newest
        self._due = None if schedule.interval_seconds is None else now + schedule.interval_seconds
        self._pending: dict[SnapshotId, PendingPoint] = {}
        self._over_ids: deque[SnapshotId] = deque(maxlen=_REMEMBERED_MAX)
        self._kept: deque[SnapshotId] = deque()
        self._names: set[str] = set()
        self._exhausted: set[ProcessName] = set()
        self._finished: dict[ProcessName, State] = {}
        self._latest: CompletedPoint | None = None
        self._recovering = False
        self._over = False

    @property
    def pending(self) -> tuple[SnapshotId, ...]:
        """The points being taken, oldest first."""
        return tuple(self._pending)

    @property
    def latest(self) -> CompletedPoint | None:
        """The newest completed point, from which a restart resumes."""
        return self._latest

    @property
    def over(self) -> bool:
        """Whether the pipeline has finished."""
        return self._over

    def ticks(self, now: float) -> Effects:
        """Time has passed: abort points that are too old, and trigger one that is due (rules 1 and 4)."""
        late = [p.id for p in self._pending.values() if now - p.triggered >= self._schedule.timeout_seconds]
        effects = tuple(effect for point in late for effect in self._give_up(point, FailReason.TIMED_OUT))
        if self._due is None or now < self._due or self._blocked() or self._full():
            return effects + self._final_if_due(now)
        assert self._schedule.interval_seconds is not None
        self._due = now + self._schedule.interval_seconds
        final = self._final_if_due(now)
        return effects + (final or self._trigger(PointKind.PERIODIC, "", now))

    def savepoint(self, name: str, now: float) -> Effects | Refusal:
        """Take a named point, which is kept forever (rule 1)."""
        if not name:
            raise ValueError("a savepoint needs a name")
        if blocked := self._blocked():
            return blocked
        if name in self._names:
            return Refusal.NAME_TAKEN
        self._names.add(name)
        return self._trigger(PointKind.SAVEPOINT, name, now)

    def acknowledged(self, record: Local, now: float) -> tuple[Acknowledgement, Effects]:
        """A vertex has recorded its state for a point (rules 3 and 4)."""
        pending = self._pending.get(record.snapshot)
        if pending is None:
            late = record.snapshot in self._over_ids and record.process in self._pipeline
            return (Acknowledgement.LATE if late else Acknowledgement.UNKNOWN), ()
        if record.process not in pending.plan.acknowledge:
            return Acknowledgement.UNKNOWN, ()
        if record.process not in pending.records.missing:
            return Acknowledgement.DUPLICATE, ()
        try:
            snapshot = pending.records.adds(record)
        except ChannelError:
            return Acknowledgement.ACCEPTED, self._give_up(pending.id, FailReason.INCONSISTENT)
        if snapshot is None:
            return Acknowledgement.ACCEPTED, ()
        return Acknowledgement.COMPLETED, self._complete(pending, snapshot, now)

    def declined(self, vertex: ProcessName, point: SnapshotId) -> Effects:
        """A vertex could not record its state for ``point``."""
        known = point in self._pending and vertex in self._pending[point].plan.acknowledge
        return self._give_up(point, FailReason.DECLINED) if known else ()

    def exhausted(self, source: ProcessName, now: float) -> Effects:
        """A bounded source has no more records (rule 5)."""
        self._exhausted.add(source)
        return self._final_if_due(now)

    def finished(self, vertex: ProcessName) -> Effects:
        """A vertex has finished: its final state is that of the newest completed point."""
        if self._latest is None or vertex in self._finished:
            return ()
        self._finished[vertex] = self._latest.snapshot
        waiting = [p.id for p in self._pending.values() if vertex in p.records.missing]
        return tuple(effect for point in waiting for effect in self._give_up(point, FailReason.VERTEX_FINISHED))

    def failed(self) -> Effects:
        """A vertex failed (rule 6). If the pipeline had finished, its final point was not stored, so it must finish again."""
        self._recovering, self._over = True, False
        return tuple(e for point in tuple(self._pending) for e in self._give_up(point, FailReason.VERTEX_FAILED))

    def restarted(self, now: float) -> None:
        """All vertices run again, from the latest completed point; sources must report again that they are exhausted."""
        self._recovering = False
        self._exhausted.clear()
        self._finished.clear()
        if self._schedule.interval_seconds is not None:
            self._due = now + self._schedule.interval_seconds

    def _blocked(self) -> Refusal | None:
        if self._over:
            return Refusal.OVER
        return Refusal.RECOVERING if self._recovering else None

    def _full(self) -> bool:
        periodic = sum(1 for one in self._pending.values() if one.kind is not PointKind.SAVEPOINT)
        return periodic >= self._schedule.pending_max

    def _final_if_due(self, now: float) -> Effects:
        """Trigger the final point, unless a point that was triggered with all sources exhausted is in progress."""
        done = self._exhausted | self._finished.keys()
        if not self._sources <= done or self._blocked():
            return ()
        if any(self._sources <= one.exhausted for one in self._pending.values()):
            return ()
        return self._trigger(PointKind.FINAL, "", now)

    def _trigger(self, kind: PointKind, name: str, now: float) -> Effects:
        self._newest = SnapshotId(self._newest + 1)
        made = plan(self._graph, self._pipeline, self._finished)
        self._pending[self._newest] = PendingPoint(
            id=self._newest,
            kind=kind,
            name=name,
            plan=made,
            triggered=now,
            exhausted=frozenset(self._exhausted | self._finished.keys()),
            records=PendingSnapshot(self._newest, made.topology),
        )
        return tuple(Begin(vertex=vertex, point=self._newest) for vertex in made.begin)

    def _complete(self, pending: PendingPoint, snapshot: State, now: float) -> Effects:
        self._forget(pending.id)
        point = self._completed(pending, snapshot, now)
        if self._latest is None or point.id > self._latest.id:
            self._latest = point
        older = [p.id for p in self._pending.values() if p.id < point.id and p.kind is not PointKind.SAVEPOINT]
        effects: Effects = (Completed(point=point),)
        effects += tuple(effect for one in older for effect in self._give_up(one, FailReason.SUBSUMED))
        effects += self._keep(point)
        if self._sources <= pending.exhausted and point.drained:
            self._over = True
            rest = tuple(e for one in tuple(self._pending) for e in self._give_up(one, FailReason.PIPELINE_OVER))
            return (*effects, *rest, Over(point=point))
        ending = sorted((pending.exhausted & self._sources) - self._finished.keys())
        if not self._sources <= pending.exhausted:
            for vertex in ending:
                self._finished[vertex] = snapshot
            effects += tuple(StopVertex(vertex=vertex) for vertex in ending)
        return effects + self._final_if_due(now)

    def _completed(self, pending: PendingPoint, snapshot: State, now: float) -> CompletedPoint:
        ended = {vertex: self._finished[vertex].states[vertex] for vertex in pending.plan.finished}
        states = {**snapshot.states, **ended}
        whole: State = type(snapshot)(
            snapshot=snapshot.snapshot,
            states={name: states[name] for name in sorted(states)},
            channels={one: messages for one, messages in snapshot.channels.items() if messages},
        )
        return CompletedPoint(
            id=pending.id,
            kind=pending.kind,
            name=pending.name,
            triggered=pending.triggered,
            completed=now,
            snapshot=whole,
            finished=pending.plan.finished,
        )

    def _keep(self, point: CompletedPoint) -> Effects:
        if point.kind is PointKind.SAVEPOINT:
            return ()
        self._kept.append(point.id)
        return (Drop(point=self._kept.popleft()),) if len(self._kept) > self._schedule.kept_max else ()

    def _give_up(self, point: SnapshotId, reason: FailReason) -> Effects:
        pending = self._forget(point)
        self._names.discard(pending.name)
        return (GivenUp(point=point, reason=reason),)

    def _forget(self, point: SnapshotId) -> PendingPoint:
        self._over_ids.append(point)
        return self._pending.pop(point)
