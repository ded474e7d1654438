"""The assembled global state that predicates are evaluated on: exactly what a snapshot document holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from detector.graph.columns import Bools, WaitColumns
from stilltrue.model import Message, PartyName, ProcessName, ProcessState, SnapshotRef, process_of

NO_REF = SnapshotRef()
NO_WAITS = WaitColumns.of(())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """One consistent global state.

    Attributes
    ----------
    ref : which snapshot it is.
    processes : the state of each member that reported. A process named only elsewhere is ACTIVE, unless it is missing.
    waits : every wait, of all members.
    in_transit : every message sent before its source's cut and not received before its target's.
    missing : the members that did not report, sorted. Whatever else the snapshot holds of them is stale and never counts.
    forgetful : the members that reached a bound and had to forget something that an answer about messages could depend on.
    previous : the waits of the previous complete snapshot, which ended before this one began; None when there is none.
    """

    ref: SnapshotRef = NO_REF
    processes: Mapping[ProcessName, ProcessState] = field(default_factory=lambda: MappingProxyType({}))
    waits: WaitColumns = NO_WAITS
    in_transit: tuple[Message, ...] = ()
    missing: tuple[ProcessName, ...] = ()
    forgetful: tuple[ProcessName, ...] = ()
    previous: WaitColumns | None = None

    def present(self) -> dict[ProcessName, ProcessState]:
        """Every process that is named anywhere and is not missing, by name; one without a state is ACTIVE."""
        named = set(self.processes) | set(map(process_of, self.waits.names))
        for message in self.in_transit:
            named.add(message.source)
            if message.target is not None:
                named.add(message.target)
        unknown = ProcessState()
        return {name: self.processes.get(name, unknown) for name in sorted(named.difference(self.missing))}

    def of_missing(self) -> Bools:
        """(P,) which parties of ``waits`` belong to a missing process."""
        return parties_of(self.waits.names, frozenset(self.missing))


def parties_of(names: tuple[PartyName, ...], processes: frozenset[ProcessName]) -> Bools:
    """(P,) which of the parties ``names`` belong to one of ``processes``."""
    if not processes:
        return np.zeros(len(names), np.bool_)
    return np.fromiter((process_of(name) in processes for name in names), np.bool_, len(names))
