"""The plan of a stream: its settings, and the locations of its results and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from detector.analysis.assembly import STATE_REPORT_COLUMNS, WAIT_REPORT_COLUMNS
from detector.analysis.verdicts import WAIT_COLUMNS, columns_for
from detector.core.registry import PredicateSettings, find_predicates
from detector.spark.streaming.progress import Folder
from detector.spark.streaming.storage import Storage

GIVE_UP_SECONDS = 600.0
LATE_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """The settings of a stream.

    ``out``: a directory (absolute path) or URI for the results, which all workers can reach; ``state``: another one for the
    state, by default ``out``. ``give_up_seconds``, ``late_seconds``: see :mod:`detector.spark.streaming.bucket`. ``settings``:
    settings of the predicates, by name. ``bytes_per_batch_max`` limits an archive's files, ``rows_per_batch_max`` a detector's
    reports. The number of ``buckets`` is fixed by the first batch.
    """

    out: str
    state: str = ""
    predicates: tuple[str, ...] = ("deadlock", "gridlock")
    settings: Mapping[str, PredicateSettings] = field(default_factory=dict)
    give_up_seconds: float = GIVE_UP_SECONDS
    late_seconds: float = LATE_SECONDS
    headers_expected: bool = True
    bytes_per_batch_max: int = 32 * 2**20
    rows_per_batch_max: int = 500_000
    trigger_seconds: float = 1.0
    buckets: int = 8

    @property
    def folder(self) -> Folder:
        """The stream's state and results."""
        return Folder(state=self.state_storage, results=Storage(location=self.out))

    @property
    def state_storage(self) -> Storage:
        """The storage of the state."""
        return Storage(location=self.state or self.out, folder="_stream/state")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of ``reports`` that the predicates need."""
        about_waits = columns_for(find_predicates(self.predicates, self.settings)) == WAIT_COLUMNS
        return (*WAIT_REPORT_COLUMNS, *(() if about_waits else STATE_REPORT_COLUMNS))
