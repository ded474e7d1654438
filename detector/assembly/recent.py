"""The interface of a cache of earlier snapshots, which makes the next result faster but does not change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from detector.core.waits.resolved import Resolved
from stilltrue.protocol.report import Report


class Recent(Protocol):
    """Caches decoded reports and resolved snapshots per fleet."""

    def quiet(self, fleet: str, records: Sequence[bytes]) -> bool:
        """Whether most of these reports are the same as the fleet's last ones."""

    def report(self, record: bytes) -> Report:
        """The report of a record. Raises like :func:`~detector.assembly.records.report_of`."""

    def resolved(self, fleet: str) -> Resolved | None:
        """The resolved reports of the fleet's last snapshot."""

    def keep(self, fleet: str, resolved: Resolved | None) -> None:
        """Remember the resolved reports of a snapshot."""
