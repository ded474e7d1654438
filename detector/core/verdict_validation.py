"""Validates the verdicts that predicates return, which may be plug-ins."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import get_type_hints

from stilltrue.model import Holds, SnapshotRef, Verdict, Witness

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
