"""Explains waits in sentences: which party waits, for what, for how long, and on which parties."""

from __future__ import annotations

import re
from collections.abc import Sequence

from detector.core.counting import all_of_them
from detector.core.snapshot import Snapshot
from detector.core.times import clock, duration
from stilltrue.model import Wait

SENTENCES_MAX = 50
NAMES_MAX = 8
_ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PLACE = re.compile(rf" in {_ID}:\d+(?=\))| of machine {_ID}(?=\)|,| or |$)")
"""What makes a name unique among machines (of a loopback address its network namespace); it says nothing to people."""


def without_place(what: str) -> str:
    """A resource's name, as people need it."""
    return _PLACE.sub("", what)


def sentences(snapshot: Snapshot, waits: Sequence[int], total: int) -> tuple[str, ...]:
    """A sentence for each of ``waits`` (indices into the columns), at most ``SENTENCES_MAX`` of ``total``."""
    shown = waits[:SENTENCES_MAX]
    sentences = tuple(sentence(snapshot.waits.wait(wait), snapshot.ref.ended) for wait in shown)
    return sentences if total <= len(shown) else (*sentences, f"and {total - len(shown)} more")


def sentence(wait: Wait, now: float | None) -> str:
    """Explain one wait: ``orders/Place#7 has waited 3.2 s for a worker of stock (4 of 4 busy): 1 of stock/Reserve#1, ...``."""
    if wait.since is not None and now is not None and now >= wait.since:
        start = f"{wait.waiter} has waited {duration(now - wait.since)} for"
    else:
        start = f"{wait.waiter} waits for"
    names = listed(wait.among)
    several = "" if len(wait.among) == 1 else f"{_count(wait)} of "
    end = "" if wait.deadline is None else f", until {clock(wait.deadline)} at the latest"
    what = without_place(wait.what)
    if wait.needs == 1 and _names_all(what, wait.among):
        return f"{start} {what}{end}"
    return f"{start} {what}: {several}{names}{end}" if what else f"{start} {several}{names}{end}"


def _names_all(what: str, among: Sequence[str]) -> bool:
    """Whether ``what`` says already for whom the wait is: ``the end of a/thread:worker``."""
    words = f" {what} ".replace(", ", " ")
    return len(among) <= NAMES_MAX and all(f" {name} " in words for name in among)


def shortened(names: Sequence[str], total: int | None = None, most: int = NAMES_MAX) -> list[str]:
    """The first ``most`` names, followed by the number of others up to ``total``."""
    total = len(names) if total is None else total
    if total <= most:
        return list(names)
    return [*names[:most], f"and {total - most} more"]


def listed(names: Sequence[str], total: int | None = None) -> str:
    """The first names in a line, and the number of others up to ``total``: ``a, b, and 7 more``."""
    return ", ".join(shortened(names, total))


def counted(names: Sequence[str], what: str, count: int | None = None) -> str:
    """How many there are (``count``, by default the number of names), and which: ``2 not idle (a, b)``; empty if none."""
    return f"{len(names) if count is None else count} {what} ({listed(names)})" if names else ""


def joined_by_and(*parts: str) -> str:
    """The parts that are not empty, joined by "and"."""
    return " and ".join(filter(None, parts))


def _count(wait: Wait) -> str:
    return all_of_them(wait.needs) if wait.needs == len(wait.among) else str(wait.needs)
