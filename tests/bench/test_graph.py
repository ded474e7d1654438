"""The reduction on random and adversarial graphs, and the verdict of a live snapshot; docs/graph.md has the table."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from detector.core.snapshot import Snapshot
from detector.graph.columns import WaitColumns
from detector.graph.reduction import reduce, remainder
from detector.predicates.deadlock import Deadlock
from stilltrue.model import Holds, PartyName, Wait

sys.path.insert(0, str(Path(__file__).parent))
WORLDS: dict[str, Any] = import_module("graph_worlds").WORLDS


@pytest.mark.parametrize("name", list(WORLDS))
def test_reduction_of_10_894_parties(benchmark: Any, name: str) -> None:
    world: WaitColumns = WORLDS[name](10_894)
    left = benchmark.pedantic(lambda: remainder(world), rounds=5, warmup_rounds=1)
    assert left.tolist() == reduce(world).remainder().tolist()


@pytest.mark.parametrize("stuck", [True, False])
def test_verdict_of_1_000_processes_with_20_parties_each(benchmark: Any, stuck: bool) -> None:
    names = [PartyName(f"svc-{process}/Call#{at}") for process in range(1_000) for at in range(20)]
    first = 0 if stuck else 20
    rows = (Wait(waiter=names[at], among=(names[at - 20],), since=1.0, what="the reply") for at in range(first, len(names)))
    waits = WaitColumns.of(rows)
    verdict = benchmark.pedantic(lambda: Deadlock().evaluate(Snapshot(waits=waits)), rounds=3, warmup_rounds=1)
    assert verdict.holds is (Holds.TRUE if stuck else Holds.FALSE)
