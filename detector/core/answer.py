"""What a predicate answered, looked at before anybody leans on it: a stranger's answer may be of any shape."""

from __future__ import annotations

from detector.core.times import write_time
from stilltrue.model import Holds, SnapshotRef, Verdict, Witness

_KINDS = (("holds", Holds), ("witness", Witness), ("snapshot", SnapshotRef), ("predicate", str))
_LISTS = ("remainder", "core", "behind", "missing", "decisive", "explanation", "victims")


def fault_of(answer: object) -> str:
    """What is wrong with ``answer`` as a verdict, to stand after "answered with"; empty when it is one."""
    if not isinstance(answer, Verdict):
        return f"{type(answer).__name__}, not a Verdict"
    for name, kind in _KINDS:
        value = getattr(answer, name)
        if not isinstance(value, kind):
            return f"{name}={value!r}, not a {kind.__name__}"
    for name in ("kind", "text"):
        text = getattr(answer.witness, name)
        if not isinstance(text, str):
            return f"witness.{name}={text!r}, not a text"
    lists = {name: getattr(answer, name) for name in _LISTS} | {"witness.parties": answer.witness.parties}
    unfit = [name for name, values in lists.items() if not _are_texts(values)]
    if unfit:
        return f"{unfit[0]} that is no tuple of texts"
    return "" if answer.until is None or _is_moment(answer.until) else f"until={answer.until!r}, not a time in seconds"


def _are_texts(values: object) -> bool:
    return isinstance(values, (tuple, list)) and all(issubclass(kind, str) for kind in set(map(type, values)))


def _is_moment(seconds: object) -> bool:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return False
    try:
        write_time(seconds)
    except (OverflowError, ValueError):
        return False
    return True
