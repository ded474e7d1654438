"""Describes each component of a verdict's core, for verdicts whose core has several."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from detector.core.sentences import remarks_of
from detector.core.snapshot import Snapshot
from detector.predicates.evidence.explanation import listed, sentences
from stilltrue.model import PartyName, Verdict, Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreComponent:
    """One component of a core: a summary, sentences for a bounded number of its waits, and the parties behind it."""

    text: str
    waits: tuple[str, ...]
    behind: tuple[PartyName, ...]


def narrowed(verdict: Verdict, snapshot: Snapshot, parties: Collection[PartyName]) -> Verdict:
    """The verdict about only that part of the core that consists of ``parties``, and what waits behind it.

    ``remainder`` stays, so that a picture can count the parties of the other parts. Unchanged if the core has no other part.
    """
    core = tuple(party for party in verdict.core if party in parties)
    if not core or len(core) == len(verdict.core):
        return verdict
    part = CoreComponents(verdict, snapshot).of(core)
    own = frozenset((*core, *part.behind))
    if own.issuperset(verdict.witness.parties):
        shown = replace(verdict.witness, text=remarks_of(verdict.witness.text)[0])  # not how many other parts there are
    else:
        shown = Witness(kind="core", parties=core, text=part.text)
    victims = tuple(party for party in verdict.victims if party in own)
    return replace(verdict, core=core, behind=part.behind, witness=shown, victims=victims, explanation=part.waits)


class CoreComponents:
    """Describes the components of the core of ``verdict`` on ``snapshot``; the graph is indexed only once."""

    def __init__(self, verdict: Verdict, snapshot: Snapshot) -> None:
        self._verdict = verdict
        self._snapshot = snapshot

    def of(self, core: Sequence[PartyName]) -> CoreComponent:
        """Describe the component ``core`` (sorted); a sole component keeps the verdict's text."""
        verdict = self._verdict
        if len(core) == len(verdict.core):
            return CoreComponent(text=verdict.witness.text, waits=verdict.explanation, behind=verdict.behind)
        own = [wait for party in core for wait in self._waits.get(party, ())]
        return CoreComponent(
            text=f"{len(core)} parties wait for each other: {listed(core)}",
            waits=sentences(self._snapshot, own, len(own)),
            behind=self._behind(core),
        )

    @cached_property
    def _waits(self) -> dict[PartyName, list[int]]:
        """The waits of each party of the core, as indices into the columns."""
        columns, core = self._snapshot.waits, frozenset(self._verdict.core)
        inside = np.fromiter((name in core for name in columns.names), np.bool_, len(columns.names))
        found: dict[PartyName, list[int]] = {}
        for index in np.flatnonzero(inside[columns.waiter]).tolist():
            found.setdefault(columns.names[columns.waiter[index]], []).append(index)
        return found

    @cached_property
    def _waiting_for(self) -> dict[PartyName, list[PartyName]]:
        """For each party, the parties of the verdict's ``behind`` that wait for it."""
        columns, behind = self._snapshot.waits, frozenset(self._verdict.behind)
        inside = np.fromiter((name in behind for name in columns.names), np.bool_, len(columns.names))
        waiter = np.repeat(columns.waiter, columns.sizes())
        chosen = inside[waiter]
        found: dict[PartyName, list[PartyName]] = {}
        for source, target in zip(waiter[chosen].tolist(), columns.targets[chosen].tolist(), strict=True):
            found.setdefault(columns.names[target], []).append(columns.names[source])
        return found

    def _behind(self, core: Sequence[PartyName]) -> tuple[PartyName, ...]:
        """The parties of ``behind`` that wait, directly or transitively, for a party in ``core``."""
        if not self._verdict.behind:
            return ()
        reached: set[PartyName] = set()
        worklist = list(core)
        while worklist:
            for waiter in self._waiting_for.get(worklist.pop(), ()):
                if waiter not in reached:
                    reached.add(waiter)
                    worklist.append(waiter)
        return tuple(sorted(reached))
