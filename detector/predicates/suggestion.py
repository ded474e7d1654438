"""The suggestion in a verdict: whose giving up would free everybody. Nothing is ever cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from detector.core.snapshot import Snapshot
from detector.graph.reduction import Reduction
from detector.graph.remainder import RemainderGraph
from detector.graph.victims import victims
from detector.predicates.explain import shortened
from detector.predicates.preference import Costs, Preference, PreferenceError
from stilltrue.model import Holds, Verdict


def with_suggestion(
    verdict: Verdict,
    snapshot: Snapshot,
    reduction: Reduction,
    graph: RemainderGraph | None,
    preference: Preference,
    never: Sequence[str],
) -> Verdict:
    """A verdict that is TRUE with its victims, and a last sentence that says how sure it is that there is no smaller set.

    A preference that fails costs the suggestion, which then says so, and never the verdict.
    """
    if verdict.holds is not Holds.TRUE or graph is None:
        return verdict
    try:
        found = victims(snapshot.waits, reduction, graph, Costs(snapshot, preference, tuple(never)))
    except PreferenceError as error:
        return replace(verdict, explanation=(*verdict.explanation, f"no cure suggested: {error}"))
    names = snapshot.waits.named(found.parties)
    if not names:
        told = "no cure found: those that must not give up stand in the way"
    else:
        sure = "no fewer would do" if found.exact else "fewer may do"
        who = "1 party" if len(names) == 1 else f"{len(names)} parties"
        told = f"{who} giving up would free all {len(verdict.remainder)} ({sure}): {', '.join(shortened(names))}"
    return replace(verdict, victims=names, explanation=(*verdict.explanation, told))
