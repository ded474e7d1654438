"""The interface of a predicate, a question about a snapshot; users can implement it too."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from detector.core.snapshot import Snapshot
from stilltrue.model import Verdict


@runtime_checkable
class Predicate(Protocol):
    """A stable property: once true, it stays true.

    A predicate is a class that takes no arguments, or keyword arguments with defaults (its settings). It is discovered through
    an entry point of the group ``stilltrue.predicates`` whose name is the predicate's.

    Attributes
    ----------
    name : the name that users ask for.

    Notes
    -----
    A predicate that can handle missing members declares so with the class attribute ``treats_missing = True``. Without it the
    answer on an incomplete snapshot is UNDETERMINED and ``evaluate`` is not called. The same goes for ``treats_forgotten`` and
    snapshots with members that had to forget something (``Snapshot.forgetful``). ``reads_activity = False`` declares that the
    answer does not depend on which processes are idle; a TRUE then needs no second look at idle ones. ``evaluate`` must have no
    side effects, read no clock, and not depend on set order; it may be called from several threads.
    """

    name: str

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Decide the property on one snapshot, with a witness for either answer.

        If it raises, takes longer than ``--evaluation-seconds-max`` or returns an invalid verdict, the detector answers
        UNDETERMINED; commands that evaluate documents fail.
        """
        ...


def treats_missing(predicate: Predicate) -> bool:
    """Whether ``predicate`` declares that it handles missing members."""
    return bool(getattr(predicate, "treats_missing", False))


def treats_forgotten(predicate: Predicate) -> bool:
    """Whether ``predicate`` declares that it handles members that had to forget something."""
    return bool(getattr(predicate, "treats_forgotten", False))


def reads_activity(predicate: Predicate) -> bool:
    """Whether the answer of ``predicate`` may depend on which processes are idle."""
    return bool(getattr(predicate, "reads_activity", True))
