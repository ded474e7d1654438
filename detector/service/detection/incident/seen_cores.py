"""Splits a verdict's core into separate cores, and lists the processes that it accounts for. Pure and thread-safe."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from detector.core.incident_identity import Core, WaitKey, cores_of
from detector.core.protocol.assembler import Assembled
from detector.predicates.evidence.core_components import CoreComponent, CoreComponents
from stilltrue.model import Holds, ProcessName, Verdict, process_of

GRIDLOCK = "gridlock"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCores:
    """The cores of one verdict, all waits in force, and the incarnations of the processes that reported.

    ``components`` describes the new cores, by their waits.
    """

    verdict: Verdict
    cores: tuple[Core, ...]
    components: Mapping[tuple[WaitKey, ...], CoreComponent]
    in_force: frozenset[WaitKey]
    incarnations: Mapping[ProcessName, int]


def seen_cores(verdict: Verdict, assembled: Assembled, known: Container[WaitKey] = ()) -> SeenCores:
    """Split the core of ``verdict``. ``known``: waits of incidents that have a description already.

    Of a gridlock only the cores that a deadline may end are returned: the others are reported as deadlocks.
    """
    waits = assembled.snapshot.waits
    incarnations = {name: report.process.incarnation for name, report in assembled.reports.items()}
    runs = [incarnations.get(process_of(name), 0) for name in waits.names]
    cores = cores_of(verdict.core, waits, lambda wait: runs[waits.waiter[wait]]) if verdict.holds is Holds.TRUE else []
    if verdict.predicate == GRIDLOCK:
        cores = [core for core in cores if not core.lasting]
    components = CoreComponents(verdict, assembled.snapshot)
    return SeenCores(
        verdict=verdict,
        cores=tuple(cores),
        components={core.keys: components.of(core.parties) for core in cores if not any(key in known for key in core.keys)},
        in_force=frozenset(
            (waits.names[waiter], runs[waiter], max(0, number))
            for waiter, number in zip(waits.waiter.tolist(), waits.number.tolist(), strict=True)
        ),
        incarnations=incarnations,
    )
