"""The result of an analysis: small enough for memory, written as ``summary.json`` and shown by the report."""

from __future__ import annotations

from dataclasses import dataclass

from detector.analysis.incidents import PastIncident
from detector.analysis.risk import Risk
from detector.archive.local_state_rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What an archive told. Times in seconds since the epoch; rows are those of the result tables."""

    location: str
    engine: str
    predicates: tuple[str, ...]
    snapshots: int
    reports: int
    begun: float
    ended: float
    period_seconds: float
    answers: dict[str, dict[str, int]]
    incidents: tuple[PastIncident, ...]
    near_misses: tuple[Row, ...]
    coverage: tuple[Row, ...]
    blocked: tuple[Row, ...]
    pools: tuple[Row, ...]
    locks: tuple[Row, ...]
    holding: tuple[Row, ...]
    risks: tuple[Risk, ...]
    orphans: int
    skewed: tuple[Row, ...]
    silent: tuple[Row, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def near_said(self) -> str:
        """What the near misses are called, after their number: at how many sets of processes they were."""
        places = len({tuple(row["processes"]) for row in self.near_misses})
        where = f" in {places} place{'s' * (places > 1)}" if places else ""
        return f"near miss{'es' * (len(self.near_misses) != 1)}{where}"
