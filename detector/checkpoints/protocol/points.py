"""The types of checkpointing: pending and completed points, records, effects, reasons for refusals and aborts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from detector.checkpoints.graph.plan import PointPlan
from stilltrue.fifo import ChannelSnapshot, LocalRecord, PendingSnapshot
from stilltrue.model import ProcessName, SnapshotId

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]
"""Values of states and records: JSON values and bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a dataflow: its value, and the key by which it was routed, if any."""

    value: Value
    key: str | None = None


Local = LocalRecord[Value, Record]
State = ChannelSnapshot[Value, Record]


class PointKind(Enum):
    """Why a point was triggered."""

    PERIODIC = "periodic"
    SAVEPOINT = "savepoint"
    FINAL = "final"


class Refusal(Enum):
    """Why no point was triggered."""

    NAME_TAKEN = "a savepoint of that name exists or is being taken"
    RECOVERING = "the pipeline is being restarted"
    OVER = "the pipeline has finished"


class FailReason(Enum):
    """Why a pending point was aborted."""

    TIMED_OUT = "not all vertices acknowledged in time"
    VERTEX_FAILED = "a vertex failed"
    VERTEX_FINISHED = "a vertex finished before it acknowledged"
    DECLINED = "a vertex could not record its state"
    INCONSISTENT = "the records are inconsistent"
    SUBSUMED = "a newer point completed first"
    PIPELINE_OVER = "the pipeline finished first"


class Acknowledgement(Enum):
    """The result of an acknowledgement."""

    ACCEPTED = "accepted"
    COMPLETED = "accepted, and the last"
    DUPLICATE = "received before"
    LATE = "the point is already settled"
    UNKNOWN = "no such point, or not a member of it"


@dataclass(slots=True, kw_only=True)
class PendingPoint:
    """A point being taken."""

    id: SnapshotId
    kind: PointKind
    name: str
    plan: PointPlan
    triggered: float
    exhausted: frozenset[ProcessName]
    records: PendingSnapshot[Value, Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedPoint:
    """A point from which a pipeline can be restored; times are seconds on the coordinator's clock.

    ``states`` has every vertex of the pipeline, including finished ones; ``channels`` has only records in transit.
    """

    id: SnapshotId
    kind: PointKind
    name: str
    triggered: float
    completed: float
    snapshot: State
    finished: tuple[ProcessName, ...] = ()

    @property
    def states(self) -> Mapping[ProcessName, Value]:
        """The state of every vertex."""
        return self.snapshot.states

    @property
    def drained(self) -> bool:
        """Whether nothing was in transit."""
        return not any(self.snapshot.channels.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Tell ``vertex`` to begin ``point``."""

    vertex: ProcessName
    point: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """``point`` is complete: store it and notify the vertices."""

    point: CompletedPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """``point`` is aborted: vertices may discard its data."""

    point: SnapshotId
    reason: FailReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """``point`` is no longer retained and may be deleted."""

    point: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class StopVertex:
    """``vertex`` is exhausted, and its final state is in a completed point: it may stop."""

    vertex: ProcessName


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The pipeline has finished: sources exhausted, nothing in transit, and ``point`` holds the final state."""

    point: CompletedPoint


CoordinatorEffect = Begin | Completed | GivenUp | Drop | StopVertex | Over
