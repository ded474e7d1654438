"""Runs one connected pipeline: its vertices as asyncio tasks, its coordinator, its restarts."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from detector.checkpoints.graph.graph import DataflowGraph, index_of
from detector.checkpoints.graph.job import Commits, Job, VertexContext
from detector.checkpoints.graph.router import Router
from detector.checkpoints.protocol.barriers import BarrierRecorder
from detector.checkpoints.protocol.coordinator import Coordinator, Effects, Schedule
from detector.checkpoints.protocol.points import (
    Acknowledgement,
    Begin,
    Completed,
    CompletedPoint,
    Drop,
    FailReason,
    GivenUp,
    Local,
    Over,
    Record,
    Refusal,
    StopVertex,
    Value,
)
from detector.checkpoints.runtime.inbox import BeginPoint, FinishVertex, GiveUpPoint, Inbox, PointCompleted
from detector.checkpoints.runtime.point_writer import Keeper, PointStore
from detector.checkpoints.runtime.vertex import Vertex
from stilltrue.fifo import ChannelRecorder
from stilltrue.model import ProcessName, SnapshotId

_LOG = logging.getLogger(__name__)

RecorderOf = Callable[[DataflowGraph, ProcessName], ChannelRecorder[Value, Record]]


class PipelineFailedError(RuntimeError):
    """A pipeline failed more often than its limit of restarts; the cause is the last failure."""


class PointFailedError(RuntimeError):
    """A savepoint was refused or aborted; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """The settings of a pipeline; ``remembered_max`` bounds its lists of completed and of aborted points."""

    schedule: Schedule = field(default_factory=Schedule)
    channel_records_max: int = 256
    back_records_max: int = 100_000
    restarts_max: int = 3
    remembered_max: int = 16
    tick_seconds: float = 0.005


def barriers(graph: DataflowGraph, vertex: ProcessName) -> ChannelRecorder[Value, Record]:
    """Return a recorder for asynchronous barriers."""
    incoming, outgoing = graph.topology.incoming(vertex), graph.topology.outgoing(vertex)
    return BarrierRecorder(vertex, incoming=incoming, outgoing=outgoing, back=graph.back)


