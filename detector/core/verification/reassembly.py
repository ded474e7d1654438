"""Reassembles successive snapshots from amended reports without resolving equal amendments again.

A deadlock persists, and so do the results of its second looks: the amended reports are new objects, but mostly equal to those
of the last snapshot. Sharing the equal parts lets :mod:`detector.core.waits.resolved` see that nothing has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from detector.core.protocol.assembler import Assembled, reassembled
from stilltrue.model import PartyName, ProcessName
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import PartyLook

AMENDED = ("waits", "made", "served", "pools")
"""The parts of a report that a look may change."""


class Reassembly:
    """Reassembles snapshots at one step of the verification, reusing that step's last result."""

    def __init__(self) -> None:
        self._last: Assembled | None = None

    def of(self, before: Assembled, reports: Mapping[ProcessName, Report], looks: Mapping[PartyName, PartyLook]) -> Assembled:
        """Like :func:`~detector.core.protocol.assembler.reassembled`."""
        last = self._last
        if last is None or last.absent != before.absent:
            self._last = reassembled(before, reports, looks)
        else:
            same = {
                name: report if report is before.reports[name] else shared(report, last.reports.get(name))
                for name, report in reports.items()
            }
            self._last = reassembled(before, same, looks, earlier=last.resolved)
        return self._last


def shared(report: Report, known: Report | None) -> Report:
    """``report``, using the parts of ``known`` where they are equal."""
    if known is None:
        return report
    parts = {name: (getattr(report, name), getattr(known, name)) for name in AMENDED}
    equal = {name: other for name, (own, other) in parts.items() if own is not other and own == other}
    return replace(report, **equal) if equal else report
