"""Cores get the service's ids; a near miss names the party that prevented the deadlock."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from detector.analysis.assembly import assembled
from detector.analysis.verdicts import verdicts_on
from detector.predicates.deadlock import Deadlock
from detector.service.detection.incident.incidents import Incidents
from detector.synthetic.fleet import FleetColumns
from detector.synthetic.fleet_model import Fleet, Ring
from stilltrue.model import Holds
from tests.synthetic.random_snapshots import Judged


def test_cores_get_the_services_ids(run: Judged) -> None:
    rows = verdicts_on(run.snapshots, [Deadlock()], findings=True).to_pylist()
    verdicts = [verdict for verdict in run.verdicts if verdict.predicate == "deadlock"]
    seen = 0
    for made, verdict, row in zip(run.made, verdicts, rows, strict=True):
        if verdict.holds is Holds.TRUE:
            incidents = Incidents(changed=lambda _: None, opened=lambda _: None, find=lambda _: None)
            shown = incidents.cores_in(verdict, made.assembled)
            assert shown is not None
            incidents.saw(shown, 1.0)
            wanted = {(each.id, each.core, each.formed) for each in incidents.open_ones()}
            assert {(each["id"], tuple(each["parties"]), each["formed"]) for each in row["findings"]} == wanted
            seen += 1
    assert seen > 5


def _reports(*, near_miss: bool) -> pa.Table:
    names = [f"s{at}-0" for at in range(6)]
    ring = Ring(number=1, members=(0, 1, 2), first=1, last=2, formed=100.0, near_miss=near_miss)
    fleet = Fleet(
        names=names,
        pools=np.full(6, 2),
        callers=np.arange(6),
        callees=(np.arange(6) + 1) % 6,
        weights=np.full(6, 1 / 6),
    )
    return FleetColumns(fleet, [ring], seed=1, period_seconds=60, begun=1000.0).reports(1, 3, load=0, missing_share=0)


def test_a_near_miss_names_the_party_that_prevented_the_deadlock() -> None:
    rows = verdicts_on(assembled(_reports(near_miss=True)), [Deadlock()], findings=True).to_pylist()
    assert [row["holds"] for row in rows] == ["false", "false", "false"]
    (near,) = rows[0]["findings"]
    assert near["kind"] == "near miss"
    assert near["saved_by"].startswith("s0-0/")
    assert {party.split("/")[0] for party in near["parties"]} == {"s0-0", "s1-0", "s2-0"}
    assert not rows[2]["findings"]


def test_a_deadlock_is_not_a_near_miss() -> None:
    rows = verdicts_on(assembled(_reports(near_miss=False)), [Deadlock()], findings=True).to_pylist()
    assert [[each["kind"] for each in row["findings"] or ()] for row in rows] == [["core"], ["core"], []]
    assert len({row["findings"][0]["id"] for row in rows[:2]}) == 1
