"""A cure in real processes: every kind of deadlock ends, its callers get the reason, and later calls are served."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from detector.demo.demos import Demo
from detector.demo.harness import Harness

pytestmark = [pytest.mark.live, pytest.mark.longer]
Verdict = dict[str, Any]
Until = Callable[[str], Verdict]


@pytest.fixture
def curable(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """A detector that lets operators end incidents, and processes that let it."""
    monkeypatch.setenv("STILLTRUE_ALLOW_CURE", "true")
    harness.processes.pop("detector").stop()
    harness.start_detector("--period-seconds", "0.5", "--lease-seconds", "2", "--forget-seconds", "8", "--allow-cure")
    return harness


def begin(harness: Harness, scene: str) -> None:
    """Start a scene, and have it deadlock."""
    harness.start_scene(scene)
    match scene.partition(":")[2]:
        case "POOLS":
            harness.processes["load"].tell({"threads": 2})  # none is queued, whose call would undo the cure
        case "LOCKS":
            harness.processes["warehouse"].tell({"threads": 1})
        case "SELF":
            harness.processes["load"].tell({"call": {"method": "echo.Outer", "count": 1, "strength": 0}})
        case _:
            harness.processes["load"].tell({"call": {"method": "front.Place", "count": 1, "strength": 0}})


NEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "detector.demo.scenes:POOLS": ("load", {"threads": 1}),
    "detector.demo.scenes:LOCKS": ("warehouse", {"threads": 0}),
    "live_scenes:SELF": ("load", {"call": {"method": "echo.Inner", "count": 1, "strength": 0}}),
    "live_scenes:FAN_OUT_AIO": ("load", {"call": {"method": "back.Put", "count": 1, "strength": 0}}),
}
"""What a caller is told after the cure, so that it does not deadlock again, but still calls those that were in it."""


CALLERS = frozenset({"load", "shop", "warehouse"})


def count(harness: Harness, what: str) -> int:
    """``done`` or ``failed`` calls of all callers."""
    return sum(harness.stats(name)[what] for name in CALLERS & harness.processes.keys())


@pytest.mark.parametrize("scene", [pytest.param(one, marks=[] if ":POOLS" in one else [pytest.mark.not_in_ci]) for one in NEXT])
def test_a_cure_ends_the_incident_and_is_noted_there(curable: Harness, demo: Demo, until_true: Until, scene: str) -> None:
    begin(curable, scene)
    until_true("deadlock")
    demo.until("the incident", lambda: bool(open_ones(curable)))
    name = open_ones(curable)[0]["id"]
    plan = curable.run("cure", name, "--dry-run", "--json")
    assert plan.returncode == 0, plan.stdout + plan.stderr
    planned = json.loads(plan.stdout)
    assert not planned["over"]
    assert open_ones(curable)[0]["id"] == name, "a dry run changes nothing"
    caller, command = NEXT[scene]
    if "threads" in command:  # those that are stuck call no more once they are free
        curable.processes[caller].tell(command)
    served, failed = count(curable, "done"), count(curable, "failed")
    done = curable.run("cure", name, "--yes", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["over"] is True
    assert [one["aborted"] for one in told["victims"]] == [True] * len(planned["victims"])
    (incident,) = [one for one in json.loads(curable.run("incidents", "--json").stdout) if one["id"] == name]
    assert incident["closed"] is not None
    assert [note["text"].partition(" ")[0] for note in incident["cures"]] == [f"{told['victims'][0]['party']}:", name]
    audit = [json.loads(line) for line in (curable.folder / "data" / "audit.jsonl").read_text().splitlines()]
    assert [entry["what"] for entry in audit] == ["cure begun", "cure done", "cure over"]
    assert {entry["incident"] for entry in audit} == {name}
    assert curable.run("cure", name, "--yes").returncode == 2, "it is over"
    demo.until("a caller that is told", lambda: count(curable, "failed") > failed)
    if "call" in command:
        curable.processes[caller].tell(command)

    demo.until("a call that is served", lambda: count(curable, "done") > served)


def open_ones(harness: Harness) -> list[dict[str, Any]]:
    return [one for one in json.loads(harness.run("incidents", "--open", "--json").stdout) if one["predicate"] == "deadlock"]
