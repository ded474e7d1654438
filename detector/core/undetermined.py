"""Builds UNDETERMINED verdicts: with a given reason, on a snapshot without reports, and after members had to forget calls."""

from __future__ import annotations

from dataclasses import replace

from detector.core.snapshot import Snapshot
from stilltrue.model import Holds, PartyName, SnapshotRef, Verdict, Witness


def undetermined(predicate: str, ref: SnapshotRef, kind: str, text: str) -> Verdict:
    """An UNDETERMINED verdict with its reason."""
    witness = Witness(kind=kind, parties=(), text=text)
    return Verdict(predicate=predicate, holds=Holds.UNDETERMINED, witness=witness, snapshot=ref)


def nobody_reported(predicate: str, snapshot: Snapshot) -> Verdict:
    """The verdict on a snapshot without reports: UNDETERMINED."""
    ref, missing = snapshot.ref, snapshot.missing
    if missing:
        text = "its only member did not report" if len(missing) == 1 else f"none of its {len(missing)} members reported"
    else:
        text = f"no process of the scope {ref.scope} is connected"
    return replace(undetermined(predicate, ref, "missing", text), missing=missing, decisive=missing)


def depends_on_forgotten(name: str, snapshot: Snapshot) -> Verdict:
    """UNDETERMINED: the answer depends on something that members had to forget."""
    names = ", ".join(snapshot.forgetful)
    return Verdict(
        predicate=name,
        holds=Holds.UNDETERMINED,
        witness=Witness(
            kind="forgotten",
            parties=tuple(map(PartyName, snapshot.forgetful)),
            text=f"{names} reached a bound and had to forget calls: the answer depends on them",
        ),
        snapshot=snapshot.ref,
        missing=snapshot.missing,
    )
