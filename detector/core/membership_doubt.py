"""What the membership withholds: answers that a detector must not give while members are expected, gathered or lost.

Rules (when there is such a doubt: :mod:`detector.service.detection.membership.coverage`; here is what
follows, also for the archive):

1. An answer *speaks for all* when a member that was not seen could make it wrong: a FALSE of ``deadlock``, a TRUE of
   ``termination``. The other answers rest on what was seen, and stand.
2. A doubt about everything withholds each answer that speaks for all; one about everybody's state, those not about waits; one
   about a predicate, its FALSE.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipDoubt:
    """Why some answers on a snapshot are withheld.

    ``text`` is the reason, a sentence; ``decisive``: the members that it is about; ``predicate``: of ``FALSE_OF_PREDICATE``.
    """

    about: About
    text: str
    decisive: tuple[ProcessName, ...] = ()
    predicate: str = ""

    def concerns(self, verdict: Verdict) -> bool:
        """Whether ``verdict`` is withheld, or is undetermined and has this reason as well (rule 2)."""
        if self.about is About.FALSE_OF_PREDICATE:
            return verdict.predicate == self.predicate and verdict.holds is Holds.FALSE
        return speaks_for_all(verdict) and (self.about is About.ALL or verdict.predicate not in _BLOCKED)


def speaks_for_all(verdict: Verdict) -> bool:
    """Rule 1; a predicate that is not known here may mean either."""
    return verdict.holds is _SPEAKS_FOR_ALL.get(verdict.predicate, verdict.holds) or verdict.holds is Holds.UNDETERMINED


def withheld(verdict: Verdict, doubts: Iterable[MembershipDoubt]) -> Verdict:
    """Weaken ``verdict`` to what ``doubts`` allow."""
    for doubt in doubts:
        if doubt.concerns(verdict):
            verdict = _doubted(verdict, doubt)
    return verdict


def with_words(verdict: Verdict, words: str) -> Verdict:
    """``verdict`` with more words to its evidence."""
    return replace(verdict, witness=replace(verdict.witness, text=f"{verdict.witness.text}; {words}"))


def _doubted(verdict: Verdict, doubt: MembershipDoubt) -> Verdict:
    if verdict.holds is Holds.UNDETERMINED:
        return with_words(verdict, doubt.text)
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
