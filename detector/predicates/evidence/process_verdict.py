"""Builds the verdicts of predicates about processes rather than waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from detector.core.snapshot import Snapshot
from detector.predicates.evidence.explanation import NAMES_MAX, listed
from stilltrue.model import Activity, Holds, Message, PartyName, ProcessName, Verdict, Witness

MAY_ACT = (
    "active: a party of a call goes on, it is declared busy, or it may start something by itself "
    "(else declare reactive=True, or agent.idle())"
)
"""Why a process is active; its report does not say which of these it is."""
ALL_WAIT = "blocked: all its parties wait"


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


def why_not_idle(snapshot: Snapshot, busy: Sequence[ProcessName]) -> list[str]:
    """Why each of the first of these processes is not idle; the others are only counted."""
    states = snapshot.present()
    reasons = [f"{name}: {ALL_WAIT if states[name].activity is Activity.BLOCKED else MAY_ACT}" for name in busy[:NAMES_MAX]]
    return [*reasons, *([f"and {len(busy) - NAMES_MAX} more"] if len(busy) > NAMES_MAX else [])]


def routes(messages: Iterable[Message]) -> list[str]:
    """The source and target of messages in transit: ``orders to stock``, or ``orders to stock (3)`` for several."""
    counted = Counter(f"{message.source} to {message.target or 'unknown'}" for message in messages)
    return [route if count == 1 else f"{route} ({count})" for route, count in sorted(counted.items())]
