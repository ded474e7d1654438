"""A small, real runtime for dataflow graphs: every vertex an asyncio task, every channel a bounded FIFO queue.

Connected pipelines have nothing to do with each other: each has its own coordinator, its own points and its own restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from detector.checkpoints.graph.job import Job
from detector.checkpoints.protocol.points import CompletedPoint, Value
from detector.checkpoints.runtime.keeper import PointStore
from detector.checkpoints.runtime.pipeline import Pipeline, PipelineSettings, RecorderOf, barriers
from stilltrue.model import ProcessName


class LocalRuntime:
    """Runs a job on this process's event loop.

    ``stores`` gives each pipeline, by its first vertex, the place where its points are kept. ``restored`` holds points of
    this very graph to start from, at most one a pipeline (for another
    parallelism see :mod:`detector.checkpoints.storage.rescale`).
    ValueError if one fits no pipeline.
    """

    def __init__(
        self,
        job: Job,
        settings: PipelineSettings | None = None,
        *,
        stores: Callable[[ProcessName], PointStore] | None = None,
        restored: Iterable[CompletedPoint] = (),
        recorder_of: RecorderOf = barriers,
    ) -> None:
        points = {tuple(sorted(point.states)): point for point in restored}
        self.pipelines: dict[ProcessName, Pipeline] = {}
        for names in job.graph.pipelines():
            self.pipelines[names[0]] = Pipeline(
                job,
                names,
                settings or PipelineSettings(),
                store=None if stores is None else stores(names[0]),
                restored=points.pop(names, None),
                recorder_of=recorder_of,
            )
        if points:
            raise ValueError(f"no pipeline of this graph has just the vertices {', '.join(next(iter(points)))}")

    async def run(self) -> Mapping[ProcessName, Value]:
        """Run until all bounded sources are done; the final states. A pipeline that fails for good leaves the others alone.

        Raises PipelineFailedError (of the first that failed) only when all pipelines have come to their end.
        """
        ends = await asyncio.gather(*(one.run() for one in self.pipelines.values()), return_exceptions=True)
        states: dict[ProcessName, Value] = {}
        for end in ends:
            if isinstance(end, BaseException):
                raise end
            states.update(end)
        return states

    async def savepoint(self, name: str) -> tuple[CompletedPoint, ...]:
        """Take a savepoint of every pipeline under ``name``; PointFailedError if one is refused or aborted."""
        return tuple(await asyncio.gather(*(one.savepoint(name) for one in self.pipelines.values())))

    def fail(self, vertex: ProcessName, error: Exception) -> None:
        """Let a vertex fail now; only its own pipeline restarts (ValueError if there is no such vertex)."""
        for one in self.pipelines.values():
            if vertex in one.names:
                one.fail(vertex, error)
                return
        raise ValueError(f"there is no vertex {vertex}")
