"""Reassembles snapshot after snapshot from amended reports; what is amended as it was last time is not resolved again.

A deadlock stays, and with it what a second look showed: the amended reports are other objects than those of the last snapshot,
but mostly equal. Their parts are shared then, so that :mod:`detector.core.waits.resolved` sees that nothing has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from detector.core.protocol.assembler import Assembled, reassembled
from stilltrue.model import PartyName, ProcessName
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import PartyLook

AMENDED = ("waits", "made", "served", "pools")
"""What a look may change in a report."""


class Reassembly:
    """One step of the rounds, over snapshots."""

    def __init__(self) -> None:
        self._last: Assembled | None = None

    def of(self, before: Assembled, reports: Mapping[ProcessName, Report], looks: Mapping[PartyName, PartyLook]) -> Assembled:
        """As :func:`~detector.core.protocol.assembler.reassembled`."""
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
    """``report``, with those parts of a ``known`` one that are equal."""
    if known is None:
        return report
    parts = {name: (getattr(report, name), getattr(known, name)) for name in AMENDED}
    equal = {name: other for name, (own, other) in parts.items() if own is not other and own == other}
    return replace(report, **equal) if equal else report
