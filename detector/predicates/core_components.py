"""Describes one component of a verdict's core on its own, for verdicts whose core has several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from detector.core.snapshot import Snapshot
from detector.graph.columns import WaitColumns
from detector.predicates.explain import sentences, shortened
from stilltrue.model import PartyName, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreComponent:
    """One component of a core: a summary, a sentence for each of its waits (a bounded number), and the parties behind it."""

    text: str
    waits: tuple[str, ...]
    behind: tuple[PartyName, ...]


def core_component(verdict: Verdict, snapshot: Snapshot, core: Sequence[PartyName]) -> CoreComponent:
    """Describe the component ``core`` (sorted) of ``verdict`` on ``snapshot``; a sole component keeps the verdict's words."""
    if set(core) == set(verdict.core):
        return CoreComponent(text=verdict.witness.text, waits=verdict.explanation, behind=verdict.behind)
    waits = snapshot.waits
    members = frozenset(core)
    inside = np.fromiter((name in members for name in waits.names), np.bool_, len(waits.names))
    own = np.flatnonzero(inside[waits.waiter])
    return CoreComponent(
        text=f"{len(core)} parties wait for each other: {', '.join(shortened(core))}",
        waits=sentences(snapshot, own.tolist(), len(own)),
        behind=_behind(waits, core, verdict.behind),
    )


def _behind(waits: WaitColumns, core: Sequence[PartyName], behind: Sequence[PartyName]) -> tuple[PartyName, ...]:
    """The parties of ``behind`` that wait, directly or transitively, for a party in ``core``."""
    at = {name: place for place, name in enumerate((*core, *behind), start=1)}
    place = np.fromiter((at.get(name, -1) for name in waits.names), np.int64, len(waits.names))
    waiter, target = np.repeat(place[waits.waiter], waits.sizes()), place[waits.targets]
    along = (waiter > len(core)) & (target > 0)
    begins = np.arange(1, len(core) + 1)
    rows = np.concatenate((np.zeros_like(begins), target[along]))
    columns = np.concatenate((begins, waiter[along]))
    graph = csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=(len(at) + 1, len(at) + 1))
    reached = breadth_first_order(graph, 0, directed=True, return_predecessors=False)
    return tuple(behind[found - len(core) - 1] for found in sorted(reached[reached > len(core)].tolist()))
