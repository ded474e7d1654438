"""Members' clocks: converts the times in a report to the detector's clock.

A process cuts after the snapshot began and before it ended. A cut that its clock puts outside that time tells that the clock is
wrong, and by how much at least; the moments of such a report are shifted as if it had cut when the snapshot began. That is the
earliest it can have been: no deadline is put later than it is, so a gridlock never lasts longer than it is said to.
"""

from __future__ import annotations

from dataclasses import replace

from stilltrue.protocol.report import LocalWait, Report


def ahead_seconds(report: Report, begun: float, ended: float) -> float:
    """How far the clock of a report's process is ahead of the detector's; 0 while nothing proves it wrong."""
    return 0.0 if begun <= report.cut_at <= ended else report.cut_at - begun


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