class Pipeline:
    """Runs ``vertices`` (one connected pipeline of ``job``) until all its bounded sources are done."""

    def __init__(
        self,
        job: Job,
        vertices: tuple[ProcessName, ...],
        settings: PipelineSettings,
        *,
        store: PointStore | None = None,
        restored: CompletedPoint | None = None,
        recorder_of: RecorderOf = barriers,
    ) -> None:
        self.names = vertices
        self.completed: deque[CompletedPoint] = deque(maxlen=settings.remembered_max)
        self.completed_count: int = 0
        self.given_up: deque[tuple[SnapshotId, FailReason]] = deque(maxlen=settings.remembered_max)
        self.late: int = 0
        self.restarts: int = 0
        self.vertices: dict[ProcessName, Vertex] = {}
        self._job, self._settings = job, settings
        self._restored, self._recorder_of = restored, recorder_of
        self._coordinator: Coordinator | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._outcome: asyncio.Future[CompletedPoint | BaseException] | None = None
        self._savepoints: dict[SnapshotId, asyncio.Future[CompletedPoint]] = {}
        self._keeper = Keeper(store, kept=self._kept, failed=self._settle)
        self._last: SnapshotId | None = None
        self._durable: SnapshotId | None = None

    async def run(self) -> Mapping[ProcessName, Value]:
        """Run to the end; return the final states. Raises PipelineFailedError if it fails too often."""
        newest = self._restored.id if self._restored is not None else SnapshotId(0)
        schedule = self._settings.schedule
        self._coordinator = Coordinator(self._job.graph, self.names, schedule, now=_now(), newest=newest)
        while True:
            try:
                outcome = await self._attempt(self._coordinator.latest or self._restored)
            finally:
                await self._stop_tasks()
                self._fail_savepoints("the pipeline stopped before it was durable")
            if isinstance(outcome, CompletedPoint):
                return outcome.states
            self._handle_failure(outcome)

    async def savepoint(self, name: str) -> CompletedPoint:
        """Take a savepoint and wait for it; PointFailedError if it is refused or aborted."""
        if self._coordinator is None:
            raise PointFailedError("the pipeline is not running")
        answer = self._coordinator.savepoint(name, _now())
        if isinstance(answer, Refusal):
            raise PointFailedError(f"savepoint {name} was refused: {answer.value}")
        waiting: asyncio.Future[CompletedPoint] = asyncio.get_running_loop().create_future()
        self._savepoints[self._coordinator.pending[-1]] = waiting
        self._apply(answer)
        return await waiting

    def fail(self, vertex: ProcessName, error: Exception) -> None:
        """Make ``vertex`` fail as if its operator had raised ``error``."""
        if vertex not in self.names:
            raise ValueError(f"there is no vertex {vertex} in this pipeline")
        self._settle(error)

    def acknowledged(self, record: Local) -> None:
        """A vertex has recorded its state."""
        result, effects = self._expect_coordinator().acknowledged(record, _now())
        self.late += result is Acknowledgement.LATE
        self._apply(effects)

    def declined(self, vertex: ProcessName, point: SnapshotId) -> None:
        """A vertex could not record its state."""
        self._apply(self._expect_coordinator().declined(vertex, point))

    def exhausted(self, vertex: ProcessName) -> None:
        """A source has no more records."""
        self._apply(self._expect_coordinator().exhausted(vertex, _now()))

    def finished(self, vertex: ProcessName) -> None:
        """A vertex has ended."""
        self._apply(self._expect_coordinator().finished(vertex))

    async def _attempt(self, point: CompletedPoint | None) -> CompletedPoint | BaseException:
        """Run from ``point`` until the final point is durable or something fails."""
        self._outcome = asyncio.get_running_loop().create_future()
        self._build(point)
        self._tasks = [asyncio.create_task(one.run(), name=name) for name, one in self.vertices.items()]
        for task in self._tasks:
            task.add_done_callback(self._task_done)
        while not self._outcome.done():
            await asyncio.wait({self._outcome}, timeout=self._settings.tick_seconds)
            if not self._outcome.done():
                self._apply(self._expect_coordinator().ticks(_now()))
        return self._outcome.result()

    def _build(self, point: CompletedPoint | None) -> None:
        graph, settings = self._job.graph, self._settings
        inboxes = {
            name: Inbox(
                graph.topology.incoming(name),
                back=graph.back,
                records_max=settings.channel_records_max,
                back_records_max=settings.back_records_max,
            )
            for name in self.names
        }
        self.vertices = {name: self._vertex(name, inboxes) for name in self.names}
        if point is None:
            return
        for name, state in point.states.items():
            self.vertices[name].made.restore(state)
        for on, records in point.snapshot.channels.items():
            self.vertices[on.source].restored(on, len(records))
            inboxes[on.target].restore(on, records)

    def _vertex(self, name: ProcessName, inboxes: Mapping[ProcessName, Inbox]) -> Vertex:
        graph = self._job.graph
        stage = graph.stage_of[name]
        parallelism = next(one.parallelism for one in graph.stages if one.name == stage)
        return Vertex(
            name,
            made=self._job.make[stage](VertexContext(stage=stage, index=index_of(name), parallelism=parallelism)),
            recorder=self._recorder_of(graph, name),
            regular=frozenset(graph.topology.incoming(name)) - graph.back,
            inbox=inboxes[name],
            router=Router(self._job, name),
            outboxes={one: inboxes[one.target] for one in graph.topology.outgoing(name)},
            watcher=self,
        )

    def _apply(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Begin(vertex=vertex, point=id_):
                    self.vertices[vertex].inbox.command(BeginPoint(id_))
                case Completed(point=point):
                    self.completed.append(point)
                    self.completed_count += 1
                    self._keeper.keep(point)
                case GivenUp(point=id_, reason=reason):
                    self._aborted(id_, reason)
                case Drop(point=id_):
                    self._keeper.drop(id_)
                case StopVertex(vertex=vertex):
                    self.vertices[vertex].inbox.command(FinishVertex())
                case Over(point=point):
                    self._last = point.id
                    self._end_if_durable(point)
                case _ as never:
                    assert_never(never)

    def _kept(self, point: CompletedPoint) -> None:
        """``point`` is durable: sinks may commit, and its waiters resume."""
        self._durable = point.id
        for vertex in self.vertices.values():
            vertex.inbox.command(PointCompleted(point))
        waiting = self._savepoints.pop(point.id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(point)
        self._end_if_durable(point)

    def _end_if_durable(self, point: CompletedPoint) -> None:
        if not self._last == point.id == self._durable:
            return
        for vertex in self.vertices.values():
            if isinstance(vertex.made, Commits):
                vertex.made.committed(point)  # directly, since the vertices stop before they take another command
        self._settle(point)

    def _aborted(self, point: SnapshotId, reason: FailReason) -> None:
        self.given_up.append((point, reason))
        for vertex in self.vertices.values():
            vertex.inbox.command(GiveUpPoint(point))
        waiting = self._savepoints.pop(point, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(PointFailedError(f"the savepoint was aborted: {reason.value}"))

    def _fail_savepoints(self, why: str) -> None:
        for waiting in self._savepoints.values():
            if not waiting.done():
                waiting.set_exception(PointFailedError(f"the savepoint was aborted: {why}"))
        self._savepoints.clear()

    def _handle_failure(self, error: BaseException) -> None:
        """Abort pending points and prepare a restart; raise if there were too many."""
        coordinator = self._expect_coordinator()
        self._apply(coordinator.failed())
        if self.restarts == self._settings.restarts_max:
            text = f"the pipeline of {self.names[0]} failed {self.restarts + 1} times, the last time with {error!r}"
            raise PipelineFailedError(text) from error
        self.restarts += 1
        _LOG.warning("pipeline restarts first_vertex=%s restarts=%d error=%r", self.names[0], self.restarts, error)
        coordinator.restarted(_now())

    def _task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._settle(error)

    def _settle(self, outcome: CompletedPoint | BaseException) -> None:
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(outcome)

    async def _stop_tasks(self) -> None:
        await self._keeper.settled()
        for task in self._tasks:
            task.remove_done_callback(self._task_done)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def _expect_coordinator(self) -> Coordinator:
        assert self._coordinator is not None, "the pipeline is not running"
        return self._coordinator


def _now() -> float:
    return asyncio.get_running_loop().time()
