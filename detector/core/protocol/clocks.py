"""Members' clocks: converts the times in a report to the detector's clock.

A process cuts after the snapshot began and before it ended. A cut that its clock puts outside that time tells that the clock is
wrong, and by how much at least; the moments of such a report are shifted as if it had cut when the snapshot began. That is the
earliest it can have been: no deadline is put later than it is, so a gridlock never lasts longer than it is said to.

The shift is rounded up to a multiple of ``STEP_SECONDS``. Without that it would differ from one snapshot to the next by
the time that the marker took; with it, a report that says the same comes to the very same parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stilltrue.model import ProcessName
from stilltrue.protocol.report import LocalWait, Report

STEP_SECONDS = 0.5
"""By so much at most a deadline is put earlier than the snapshot's own time would put it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shifted:
    """A report as it came, how far its clock was ahead, and what it said by the detector's clock."""

    came: Report
    ahead: float
    report: Report

    def again(self, report: Report, ahead: float) -> Report | None:
        """What ``report`` says by the detector's clock, if it says the same as this one: with the very same parts."""
        came, found = self.came, self.report
        if ahead != self.ahead or report.made is not came.made or report.served is not came.served:
            return None
        if report.waits is not came.waits:
            return None
        return replace(report, made=found.made, served=found.served, waits=found.waits)


def ahead_seconds(report: Report, begun: float, ended: float) -> float:
    """How far the clock of a report's process is ahead of the detector's, rounded up; 0 while nothing proves it wrong."""
    return ahead_at(report.cut_at, begun, ended)


def ahead_at(cut_at: float, begun: float, ended: float) -> float:
    """The same of a process that cut at this moment, as it says."""
    if begun <= cut_at <= ended:
        return 0.0
    return math.ceil((cut_at - begun) / STEP_SECONDS) * STEP_SECONDS


def shifted(
    reports: Mapping[ProcessName, Report], begun: float, ended: float, known: Mapping[ProcessName, Shifted]
) -> dict[ProcessName, Shifted]:
    """Those of ``reports`` whose clocks are wrong, by the detector's clock. ``known``: those of an earlier snapshot."""
    found = {}
    for name, report in reports.items():
        ahead = ahead_seconds(report, begun, ended)
        if not ahead:
            continue
        same = known[name].again(report, ahead) if name in known else None
        found[name] = Shifted(came=report, ahead=ahead, report=same or in_detector_time(report, begun, ended))
    return found


def in_detector_time(report: Report, begun: float, ended: float) -> Report:
    """``report`` with the moments of its waits and calls by the detector's clock (``cut_at`` stays)."""
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
