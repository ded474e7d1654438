"""A small runtime for dataflow graphs: vertices are asyncio tasks, and channels are bounded FIFO queues.

Connected pipelines are independent: each has its own coordinator, points and restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from detector.checkpoints.graph.job import Job
from detector.checkpoints.protocol.points import CompletedPoint, Value
from detector.checkpoints.runtime.pipeline import Pipeline, PipelineSettings, RecorderOf, barriers
from detector.checkpoints.runtime.point_writer import PointStore
from stilltrue.model import ProcessName


class LocalRuntime:
    """Runs a job on the current event loop.

    ``stores`` returns the store for a pipeline's points, given its first vertex. ``restored`` has points of the same graph to
    start from, at most one per pipeline (for another parallelism see :mod:`detector.checkpoints.storage.rescale`). Raises
    ValueError if one matches no pipeline.
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
            raise ValueError(f"no pipeline of this graph has exactly the vertices {', '.join(next(iter(points)))}")

    async def run(self) -> Mapping[ProcessName, Value]:
        """Run until all bounded sources are done; return the final states. A failed pipeline does not affect the others.

        Raises the PipelineFailedError of the first failed pipeline once all pipelines have ended.
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
        """Make a vertex fail; only its own pipeline restarts (ValueError if there is no such vertex)."""
        for one in self.pipelines.values():
            if vertex in one.names:
                one.fail(vertex, error)
                return
        raise ValueError(f"there is no vertex {vertex}")
