"""token-lost and token-duplicated: a declared amount that should be conserved is not."""

from __future__ import annotations

import math

from detector.core.snapshot import Snapshot
from detector.predicates.evidence.explanation import listed
from detector.predicates.evidence.fact_totals import Amount, amount_of
from detector.predicates.evidence.process_verdict import depends_on_missing, process_verdict, undeclared
from stilltrue.model import Holds, Verdict


class TokenLost:
    """Holds when processes and messages together have less of a fact than there should be.

    Parameters
    ----------
    fact : the fact's name; a process that does not declare it has none.
    expected : the expected total, at least 0.

    Notes
    -----
    Stable as long as no new tokens are created. If no process declares the fact, the answer is UNDETERMINED: a system without
    tokens has lost none, and one with tokens declares 0. With members missing, the answer is FALSE if the others have the whole
    total, else UNDETERMINED. An amount that is not a number of at least 0 makes the answer UNDETERMINED.

    References
    ----------
    K. M. Chandy and L. Lamport, Distributed snapshots (1985), section 2: the single-token conservation system.
    """

    name = "token-lost"
    treats_missing = True
    reads_activity = False

    def __init__(self, *, fact: str = "token", expected: float = 1) -> None:
        self._fact = fact
        self._expected = _checked(expected)

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE if the sum is too small, with the holders."""
        return _verdict(self.name, snapshot, self._fact, self._expected, too_much=False)


class TokenDuplicated:
    """Holds when processes and messages together have more of a fact than there should be.

    Parameters
    ----------
    fact : the fact's name; a process that does not declare it has none.
    expected : the expected total, at least 0.

    Notes
    -----
    Stable as long as tokens are not destroyed. With members missing, the answer is still TRUE if the others have too much,
    since no member has less than 0, else UNDETERMINED.
    """

    name = "token-duplicated"
    treats_missing = True
    reads_activity = False

    def __init__(self, *, fact: str = "token", expected: float = 1) -> None:
        self._fact = fact
        self._expected = _checked(expected)

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE if the sum is too large, with the holders."""
        return _verdict(self.name, snapshot, self._fact, self._expected, too_much=True)


def _verdict(name: str, snapshot: Snapshot, fact: str, expected: float, *, too_much: bool) -> Verdict:
    """Decide whether there is too much (``too_much``) or too little. Missing members can only add to the total."""
    amount = amount_of(snapshot, fact)
    if not amount.declared or amount.odd:
        return _no_answer(name, snapshot, fact, amount)
    beyond = amount.total > expected if too_much else amount.total < expected
    wrong = beyond and not math.isclose(amount.total, expected)
    if snapshot.missing and wrong is not too_much:
        return depends_on_missing(name, snapshot, _sum(amount, fact, expected))
    if amount.unknown and wrong is not too_much:
        holders = listed(amount.unknown)
        why = "a call that carried some has failed or was abandoned, and the fact has not been set since"
        text = f"{_sum(amount, fact, expected)}; the amount at {holders} is unknown: {why}"
        return process_verdict(name, snapshot, Holds.UNDETERMINED, "sum", text, amount.unknown)
    holds = Holds.TRUE if wrong else Holds.FALSE
    return process_verdict(name, snapshot, holds, "sum", _sum(amount, fact, expected), amount.holders)


def _checked(expected: float) -> float:
    if not expected >= 0:
        raise ValueError(f"setting expected must be at least 0 (the expected total), not {expected:g}; for example expected=1")
    return expected


def _no_answer(name: str, snapshot: Snapshot, fact: str, amount: Amount) -> Verdict:
    if not amount.declared:
        return undeclared(name, snapshot, fact)
    text = f"the fact {fact!r} of {listed(amount.odd)} is not an amount"
    return process_verdict(name, snapshot, Holds.UNDETERMINED, "undeclared", text, amount.odd)


def _sum(amount: Amount, fact: str, expected: float) -> str:
    held = f"held by {listed(amount.holders)}" if amount.holders else "held by no process"
    return f"{fact}: {amount.total:g} of {expected:g} found, {held}, {amount.carried:g} in transit"
