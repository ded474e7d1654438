"""The predicate `decided`: enough processes have declared the same decision, which they never take back."""

from __future__ import annotations

from collections import Counter

from stilltrue_detector.core.snapshot import Snapshot

from stilltrue.model import Holds, PartyName, Verdict, Witness


class Decided:
    """Holds when ``quorum`` processes declare the same value of a fact.

    Stable because a process never changes a decision once declared. Members that did not report can only add to it, so TRUE
    stands without them; FALSE needs everybody, or that the missing could not make up a quorum.

    Parameters
    ----------
    fact : the fact by which a process declares its decision.
    quorum : how many must agree.
    """

    name = "decided"
    treats_missing = True

    def __init__(self, *, fact: str = "decision", quorum: int = 2) -> None:
        if quorum < 1:
            raise ValueError(f"quorum must be at least 1, not {quorum}")
        self._fact = fact
        self._quorum = quorum

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE with those who agree, FALSE or UNDETERMINED with the largest group."""
        said = {name: state.facts[self._fact] for name, state in snapshot.present().items() if self._fact in state.facts}
        votes = Counter(map(repr, said.values()))
        choice, count = min(votes.items(), key=lambda vote: (-vote[1], vote[0])) if votes else ("", 0)
        parties = tuple(PartyName(name) for name in sorted(said) if repr(said[name]) == choice)
        text = f"{count} of the {self._quorum} needed decided {choice}" if votes else "no process has decided"
        if count >= self._quorum:
            holds = Holds.TRUE
        elif count + len(snapshot.missing) >= self._quorum:
            holds = Holds.UNDETERMINED
        else:
            holds = Holds.FALSE
        return Verdict(
            predicate=self.name,
            holds=holds,
            witness=Witness(kind="votes", parties=parties, text=text),
            snapshot=snapshot.ref,
            missing=snapshot.missing,
            decisive=snapshot.missing if holds is Holds.UNDETERMINED else (),
        )
