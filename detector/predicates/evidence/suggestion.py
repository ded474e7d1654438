"""Suggests victims in a deadlock verdict: parties whose abort would free all others. Nothing is aborted here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from detector.core.counting import all_of_them, counted
from detector.core.snapshot import Snapshot
from detector.graph.reduction import Reduction
from detector.graph.remainder import RemainderGraph
from detector.graph.victims import victims
from detector.predicates.evidence.explanation import listed
from detector.predicates.evidence.preference import Costs, Preference, PreferenceError
from stilltrue.model import Holds, Verdict

_PREFIXES = ("aborting ", "no victims ")


def is_suggestion(sentence: str) -> bool:
    """Whether a sentence of an explanation is about victims."""
    return sentence.startswith(_PREFIXES)


def with_suggestion(
    verdict: Verdict,
    snapshot: Snapshot,
    reduction: Reduction,
    graph: RemainderGraph | None,
    preference: Preference,
    never: Sequence[str],
) -> Verdict:
    """Add the victims to a TRUE verdict, with a sentence that says whether a smaller set may exist.

    If the preference fails, a sentence says so instead; the verdict stands.
    """
    if verdict.holds is not Holds.TRUE or graph is None:
        return verdict
    try:
        found = victims(snapshot.waits, reduction, graph, Costs(snapshot, preference, tuple(never)))
    except PreferenceError as error:
        return replace(verdict, explanation=(*verdict.explanation, f"no victims suggested: {error}"))
    names = snapshot.waits.named(found.parties)
    if not names:
        text = "no victims found: every candidate is excluded"
    else:
        sure = "the fewest possible" if found.exact else "fewer may suffice"
        parties, freed = counted(len(names), "party", "parties"), all_of_them(len(verdict.remainder))
        text = f"aborting {parties} would free {freed} ({sure}): {listed(names)}"
    return replace(verdict, victims=names, explanation=(*verdict.explanation, text))
