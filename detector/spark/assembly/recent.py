"""A worker's cache of earlier snapshots, so that unchanged reports are neither decoded nor resolved again.

It does not help while most of a fleet's reports change; then they are read as columns (:mod:`detector.assembly.columnar`).
Results do not depend on it: :mod:`detector.core.waits.resolved` says what is reused.
"""

from __future__ import annotations

from collections.abc import Sequence

from detector.assembly.records import report_of
from detector.core.waits.resolved import Resolved
from detector.service.grpc_api.report_reader import ReportReader, split
from stilltrue.protocol.report import Report

MEMBERS_MAX = 20_000
"""Most members, of all fleets together; beyond that the cache is emptied."""
QUIET_SHARE_MIN = 0.9


class RecentReports:
    """The cache; a restarted worker begins with an empty one."""

    def __init__(self, members_max: int = MEMBERS_MAX) -> None:
        """``members_max``: the most members whose reports are cached."""
        self._members_max = members_max
        self._readers: dict[bytes, ReportReader] = {}
        self._resolved: dict[str, Resolved] = {}
        self._hashes: dict[str, frozenset[int]] = {}
        """Hashes of each fleet's last reports."""

    def quiet(self, fleet: str, records: Sequence[bytes]) -> bool:
        """Whether most of these reports equal the fleet's last ones."""
        found = map(split, (record[1:] for record in records))
        hashes = frozenset(hash((each.process, each.rest)) for each in found if each is not None)
        known = self._hashes.get(fleet, frozenset())
        self._hashes[fleet] = hashes if len(hashes) <= self._members_max else frozenset()
        return len(hashes & known) >= QUIET_SHARE_MIN * max(len(records), 1)

    def report(self, record: bytes) -> Report:
        """Decode a record's report, or return the cached one. Raises like :func:`~detector.assembly.records.report_of`."""
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
        message = found.message()
        return report_of(record) if message is None else reader.decoded(message, found)

    def resolved(self, fleet: str) -> Resolved | None:
        """Return the resolved waits of the fleet's last snapshot."""
        return self._resolved.get(fleet)

    def keep(self, fleet: str, resolved: Resolved | None) -> None:
        """Cache the resolved waits of a snapshot."""
        if resolved is not None and len(resolved.parts) <= self._members_max:
            self._resolved[fleet] = resolved
