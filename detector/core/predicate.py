"""The question that is asked of a snapshot, as a class that anybody can write."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from detector.core.snapshot import Snapshot
from stilltrue.model import Verdict


@runtime_checkable
class Predicate(Protocol):
    """A stable property: once true, still true.

    A predicate is a class with no arguments, or with keyword arguments that have defaults (its settings). It is found by
    an entry point of the group ``stilltrue.predicates``, whose name is the predicate's.

    Attributes
    ----------
    name : the word that people ask for.

    Notes
    -----
    A predicate that knows how to treat missing members says so with a class attribute ``treats_missing = True``. Without it
    the answer on an incomplete snapshot is UNDETERMINED, and ``evaluate`` is not called. ``evaluate`` must not change
    anything, read a clock, or depend on the order of sets; it may be called from several threads.
    """

    name: str

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Answer for one snapshot, with a witness either way."""
        ...


def treats_missing(predicate: Predicate) -> bool:
    """Whether ``predicate`` says that it knows how to treat missing members."""
    return bool(getattr(predicate, "treats_missing", False))
