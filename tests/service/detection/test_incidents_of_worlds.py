"""Incremental resolution gives the same verdicts, incidents and archive rows as resolving everything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detector.archive.rows.column_encoder import ColumnEncoder
from detector.archive.rows.row_encoder import report_rows, snapshot_row
from detector.archive.writer import table_of
from detector.core.incident_identity import Core
from detector.core.protocol.assembler import Assembled, PendingSnapshot
from detector.core.registry import ask
from detector.predicates.deadlock import Deadlock
from detector.predicates.gridlock import Gridlock
from detector.service.detection.incident.incidents import Incident, Incidents
from detector.service.detection.incident.seen_cores import SeenCores, seen_cores
from detector.simulator.plans import recipes
from detector.simulator.run import Run
from stilltrue.model import Holds, ProcessId, SnapshotId, Verdict

SEEDS = 2
PROCESSES = 9
PREDICATES = (Deadlock(), Gridlock())
WITHOUT_INCIDENTS = {"bounds", "detectors", "gateways", "retries", "strangers", "tokens"}
"""Worlds in which these seeds make none."""


class Told:
    """What incidents say of themselves: each change, in order."""

    def __init__(self, kind: type[Incidents]) -> None:
        self.states: dict[str, Incident] = {}
        self.said: list[Incident | str] = []
        self.incidents = kind(changed=self._changed, opened=lambda one: self.said.append(one.id), find=self.states.get)

    def _changed(self, incident: Incident) -> None:
        self.states[incident.id] = incident
        self.said.append(incident)

    def sees(self, verdict: Verdict, assembled: Assembled, now: float) -> None:
        seen = self.incidents.cores_in(verdict, assembled) if self.incidents.concerns(verdict) else None
        if seen is not None:
            self.incidents.saw(seen, now)


class Straightforward(Incidents):
    """Compares each core with each open incident, and describes all cores."""

    def concerns(self, verdict: Verdict) -> bool:
        del verdict
        return True

    def cores_in(self, verdict: Verdict, assembled: Assembled) -> SeenCores | None:
        return None if verdict.holds is Holds.UNDETERMINED else seen_cores(verdict, assembled)

    def _known(self, predicate: str, core: Core) -> Incident | None:
        known = [one for one in self.open_ones() if one.predicate == predicate and set(one.keys) & set(core.keys)]
        return min(known, key=lambda incident: (incident.opened, incident.id), default=None)


def from_all(assembled: Assembled) -> Assembled:
    """The snapshot that is assembled from its reports, and from nothing that was known before."""
    ref, members = assembled.snapshot.ref, [one.process for one in assembled.reports.values()]
    everybody: list[ProcessId] = [*members, *assembled.absent]
    pending = PendingSnapshot(
        snapshot=ref.id or SnapshotId(0),
        members={one.instance: one for one in everybody},
        begun=ref.begun or 0.0,
        begun_by=assembled.begun_by,
    )
    for report in assembled.reports.values():
        assert pending.offer(report) is None
    again = pending.assembled(ref.ended or 0.0)
    aside = assembled.snapshot.set_aside  # their reports are not among those that are assembled again
    return replace(again, orphans=assembled.orphans, snapshot=replace(again.snapshot, set_aside=aside))


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_worlds(name: str) -> None:
    opened = 0
    for seed in range(SEEDS):
        run = Run(recipes.plan(name, seed, PROCESSES))
        run.play()
        kept, plain, encoder = Told(Incidents), Told(Straightforward), ColumnEncoder()
        for assembled, _ in run.watch.finished:
            now, again = assembled.snapshot.ref.ended or 0.0, from_all(assembled)
            for predicate in PREDICATES:
                verdict = ask(predicate, assembled.snapshot)
                assert verdict == ask(predicate, again.snapshot)
                kept.sees(verdict, assembled, now)
                plain.sees(verdict, again, now)
            members = {report.process.instance: report.process for report in assembled.reports.values()}
            rows = list(report_rows(again)), [snapshot_row(again, members)]
            assert encoder.reports(assembled).to_pylist() == table_of("reports", rows[0]).to_pylist()
            assert encoder.snapshot(assembled, members).to_pylist() == table_of("snapshots", rows[1]).to_pylist()
        assert kept.said == plain.said
        opened += len(kept.states)
    assert opened or name in WITHOUT_INCIDENTS
