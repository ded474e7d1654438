"""Checkpoints of dataflow graphs by asynchronous barriers, stored in files and restored at the same or another parallelism.

This module is the public API; README.md has an example, and docs/checkpoints.md explains the algorithms.

- Define: :class:`DataflowGraph` of :class:`Stage` and :class:`Edge` (:class:`Routing`, :class:`Sharing`), and a :class:`Job`
  with the code of each stage (:class:`Source`, :class:`Operator`, :class:`Commits`). - Ready-made operators:
  :class:`SplitSource`, :class:`Step`, :class:`KeyedFold`, :class:`Collected`. - Run: :class:`LocalRuntime` with
  :class:`PipelineSettings` and a :class:`Schedule`. - Recover: :func:`region` returns the vertices that restart with a failed
  one, under a :class:`Scheme`. - Store and restore: :class:`PointDirectory`; :func:`rescaled` for another parallelism.
"""

from __future__ import annotations

from detector.checkpoints.graph.graph import DataflowGraph, Edge, Routing, Sharing, Stage, StageName
from detector.checkpoints.graph.job import Commits, Emit, Job, Operator, Source, VertexContext
from detector.checkpoints.graph.region import Region, Scheme, region
from detector.checkpoints.protocol.coordinator import Schedule
from detector.checkpoints.protocol.points import CompletedPoint, Value
from detector.checkpoints.runtime.operators import Collected, KeyedFold, SplitSource, Step
from detector.checkpoints.runtime.pipeline import PipelineFailedError, PipelineSettings, PointFailedError
from detector.checkpoints.runtime.runtime import LocalRuntime
from detector.checkpoints.storage.directory import PointDirectory
from detector.checkpoints.storage.files import SnapshotFileError
from detector.checkpoints.storage.rescale import RescaleError, rescaled
from detector.checkpoints.storage.snapshot_codec import read_channels, write_channels

__all__ = [
    "Collected",
    "Commits",
    "CompletedPoint",
    "DataflowGraph",
    "Edge",
    "Emit",
    "Job",
    "KeyedFold",
    "LocalRuntime",
    "Operator",
    "PipelineFailedError",
    "PipelineSettings",
    "PointDirectory",
    "PointFailedError",
    "Region",
    "RescaleError",
    "Routing",
    "Schedule",
    "Scheme",
    "Sharing",
    "SnapshotFileError",
    "Source",
    "SplitSource",
    "Stage",
    "StageName",
    "Step",
    "Value",
    "VertexContext",
    "read_channels",
    "region",
    "rescaled",
    "write_channels",
]
