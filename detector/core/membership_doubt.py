"""Withholds answers while members are expected, still gathering or lost, for the service and the archive alike.

Rules (:mod:`detector.service.detection.membership.coverage` decides when there is such a doubt):

1. An answer *speaks for all* when an unseen member could make it wrong: a FALSE of ``deadlock``, a TRUE of ``termination``. The
   other answers rest on what was seen, and stand.
2. A doubt about ``ALL`` withholds every answer that speaks for all. A doubt about ``STATES`` withholds those of them that are
   not about waits. A doubt about a predicate withholds its FALSE,
   or its TRUE.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from stilltrue.model import Holds, ProcessName, Verdict, Witness

_BLOCKED = ("deadlock", "gridlock", "orphaned-resource")
_SPEAKS_FOR_ALL = {
    "deadlock": Holds.FALSE,
    "gridlock": Holds.FALSE,
    "orphaned-resource": Holds.FALSE,
    "token-duplicated": Holds.FALSE,
    "phase-ended": Holds.TRUE,
    "quiescence": Holds.TRUE,
    "termination": Holds.TRUE,
    "token-lost": Holds.TRUE,
}


class About(Enum):
    """Which answers a doubt concerns."""

    ALL = "all"
    STATES = "states"
    FALSE_OF_PREDICATE = "false"
    TRUE_OF_PREDICATE = "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipDoubt:
    """Why some answers on a snapshot are withheld.

    ``text``: the reason, as a sentence. ``decisive``: the members it is about. ``predicate``: set for ``..._OF_PREDICATE``.
    """

    about: About
    text: str
    decisive: tuple[ProcessName, ...] = ()
    predicate: str = ""

    def concerns(self, verdict: Verdict) -> bool:
        """Whether this doubt withholds ``verdict``, or is one more reason for it to be undetermined (rule 2)."""
        if self.about is About.FALSE_OF_PREDICATE:
            return verdict.predicate == self.predicate and verdict.holds is Holds.FALSE
        if self.about is About.TRUE_OF_PREDICATE:
            return verdict.predicate == self.predicate and verdict.holds is Holds.TRUE
        return speaks_for_all(verdict) and (self.about is About.ALL or verdict.predicate not in _BLOCKED)


def speaks_for_all(verdict: Verdict) -> bool:
    """Rule 1. For an unknown predicate, both TRUE and FALSE may speak for all."""
    return verdict.holds is _SPEAKS_FOR_ALL.get(verdict.predicate, verdict.holds) or verdict.holds is Holds.UNDETERMINED


def withheld(verdict: Verdict, doubts: Iterable[MembershipDoubt]) -> Verdict:
    """Weaken ``verdict`` to what ``doubts`` allow."""
    for doubt in doubts:
        if doubt.concerns(verdict):
            verdict = _made_undetermined(verdict, doubt)
    return verdict


def with_remark(verdict: Verdict, remark: str) -> Verdict:
    """``verdict`` with ``remark`` appended to its witness text."""
    return replace(verdict, witness=replace(verdict.witness, text=f"{verdict.witness.text}; {remark}"))


def _made_undetermined(verdict: Verdict, doubt: MembershipDoubt) -> Verdict:
    if verdict.holds is Holds.UNDETERMINED:
        return with_remark(verdict, doubt.text)
    return replace(
        verdict,
        holds=Holds.UNDETERMINED,
        witness=Witness(kind="missing", parties=(), text=f"{doubt.text} ({verdict.witness.text})"),
        remainder=(),
        core=(),
        behind=(),
        victims=(),
        explanation=(),
        until=None,
        decisive=tuple(sorted({*verdict.decisive, *doubt.decisive})),
    )
