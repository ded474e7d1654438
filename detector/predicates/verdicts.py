"""Verdicts of predicates about processes rather than waits: the same keys, filled in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from detector.core.snapshot import Snapshot
from detector.predicates.explain import shortened
from stilltrue.model import Holds, PartyName, Verdict, Witness


def process_verdict(
    name: str, snapshot: Snapshot, holds: Holds, kind: str, text: str, parties: Iterable[str] = (), told: Iterable[str] = ()
) -> Verdict:
    """A verdict whose witness names processes (or parties); ``told`` are further sentences."""
    return Verdict(
        predicate=name,
        holds=holds,
        witness=Witness(kind=kind, parties=tuple(map(PartyName, sorted(parties))), text=text),
        snapshot=snapshot.ref,
        missing=snapshot.missing,
        decisive=snapshot.missing if holds is Holds.UNDETERMINED else (),
        explanation=tuple(told),
    )


def depends_on_missing(name: str, snapshot: Snapshot, so_far: str) -> Verdict:
    """UNDETERMINED: all that reported speak for the property, and the missing ones may not."""
    text = f"{so_far}, but {', '.join(shortened(snapshot.missing))} did not report"
    return process_verdict(name, snapshot, Holds.UNDETERMINED, "missing", text, snapshot.missing)


def undeclared(name: str, snapshot: Snapshot, fact: str) -> Verdict:
    """UNDETERMINED: the fact that the predicate is about has been declared by nobody, so there is nothing to go by."""
    text = f"no process and no message declares the fact {fact!r}: nothing to go by"
    return process_verdict(name, snapshot, Holds.UNDETERMINED, "undeclared", text)


def routes(snapshot: Snapshot) -> list[str]:
    """Every way that messages in transit go, as ``orders to stock`` or, for several messages, ``orders to stock (3)``."""
    counted = Counter(f"{message.source} to {message.target or 'somebody'}" for message in snapshot.in_transit)
    return [way if count == 1 else f"{way} ({count})" for way, count in sorted(counted.items())]
