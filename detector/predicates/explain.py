"""Sentences for people: who waits for what, since when, and for whom."""

from __future__ import annotations

from collections.abc import Sequence

from detector.core.snapshot import Snapshot
from detector.core.times import clock
from stilltrue.model import Wait

SENTENCES_MAX = 50
NAMES_MAX = 8


def sentences(snapshot: Snapshot, waits: Sequence[int], total: int) -> tuple[str, ...]:
    """One sentence for each of ``waits`` (positions in the columns), a bounded number of ``total``."""
    shown = waits[:SENTENCES_MAX]
    told = tuple(sentence(snapshot.waits.wait(wait), snapshot.ref.ended) for wait in shown)
    return told if total <= len(shown) else (*told, f"and {total - len(shown)} more")


def sentence(wait: Wait, now: float | None) -> str:
    """``orders/Place#7 has waited 3.2 s for a worker of stock's pool (4 of 4 busy): 1 of stock/Reserve#1, stock/Reserve#2``."""
    if wait.since is not None and now is not None and now >= wait.since:
        start = f"{wait.waiter} has waited {duration(now - wait.since)} for"
    else:
        start = f"{wait.waiter} waits for"
    names = ", ".join(shortened(wait.among))
    several = "" if len(wait.among) == 1 else f"{_all(wait)} of "
    end = "" if wait.deadline is None else f", until {clock(wait.deadline)} at most"
    return f"{start} {wait.what}: {several}{names}{end}" if wait.what else f"{start} {several}{names}{end}"


def duration(seconds: float) -> str:
    """A length of time as people say it: ``0.45 s``, ``3.2 s``, ``5 min 12 s``, ``3 h 5 min``."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def shortened(names: Sequence[str], total: int | None = None, most: int = NAMES_MAX) -> list[str]:
    """At most ``most`` names, and how many more there are of ``total``."""
    total = len(names) if total is None else total
    if total <= most:
        return list(names)
    return [*names[:most], f"and {total - most} more"]


def _all(wait: Wait) -> str:
    return f"all {wait.needs}" if wait.needs == len(wait.among) else str(wait.needs)
