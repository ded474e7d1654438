"""Converts the times in a report from its process's clock to the detector's.

A process cuts after the snapshot begins and before it ends. If its clock puts the cut outside that interval, the clock is
wrong, and we know a lower bound on the error. The times in such a report are shifted as if it had cut when the snapshot
began. That is the earliest possible cut, so no deadline is placed later than it really is, and a gridlock is never reported to
end too late.

The shift is rounded up to a multiple of ``STEP_SECONDS``. Otherwise it would vary between snapshots with the time that the
marker took; rounded, a report with the same content keeps the very same parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stilltrue.model import ProcessName
from stilltrue.protocol.report import LocalWait, Report

STEP_SECONDS = 0.5
"""Rounding places a deadline earlier by at most this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shifted:
    """A report as received (``came``), how far its clock is ahead, and the report converted to the detector's clock."""

    came: Report
    ahead: float
    report: Report

    def again(self, report: Report, ahead: float) -> Report | None:
        """``report`` converted by reusing the parts of this conversion; None unless it has the same parts and offset."""
        came, found = self.came, self.report
        if ahead != self.ahead or report.made is not came.made or report.served is not came.served:
            return None
        if report.waits is not came.waits:
            return None
        return replace(report, made=found.made, served=found.served, waits=found.waits)


def ahead_seconds(report: Report, begun: float, ended: float) -> float:
    """How far a process's clock is ahead of the detector's, rounded up; 0 unless its report proves the clock wrong."""
    return ahead_at(report.cut_at, begun, ended)


def ahead_at(cut_at: float, begun: float, ended: float) -> float:
    """Like :func:`ahead_seconds`, for a process that says it cut at ``cut_at``."""
    if begun <= cut_at <= ended:
        return 0.0
    return math.ceil((cut_at - begun) / STEP_SECONDS) * STEP_SECONDS


def shifted(
    reports: Mapping[ProcessName, Report], begun: float, ended: float, known: Mapping[ProcessName, Shifted]
) -> dict[ProcessName, Shifted]:
    """Convert those of ``reports`` whose clocks are wrong. ``known``: the conversions of an earlier snapshot, for reuse."""
    found = {}
    for name, report in reports.items():
        ahead = ahead_seconds(report, begun, ended)
        if not ahead:
            continue
        same = known[name].again(report, ahead) if name in known else None
        found[name] = Shifted(came=report, ahead=ahead, report=same or in_detector_time(report, begun, ended))
    return found


def in_detector_time(report: Report, begun: float, ended: float) -> Report:
    """``report`` with the times of its waits and calls by the detector's clock (``cut_at`` is unchanged)."""
    ahead = ahead_seconds(report, begun, ended)
    if not ahead:
        return report
    return replace(
        report,
        made=tuple(replace(call, since=_less(call.since, ahead), deadline=_less(call.deadline, ahead)) for call in report.made),
        served=tuple(
            replace(call, since=_less(call.since, ahead), deadline=_less(call.deadline, ahead)) for call in report.served
        ),
        waits=tuple(_shifted(wait, ahead) for wait in report.waits),
    )


def _shifted(wait: LocalWait, ahead: float) -> LocalWait:
    return replace(wait, since=_less(wait.since, ahead), deadline=_less(wait.deadline, ahead))


def _less(moment: float | None, ahead: float) -> float | None:
    return None if moment is None else moment - ahead
