"""Builds the verdicts of predicates about processes rather than waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from detector.core.snapshot import Snapshot
from detector.predicates.evidence.explanation import listed
from stilltrue.model import Holds, Message, PartyName, Verdict, Witness


def process_verdict(
    name: str,
    snapshot: Snapshot,
    holds: Holds,
    kind: str,
    text: str,
    parties: Iterable[str] = (),
    explanation: Iterable[str] = (),
) -> Verdict:
    """A verdict whose witness names processes (or parties); ``explanation`` adds sentences."""
    return Verdict(
        predicate=name,
        holds=holds,
        witness=Witness(kind=kind, parties=tuple(map(PartyName, sorted(parties))), text=text),
        snapshot=snapshot.ref,
        missing=snapshot.missing,
        decisive=snapshot.missing if holds is Holds.UNDETERMINED else (),
        explanation=tuple(explanation),
    )


def depends_on_missing(name: str, snapshot: Snapshot, so_far: str) -> Verdict:
    """UNDETERMINED: every report supports the property, but a missing one may not."""
    missing = listed(snapshot.missing)
    text = f"{so_far}, but {missing} did not report" if snapshot.present() else f"no process has reported; missing: {missing}"
    return process_verdict(name, snapshot, Holds.UNDETERMINED, "missing", text, snapshot.missing)


def undeclared(name: str, snapshot: Snapshot, fact: str) -> Verdict:
    """UNDETERMINED: no process or message declares the fact that the predicate needs."""
    text = f"no process and no message declares the fact {fact!r}"
    return process_verdict(name, snapshot, Holds.UNDETERMINED, "undeclared", text)


def routes(messages: Iterable[Message]) -> list[str]:
    """The source and target of messages in transit: ``orders to stock``, or ``orders to stock (3)`` for several."""
    counted = Counter(f"{message.source} to {message.target or 'unknown'}" for message in messages)
    return [route if count == 1 else f"{route} ({count})" for route, count in sorted(counted.items())]
