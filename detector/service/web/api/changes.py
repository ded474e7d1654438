"""The changes between two snapshots: answers, deadlocked parties and processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from stilltrue.model import Verdict
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One answer that has changed."""

    predicate: str
    before: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes from ``since`` to ``snapshot``; names are sorted."""

    since: int
    snapshot: int
    answers: tuple[Changed, ...]
    deadlocked: tuple[str, ...]
    no_longer_deadlocked: tuple[str, ...]
    joined: tuple[str, ...]
    gone: tuple[str, ...]
    newly_missing: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether anything has changed."""
        names = (self.deadlocked, self.no_longer_deadlocked, self.joined, self.gone, self.newly_missing)
        return bool(self.answers or any(names))

    def written(self) -> dict[str, Any]:
        """The changes as JSON."""
        return asdict(self)


def changes_between(before: pb.GetSnapshotResponse, after: pb.GetSnapshotResponse) -> Changes:
    """Compare two snapshots. Slow for large ones: do not call it on the event loop."""
    old, new = _answers(before), _answers(after)
    stuck_before, stuck_now = _deadlocked(old), _deadlocked(new)
    there_before, there_now = _processes(before), _processes(after)
    return Changes(
        since=before.summary.ref.id,
        snapshot=after.summary.ref.id,
        answers=tuple(
            Changed(predicate=name, before=old[name].holds.value, now=new[name].holds.value)
            for name in sorted(old.keys() & new.keys())
            if old[name].holds is not new[name].holds
        ),
        deadlocked=tuple(sorted(stuck_now - stuck_before)),
        no_longer_deadlocked=tuple(sorted(stuck_before - stuck_now)),
        joined=tuple(sorted(there_now - there_before)),
        gone=tuple(sorted(there_before - there_now)),
        newly_missing=tuple(sorted({*after.summary.missing} - {*before.summary.missing})),
    )


def _answers(answer: pb.GetSnapshotResponse) -> dict[str, Verdict]:
    verdicts = map(verdict_from_wire, answer.verdicts)
    return {verdict.predicate: verdict for verdict in verdicts if verdict.snapshot.scope == "all"}


def _deadlocked(answers: dict[str, Verdict]) -> set[str]:
    verdict = answers.get("deadlock")
    return set() if verdict is None else {*verdict.remainder}


def _processes(answer: pb.GetSnapshotResponse) -> set[str]:
    """The processes of a snapshot, read without parsing its waits, which are most of the document."""
    document = json.loads(answer.document_json)
    return {*document.get("processes", ()), *document.get("missing", ())}
