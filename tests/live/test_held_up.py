"""Calls that no member has seen are deadlocked only if both ends of their connection name the parties that hold them up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from detector.demo.demos import Demo
from detector.demo.harness import Harness, ManagedProcess

pytestmark = pytest.mark.live
Verdict = dict[str, Any]
PROGRAM = str(Path(__file__).with_name("held_up_scenes.py"))
VERDICTS_MIN = 6
SECONDS_MIN = 2.0
"""Between the first and the last of them: a wait is looked at closely when it has lasted for half a second."""


def start(harness: Harness, scene: str) -> None:
    """Run a scene until everybody waits in it."""
    environment = {"STILLTRUE_DETECTOR": harness.detector}
    process = ManagedProcess(scene, [sys.executable, PROGRAM, scene], environment=environment, log=harness.folder / "scene.log")
    harness.processes[scene] = process
    assert process.line() == "stuck\n"


@pytest.mark.parametrize(
    ("scene", "core"),
    [
        ("blocked_loop", ["a/Outer#1", "b/Go#1"]),
        ("blocked_through_a_future", ["a/Outer#1", "b/Go#1"]),
        ("full_connection", ["a/Outer#1", "b/Go#1"]),
        ("asking_interceptor", ["a/Outer#1", "b/Go#1"]),
    ],
)
def test_the_party_that_holds_up_the_call_is_named(
    harness: Harness, until_true: Callable[[str], Verdict], scene: str, core: list[str]
) -> None:
    start(harness, scene)
    verdict = until_true("deadlock")
    assert set(core) <= set(verdict["core"])
    assert {one["party"] for one in verdict["evidence"] if one["stack"]} >= set(core)


def test_a_task_that_serves_no_call_can_block_its_loop_too(harness: Harness, until_true: Callable[[str], Verdict]) -> None:
    start(harness, "blocked_by_a_task")
    assert {party.partition("#")[0].partition("-")[0] for party in until_true("deadlock")["core"]} == {"a/task:Task", "b/Go"}


@pytest.mark.parametrize(
    "scene",
    [
        "time_out",
        "proxy",
        "full_until_ended",
        "full_windows",
        *(
            pytest.param(one, marks=pytest.mark.longer)
            for one in ("timer", "stranger", "twin", "full_until_cancelled", "full_until_too_old", "other_interceptor_first")
        ),
    ],
)
def test_a_party_that_may_still_proceed_is_not_reported(harness: Harness, demo: Demo, scene: str) -> None:
    start(harness, scene)
    verdicts: list[Verdict] = []

    def enough() -> bool:
        verdicts.append(demo.verdict("deadlock"))
        first, last = (datetime.fromisoformat(verdicts[at]["snapshot"]["begun"]) for at in (0, -1))
        return len(verdicts) >= VERDICTS_MIN and (last - first).total_seconds() >= SECONDS_MIN

    demo.until("enough verdicts", enough)
    assert [verdict["remainder"] for verdict in verdicts if verdict["holds"] is True] == []


@pytest.mark.longer
def test_an_answer_says_that_both_ends_of_a_stream_have_stopped_writing(harness: Harness, demo: Demo) -> None:
    """It is not called a deadlock, but does not look like health either."""
    start(harness, "full_windows")
    verdicts: list[Verdict] = []

    def says_so() -> bool:
        verdicts.append(demo.verdict("deadlock"))
        return "not moved for a while" in verdicts[-1]["witness"]["text"]

    demo.until("the answer to mention the call", says_so)
    assert "1 call has not moved for a while, in no known wait, at a (stilltrue stacks)" in verdicts[-1]["witness"]["text"]
    (spot,) = [one for one in verdicts[-1]["coverage"]["partly"] if one["process"] == "a"]
    assert "serves 1 call that has not moved for a while, in no known wait" in spot["reasons"]
    assert "held_up_scenes.py" in demo.harness.run("stacks", "a").stdout
