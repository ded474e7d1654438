"""The separate cores of one verdict, and the processes it accounts for. Pure and thread-safe."""

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
    """The cores of one verdict, every wait in force, and the incarnation of each process that reported.

    ``components`` describes the cores that are new, by their waits.
    """

    verdict: Verdict
    cores: tuple[Core, ...]
    components: Mapping[tuple[WaitKey, ...], CoreComponent]
    in_force: frozenset[WaitKey]
    words: Mapping[ProcessName, int]


def seen_cores(verdict: Verdict, assembled: Assembled, known: Container[WaitKey] = ()) -> SeenCores:
    """The cores of ``verdict``. ``known``: waits of incidents that are described already.

    Of a gridlock, only the cores that a deadline may end: the others are deadlocks, and reported as such.
    """
    waits = assembled.snapshot.waits
    words = {name: report.process.incarnation for name, report in assembled.reports.items()}
    runs = [words.get(process_of(name), 0) for name in waits.names]
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
        words=words,
    )
