"""The result of an analysis: small enough for memory, written as ``summary.json`` and shown by the report."""

from __future__ import annotations

from dataclasses import dataclass, field

from detector.analysis.findings.incidents import PastIncident
from detector.analysis.findings.risk import Risk
from detector.archive.rows.local_state_rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The results of an analysis. Times in seconds since the epoch; rows are those of the result tables."""

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
    reports_absent: int = 0
    """Reports that the snapshots' rows say were there, and that no file has: counts and times miss them, verdicts do not."""
    headless: tuple[tuple[str, int], ...] = ()
    """Archive and number of the snapshots that have reports and no row in ``snapshots``: there is no verdict on them."""

    waits: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What the detector said of each incident, by its id: who waited for what, and whom to abort."""

    def lost(self) -> tuple[str, ...]:
        """What the archive should have and has not, in sentences."""
        notes = []
        if self.headless:
            some = f"{len(self.headless)} snapshot{'s' * (len(self.headless) > 1)}"
            numbers = ", ".join(str(number) for _, number in self.headless[:3]) + ", ..." * (len(self.headless) > 3)
            notes.append(f"no verdict on {some} with reports but no row in snapshots ({numbers}): a file is missing")
        if self.reports_absent:
            some = f"{self.reports_absent} report{'s' * (self.reports_absent > 1)}"
            notes.append(f"{some} that the detector had are in no file: times, pools, locks and clocks do not count them")
        return tuple(notes)

    @property
    def near_misses_text(self) -> str:
        """The noun for the near misses, and in how many sets of processes they were."""
        places = len({tuple(row["processes"]) for row in self.near_misses})
        where = f" in {places} place{'s' * (places > 1)}" if places else ""
        return f"near miss{'es' * (len(self.near_misses) != 1)}{where}"
