"""Reports of the simulator's worlds, for tests that resolve them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from detector.core.protocol import assembler
from detector.core.waits.resolved import Resolved, resolved
from stilltrue.model import ProcessId, ProcessName
from stilltrue.protocol.report import Report

Taken = tuple[Mapping[ProcessName, Report], Sequence[ProcessId]]
"""The reports of one snapshot, and who is missing."""


def remembered(monkeypatch: pytest.MonkeyPatch) -> list[Taken]:
    """Record the assembler's calls until the patch is undone."""
    taken: list[Taken] = []

    def remember(
        reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId], before: Resolved | None = None
    ) -> Resolved:
        taken.append((reports, missing))
        return resolved(reports, missing, before)

    monkeypatch.setattr(assembler, "resolved", remember)
    return taken
