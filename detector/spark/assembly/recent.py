"""What one worker remembers of the snapshots before: a report that says the same is not decoded again, nor resolved.

While most of a fleet's reports change, none of it is of use: then they are read as columns (:mod:`detector.assembly.columnar`).
It makes a result faster and no different: what is remembered is looked at as :mod:`detector.core.waits.resolved` says.
"""

from __future__ import annotations

from collections.abc import Sequence

from detector.assembly.records import report_of
from detector.core.waits.resolved import Resolved
from detector.service.grpc_api.report_reader import ReportReader, split
from stilltrue.protocol.report import Report

MEMBERS_MAX = 20_000
"""Of all fleets together; with more, everything is forgotten and learnt again."""
QUIET_SHARE_MIN = 0.9


class RecentReports:
    """Bounded by members; a restarted worker begins empty."""

    def __init__(self, members_max: int = MEMBERS_MAX) -> None:
        """``members_max``: the most members whose reports it remembers."""
        self._members_max = members_max
        self._readers: dict[bytes, ReportReader] = {}
        self._resolved: dict[str, Resolved] = {}
        self._said: dict[str, frozenset[int]] = {}
        """By fleet, hashes of what its last reports said."""

    def quiet(self, fleet: str, records: Sequence[bytes]) -> bool:
        """Whether most of these reports say what the fleet's last ones said."""
        found = map(split, (record[1:] for record in records))
        said = frozenset(hash((each.process, each.rest)) for each in found if each is not None)
        known = self._said.get(fleet, frozenset())
        self._said[fleet] = said if len(said) <= self._members_max else frozenset()
        return len(said & known) >= QUIET_SHARE_MIN * max(len(records), 1)

    def report(self, record: bytes) -> Report:
        """The report of a record. Raises as :func:`~detector.assembly.records.report_of`."""
        found = split(record[1:])
        if found is None:
            return report_of(record)
        reader = self._readers.get(found.process)
        if reader is None:
            if len(self._readers) >= self._members_max:
                self._readers.clear()
                self._resolved.clear()
            reader = self._readers[found.process] = ReportReader()
        again = reader.again(found)
        if again is not None:
            return again
        told = found.message()
        return report_of(record) if told is None else reader.decoded(told, found)

    def resolved(self, fleet: str) -> Resolved | None:
        """What the fleet's last snapshot came to."""
        return self._resolved.get(fleet)

    def keep(self, fleet: str, resolved: Resolved | None) -> None:
        """Remember what a snapshot came to."""
        if resolved is not None and len(resolved.parts) <= self._members_max:
            self._resolved[fleet] = resolved
