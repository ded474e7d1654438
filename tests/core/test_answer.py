"""Verdicts on snapshots without any report."""

from __future__ import annotations

import pytest

from detector.core.answer import nobody_reported
from detector.core.protocol.assembler import PendingSnapshot
from stilltrue.model import ProcessId, ProcessName, SnapshotId


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("a",), "its only member did not report"),
        (("a", "b"), "none of its 2 members reported"),
        ((), "no process of the scope all is connected"),
    ],
)
def test_nobody_reported(names: tuple[str, ...], text: str) -> None:
    members = {ProcessName(name): ProcessId(service=name, instance=ProcessName(name), incarnation=1) for name in names}
    snapshot = PendingSnapshot(snapshot=SnapshotId(1), members=members, begun=0.5, begun_by="ask").assembled(2.0).snapshot
    verdict = nobody_reported("deadlock", snapshot)
    assert (verdict.witness.text, verdict.missing) == (text, names)
