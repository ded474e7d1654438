"""The result of an analysis: fits in memory, is written as ``summary.json`` and shown in the report."""

from __future__ import annotations

from dataclasses import dataclass, field

from detector.analysis.findings.incidents import PastIncident
from detector.analysis.findings.risk import Risk
from detector.archive.rows.local_state_rows import Row
from detector.core.counting import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The result of an analysis. Times in seconds since the epoch; rows as in the result tables."""

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
    """Reports that snapshots counted but no file has; counts and times leave them out, verdicts do not."""
    headless: tuple[tuple[str, int], ...] = ()
    """Archive and number of snapshots with reports but no row in ``snapshots``; they have no verdict."""
    absent: tuple[tuple[str, int, int], ...] = ()
    """Runs of snapshots with neither a row nor a report (archive, first and last number) in a gap long enough for them."""

    waits: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Who waited for what in each incident, by its id, and which parties to abort."""

    def lost(self) -> tuple[str, ...]:
        """Return sentences about data that the archive should have but does not."""
        notes = []
        if self.headless:
            numbers = ", ".join(str(number) for _, number in self.headless[:3]) + ", ..." * (len(self.headless) > 3)
            some = counted(len(self.headless), "snapshot")
            notes.append(f"no verdict on {some} with reports but no row in snapshots ({numbers}): a file is missing")
        if self.reports_absent:
            reports = counted(self.reports_absent, "report")
            notes.append(f"no file has {reports} that the detector received: times, pools, locks and clocks leave them out")
        if self.absent:
            count = sum(last - first + 1 for _, first, last in self.absent)
            runs = [str(first) if first == last else f"{first} to {last}" for _, first, last in self.absent]
            named = ", ".join(runs[:3]) + ", ..." * (len(runs) > 3)
            some = counted(count, "snapshot")
            notes.append(f"neither a row nor a report of {some} ({named}): a file is missing, or the detector was not running")
        return tuple(notes)

    @property
    def near_misses_text(self) -> str:
        """The words that follow the number of near misses: the noun, and the number of different sets of processes."""
        places = len({tuple(row["processes"]) for row in self.near_misses})
        where = f" in {places} place{'s' * (places > 1)}" if places else ""
        return f"near miss{'es' * (len(self.near_misses) != 1)}{where}"
