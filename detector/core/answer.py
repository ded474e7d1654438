"""Validates the verdicts that plug-in predicates return, and builds verdicts for snapshots they cannot be asked about."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import get_type_hints

from detector.core.snapshot import Snapshot
from stilltrue.model import Holds, PartyName, SnapshotRef, Verdict, Witness

_HINTS = get_type_hints(Verdict)
_KINDS = [(name, hint) for name, hint in _HINTS.items() if hint in (Holds, Witness, SnapshotRef, str)]
_LISTS = [field.name for field in fields(Verdict) if field.default == ()]


def problem_with(answer: object) -> str:
    """Describe why ``answer`` is not a valid verdict, worded to follow "returned"; empty when it is valid."""
    if not isinstance(answer, Verdict):
        return f"{type(answer).__name__}, not a Verdict"
    for name, kind in _KINDS:
        value = getattr(answer, name)
        if not isinstance(value, kind):
            return f"{name}={value!r}, not a {kind.__name__}"
    for name in ("kind", "text"):
        text = getattr(answer.witness, name)
        if not isinstance(text, str):
            return f"witness.{name}={text!r}, not a string"
    lists = {name: getattr(answer, name) for name in _LISTS} | {"witness.parties": answer.witness.parties}
    invalid = [name for name, values in lists.items() if not _all_strings(values)]
    if invalid:
        return f"{invalid[0]} that is not a tuple of strings"
    return "" if answer.until is None or _is_time(answer.until) else f"until={answer.until!r}, not a time in seconds"


def _all_strings(values: object) -> bool:
    return isinstance(values, (tuple, list)) and all(issubclass(kind, str) for kind in set(map(type, values)))


def _is_time(seconds: object) -> bool:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return False
    try:
        return math.isfinite(seconds)
    except OverflowError:  # an integer too large for a float
        return False


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
