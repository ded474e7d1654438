"""Each kind of deadlock in real processes is called with exactly its core and the parties behind; near misses are not."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from detector.demo.demos import Demo, healthy
from detector.demo.harness import Harness

pytestmark = pytest.mark.live
Verdict = dict[str, Any]
Until = Callable[[str], Verdict]


def kinds(parties: list[str]) -> Counter[str]:
    """How many parties of each kind: `orders/Place#7` is an `orders/Place`, `load/thread:caller-3` a `load/thread`.

    `front/Place#1.Task-7`, a task of the handler's own, is a `front/Place.Task`.
    """
    return Counter(re.sub(r"#\d+|:.*|-\d+$", "", party) for party in parties)


def call(harness: Harness, method: str, count: int = 1, load: str = "load") -> None:
    harness.processes[load].tell({"call": {"method": method, "count": count, "strength": 0}})


def test_pools_that_call_in_a_cycle_deadlock(harness: Harness, demo: Demo, until_true: Until) -> None:
    harness.start_scene("detector.demo.scenes:POOLS")
    assert demo.verdict("deadlock")["holds"] is False
    harness.processes["load"].tell({"threads": 6})
    verdict = until_true("deadlock")
    assert kinds(verdict["core"]) == {"orders/Place": 2, "stock/Reserve": 2, "billing/Charge": 2}
    assert kinds(verdict["behind"]) == {"load/thread": 6}
    assert verdict["missing"] == []
    assert verdict["witness"]["parties"]


@pytest.mark.longer
def test_the_output_of_show_evaluates_to_the_same_verdict(harness: Harness, until_true: Until, tmp_path: Any) -> None:
    harness.start_scene("live_scenes:SELF")
    call(harness, "echo.Outer", 2)
    asked = until_true("deadlock")
    shown = harness.run("show", str(asked["snapshot"]["id"]), "--format", "json")
    document = tmp_path / "snapshot.json"
    document.write_text(shown.stdout)
    again = harness.run("evaluate", "deadlock", str(document), "--json")
    assert again.returncode == 0
    verdict = json.loads(again.stdout)
    for key in ("holds", "remainder", "core", "behind", "witness", "missing", "until"):
        assert verdict[key] == asked[key], key


def test_a_call_to_itself_on_a_pool_of_one_deadlocks(harness: Harness, until_true: Until) -> None:
    harness.start_scene("live_scenes:SELF")
    call(harness, "echo.Outer")
    verdict = until_true("deadlock")
    assert kinds(verdict["core"]) == {"echo/Outer": 1}
    assert kinds(verdict["behind"]) == {"load/thread": 1}


def test_locks_in_opposite_orders_across_processes_deadlock(harness: Harness, until_true: Until) -> None:
    harness.start_scene("detector.demo.scenes:LOCKS")
    harness.processes["warehouse"].tell({"threads": 1})
    verdict = until_true("deadlock")
    assert kinds(verdict["core"]) == {"orders/Place": 1, "orders/Note": 1, "stock/Reserve": 1, "stock/Restock": 1}
    assert kinds(verdict["behind"]) == {"shop/thread": 1, "warehouse/thread": 1}


@pytest.mark.parametrize("scene", ["FAN_OUT", "FAN_OUT_AIO"])
def test_a_fan_out_with_one_stuck_branch_is_reported(harness: Harness, until_true: Until, scene: str) -> None:
    harness.start_scene(f"live_scenes:{scene}")
    call(harness, "front.Place")
    verdict = until_true("deadlock")
    assert kinds(verdict["core"]) == {"back/Get": 1, "mid/Pass": 1}
    behind = kinds(verdict["behind"])
    assert behind["front/Place"] >= 1
    assert behind["load/thread"] == 1


def test_a_wait_for_the_first_of_two_is_not_stuck(harness: Harness, until_true: Until) -> None:
    harness.start_scene("live_scenes:FIRST_OF")
    call(harness, "front.Place")
    verdict = until_true("deadlock")
    assert kinds(verdict["core"]) == {"back/Get": 1, "mid/Pass": 1}
    assert "front/Place" not in kinds(verdict["behind"])
    assert "load/thread" not in kinds(verdict["behind"])


def test_a_deadline_makes_it_a_gridlock(harness: Harness, demo: Demo, until_true: Until) -> None:
    harness.start_scene("live_scenes:DEADLINE")
    harness.processes["load"].tell({"threads": 6})
    verdict = until_true("gridlock")
    assert verdict["until"] is not None
    assert kinds(verdict["core"]) == {"orders/Place": 2, "stock/Reserve": 2, "billing/Charge": 2}
    assert demo.verdict("deadlock")["holds"] is False


@pytest.mark.parametrize(
    ("scene", "load", "method", "threads"),
    [
        ("POOLS_LIGHT", "load", "orders.Place", 2),
        ("SELF_LIGHT", "load", "echo.Outer", 1),
        pytest.param("LOCKS_LIGHT", "shop", "orders.Place", 2, marks=pytest.mark.longer),
    ],
)
def test_a_near_miss_is_never_called_a_deadlock(
    harness: Harness, demo: Demo, scene: str, load: str, method: str, threads: int
) -> None:
    harness.start_scene(f"live_scenes:{scene}")
    harness.processes[load].tell({"threads": threads})
    before = harness.stats(load)["done"]
    for _ in range(10):
        assert demo.verdict("deadlock")["holds"] is False
    demo.until("more calls", lambda: harness.stats(load)["done"] > before)
    assert demo.count("stilltrue_incidents_total") == 0


def test_a_deadlock_is_reported_without_a_question(harness: Harness, demo: Demo) -> None:
    harness.start_scene("live_scenes:SELF")
    call(harness, "echo.Outer")
    demo.until("the incident", lambda: bool(json.loads(harness.run("incidents", "--json").stdout or "[]")))
    (incident,) = json.loads(harness.run("incidents", "--json").stdout)
    assert kinds(incident["core"]) == {"echo/Outer": 1}
    assert incident["closed"] is None


@pytest.mark.not_in_ci
@pytest.mark.longer
def test_a_healthy_shop_has_no_deadlock(harness: Harness, demo: Demo) -> None:
    """The short form of the soak: cycles, queues, fan-outs, hedged calls, locks, deadlines under load, and no false TRUE."""
    healthy(demo, 8)
