"""What an assembler may remember of earlier snapshots; it makes the next result faster, not different."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from detector.core.waits.resolved import Resolved
from stilltrue.protocol.report import Report


class Recent(Protocol):
    """Reports that say what they said before, and what they came to."""

    def quiet(self, fleet: str, records: Sequence[bytes]) -> bool:
        """Whether most of these reports say what the fleet's last ones said."""

    def report(self, record: bytes) -> Report:
        """The report of a record. Raises as :func:`~detector.assembly.records.report_of`."""

    def resolved(self, fleet: str) -> Resolved | None:
        """What the fleet's last snapshot came to."""

    def keep(self, fleet: str, resolved: Resolved | None) -> None:
        """Remember what a snapshot came to."""
