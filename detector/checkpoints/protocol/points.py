"""The nouns of checkpointing: points pending and completed, records, why a trigger is refused and a point abandoned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from detector.checkpoints.graph.plan import Plan
from stilltrue.fifo import ChannelSnapshot, LocalRecord, PendingSnapshot
from stilltrue.model import ProcessName, SnapshotId

Value = None | bool | int | float | str | bytes | list["Value"] | dict[str, "Value"]
"""What states and records are made of: JSON's values, and bytes."""


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

    TOO_MANY_PENDING = "as many points are pending as may be"
    NAME_TAKEN = "a savepoint of that name exists or is under way"
    RECOVERING = "the pipeline is being restarted"
    OVER = "the pipeline is over"


class FailReason(Enum):
    """Why a pending point was given up."""

    TIMED_OUT = "not everybody acknowledged in time"
    VERTEX_FAILED = "a vertex failed"
    VERTEX_FINISHED = "a vertex came to its end before it acknowledged"
    DECLINED = "a vertex could not record itself"
    INCONSISTENT = "the records contradict each other"
    SUBSUMED = "a newer point completed first"
    PIPELINE_OVER = "the pipeline came to its end first"


class Acknowledgement(Enum):
    """What an acknowledgement was worth. A late one is for a point that is over; an unknown one for a point that never was."""

    ACCEPTED = "accepted"
    COMPLETED = "accepted, and the last"
    DUPLICATE = "already had"
    LATE = "the point is over"
    UNKNOWN = "no such point, or no member of it"


@dataclass(slots=True, kw_only=True)
class PendingPoint:
    """A point that is under way."""

    id: SnapshotId
    kind: PointKind
    name: str
    plan: Plan
    triggered: float
    exhausted: frozenset[ProcessName]
    records: PendingSnapshot[Value, Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedPoint:
    """A point from which a pipeline can be restored; times are seconds on the coordinator's clock.

    ``states`` has every vertex of the pipeline, those that had finished before included; ``channels`` only what was in transit.
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
        """Every vertex's state."""
        return self.snapshot.states

    @property
    def drained(self) -> bool:
        """Whether nothing at all was in transit."""
        return not any(self.snapshot.channels.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Bid ``vertex`` begin ``point``."""

    vertex: ProcessName
    point: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """``point`` is completed; keep it, and tell the vertices."""

    point: CompletedPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """``point`` is abandoned; vertices may drop what they keep for it."""

    point: SnapshotId
    reason: FailReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """``point`` is older than what is kept; it may be deleted."""

    point: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """``vertex`` is exhausted and its end is safe in a completed point: it may end."""

    vertex: ProcessName


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """All bounded sources are done, nothing is in transit, and ``point`` holds the end: the pipeline is over."""

    point: CompletedPoint


CoordinatorEffect = Begin | Completed | GivenUp | Drop | Finish | Over
