"""The assembled global state that predicates are evaluated on, with the same content as a snapshot document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np

from detector.core.membership_doubt import MembershipDoubt
from detector.graph.columns import Bools, WaitColumns
from stilltrue.model import Activity, Message, PartyName, ProcessName, ProcessState, SnapshotRef, process_of
from stilltrue.protocol.requests.look import PartyLook

NO_REF = SnapshotRef()
NO_WAITS = WaitColumns.of(())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """One consistent global state.

    Attributes
    ----------
    ref : the snapshot's id, scope and times.
    processes : the state of each member that reported. A process named only elsewhere is ACTIVE, unless it is missing.
    waits : the waits of all members.
    in_transit : every message sent before its source's cut and not received before its target's.
    missing : the members that did not report, sorted. Anything else that the snapshot holds about them is stale and ignored.
    forgetful : the members that reached a bound and had to forget something on which an answer about messages may depend.
    looks : what the verification round saw of each suspect; empty without a verification round.
    doubts : after a verification round, why a process that seems idle may not be.
    set_aside : the missing members that did report, and why their report does not count: it contradicts other reports (protocol
        rule 5), or was deferred because of its size.
    membership : the doubts that withheld answers on this snapshot: members expected, still gathering or lost.
    """

    ref: SnapshotRef = NO_REF
    processes: Mapping[ProcessName, ProcessState] = field(default_factory=lambda: MappingProxyType({}))
    waits: WaitColumns = NO_WAITS
    in_transit: tuple[Message, ...] = ()
    missing: tuple[ProcessName, ...] = ()
    forgetful: tuple[ProcessName, ...] = ()
    looks: Mapping[PartyName, PartyLook] = field(default_factory=lambda: MappingProxyType({}))
    doubts: Mapping[ProcessName, str] = field(default_factory=lambda: MappingProxyType({}))
    set_aside: Mapping[ProcessName, str] = field(default_factory=lambda: MappingProxyType({}))
    membership: tuple[MembershipDoubt, ...] = ()

    def present(self) -> dict[ProcessName, ProcessState]:
        """Every process that is named anywhere and is not missing, by name; without a recorded state it is ACTIVE."""
        named = set(self.processes) | _processes_of(self.waits)
        for message in self.in_transit:
            named.add(message.source)
            if message.target is not None:
                named.add(message.target)
        unknown = ProcessState()
        return {name: self.processes.get(name, unknown) for name in sorted(named.difference(self.missing))}

    def with_active(self, processes: Iterable[ProcessName]) -> Snapshot:
        """The snapshot as it would be if ``processes`` were active."""
        active = frozenset(processes)
        states = {
            name: replace(state, activity=Activity.ACTIVE) if name in active else state
            for name, state in self.processes.items()
        }
        return replace(self, processes=states, doubts=MappingProxyType({}))

    def of_missing(self) -> Bools:
        """(P,) mask of the parties of ``waits`` that belong to a missing process."""
        return parties_of(self.waits.names, frozenset(self.missing))


_PROCESSES: WeakKeyDictionary[WaitColumns, frozenset[ProcessName]] = WeakKeyDictionary()


def _processes_of(waits: WaitColumns) -> frozenset[ProcessName]:
    """The processes of all parties in ``waits``, cached: views and successive snapshots often share the same columns."""
    known = _PROCESSES.get(waits)
    if known is None:
        known = _PROCESSES[waits] = frozenset(map(process_of, waits.names))
    return known


def parties_of(names: tuple[PartyName, ...], processes: frozenset[ProcessName]) -> Bools:
    """(P,) mask of the parties ``names`` that belong to one of ``processes``."""
    if not processes:
        return np.zeros(len(names), np.bool_)
    return np.fromiter((process_of(name) in processes for name in names), np.bool_, len(names))
