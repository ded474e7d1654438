"""Suspicions: the parties and processes of a snapshot that need a second look before a TRUE."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from detector.core.protocol.assembler import Assembled
from detector.core.snapshot import Snapshot
from detector.core.verification.past_rounds import Key
from detector.graph.reduction_bounds import left_over
from stilltrue.model import Activity, PartyName, ProcessName, WaitNumber, process_of
from stilltrue.protocol.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What needs a second look before a TRUE.

    ``parties``: those that seem stuck, with the numbers of the waits that block them. ``processes``: those that seem idle.
    """

    parties: Mapping[PartyName, tuple[WaitNumber, ...]] = field(default_factory=dict)
    processes: tuple[ProcessName, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.parties or self.processes)


def suspicion_of(snapshot: Snapshot, *, with_idle: bool) -> Suspicion:
    """The suspicion that a snapshot shows; ``with_idle``: a TRUE depends on which processes are idle."""
    return Suspicion(parties=left_over(snapshot.waits, snapshot.missing), processes=idle_of(snapshot) if with_idle else ())


def idle_of(snapshot: Snapshot) -> tuple[ProcessName, ...]:
    """The processes that are not active: they seem idle, or blocked forever."""
    return tuple(name for name, state in snapshot.processes.items() if state.activity is not Activity.ACTIVE)


def keys_of(reports: Mapping[ProcessName, Report], parties: Mapping[PartyName, tuple[WaitNumber, ...]]) -> dict[PartyName, Key]:
    """The key of each suspect; auxiliary parties that represent a part of a wait (``party~3.1``) are left out."""
    suspected = {process_of(party) for party in parties}
    waits = {(name, wait.waiter, wait.number) for name in suspected & reports.keys() for wait in reports[name].waits}
    found: dict[PartyName, Key] = {}
    for party, numbers in parties.items():
        name = process_of(party)
        if name in reports and all((name, party, number) in waits for number in numbers):
            found[party] = Key(name, reports[name].process.incarnation, party, numbers)
    return found


def possibly_unchanged(keys: Collection[Key], assembled: Assembled) -> set[Key]:
    """The keys of parties that may still be in the very same waits: their process reports these, or has not reported."""
    absent = {(process.instance, process.incarnation) for process in assembled.absent}
    reports = {(report.process.instance, report.process.incarnation): report for report in assembled.reports.values()}
    waits = {
        (*process, wait.waiter, wait.number)
        for process in {(key.process, key.incarnation) for key in keys} & reports.keys()
        for wait in reports[process].waits
    }
    return {
        key
        for key in keys
        if (process := (key.process, key.incarnation)) in absent
        or (process in reports and all((*process, key.party, number) in waits for number in key.waits))
    }
