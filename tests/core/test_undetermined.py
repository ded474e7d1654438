"""UNDETERMINED verdicts on snapshots without reports."""

from __future__ import annotations

import pytest

from detector.core.protocol.assembler import PendingSnapshot
from detector.core.undetermined import nobody_reported
from stilltrue.model import ProcessId, ProcessName, SnapshotId


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("a",), "its only member did not report"),
        (("a", "b"), "none of its 2 members reported"),
        ((), "no process of the scope all is connected"),
    ],
)
def test_the_verdict_on_a_snapshot_without_reports_says_why(names: tuple[str, ...], text: str) -> None:
    members = {ProcessName(name): ProcessId(service=name, instance=ProcessName(name), incarnation=1) for name in names}
    snapshot = PendingSnapshot(snapshot=SnapshotId(1), members=members, begun=0.5, begun_by="ask").assembled(2.0).snapshot
    verdict = nobody_reported("deadlock", snapshot)
    assert (verdict.witness.text, verdict.missing) == (text, names)
