"""Processes and the detector die, stop and come back at any moment: the applications never notice, the answers stay right."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from detector.demo.demos import Play
from detector.demo.harness import Stage

pytestmark = pytest.mark.live
Verdict = dict[str, Any]
Until = Callable[[str], Verdict]


def deadlocked(stage: Stage, until_true: Until) -> Verdict:
    """The stage with the pools of one circle full for ever."""
    stage.start_scene("detector.demo.scenes:POOLS")
    stage.actors["load"].tell({"threads": 6})
    return until_true("deadlock")


def open_incidents(stage: Stage) -> list[dict[str, Any]]:
    listed = json.loads(stage.run("incidents", "--json").stdout)
    return [incident for incident in listed if incident["closed"] is None]


def test_a_killed_party_ends_the_deadlock_and_closes_the_incident(stage: Stage, play: Play, until_true: Until) -> None:
    deadlocked(stage, until_true)
    stage.actors["billing"].send(signal.SIGKILL)
    play.until("the end of the deadlock", lambda: play.verdict("deadlock")["holds"] is False)
    play.until("the incident's end", lambda: not open_incidents(stage))


def test_a_stopped_bystander_does_not_silence_the_detector(stage: Stage, play: Play, until_true: Until) -> None:
    first = deadlocked(stage, until_true)
    stage.actors["load"].send(signal.SIGSTOP)
    verdict = play.verdict("deadlock")
    assert verdict["holds"] is True
    assert verdict["missing"] == ["load"]
    assert verdict["core"] == first["core"]
    stage.actors["load"].send(signal.SIGCONT)
    play.until("the report of load", lambda: play.verdict("deadlock")["missing"] == [])
    assert play.verdict("deadlock")["behind"] == first["behind"]


def test_a_stopped_party_leaves_the_answer_open(stage: Stage, play: Play, until_true: Until) -> None:
    deadlocked(stage, until_true)
    stage.actors["stock"].send(signal.SIGSTOP)
    done = stage.run("ask", "deadlock", "--json")
    assert done.returncode == 3
    verdict = json.loads(done.stdout)
    assert verdict["holds"] is None
    assert verdict["missing"] == ["stock"]
    stage.actors["stock"].send(signal.SIGCONT)
    play.until("the answer", lambda: play.verdict("deadlock")["holds"] is True)


def test_a_restarted_detector_finds_the_same_incident(stage: Stage, play: Play, until_true: Until) -> None:
    first = deadlocked(stage, until_true)
    play.until("the incident", lambda: bool(open_incidents(stage)))
    before = open_incidents(stage)
    ports = tuple(int(address.rsplit(":", 1)[1]) for address in (stage.detector, stage.http))
    stage.actors["detector"].send(signal.SIGKILL)
    stage.actors["detector"].process.wait()
    stage.start_detector("--period-seconds", "0.5", ports=(ports[0], ports[1]))
    verdict = until_true("deadlock")
    play.until("all members", lambda: play.verdict("deadlock")["behind"] == first["behind"])
    assert verdict["snapshot"]["id"] > first["snapshot"]["id"]
    after = open_incidents(stage)
    assert [i["id"] for i in after] == [i["id"] for i in before]


def test_the_applications_never_notice(stage: Stage, play: Play) -> None:
    """Calls go on, and none fails, while the detector is stopped, killed, absent, and back."""
    stage.start_scene("live_scenes:POOLS_LIGHT")

    def goes_on() -> None:
        before = stage.stats("load")["done"]
        play.until("more calls", lambda: stage.stats("load")["done"] > before + 20)

    goes_on()
    stage.actors["detector"].send(signal.SIGSTOP)
    goes_on()
    stage.actors["detector"].send(signal.SIGCONT)
    goes_on()
    ports = tuple(int(address.rsplit(":", 1)[1]) for address in (stage.detector, stage.http))
    stage.actors["detector"].send(signal.SIGKILL)
    stage.actors["detector"].process.wait()
    goes_on()
    stage.start_detector("--period-seconds", "0.5", ports=(ports[0], ports[1]))
    play.until("all members", lambda: play.verdict("deadlock")["snapshot"]["members"] == 4)
    assert play.verdict("deadlock")["holds"] is False
    goes_on()
    assert stage.stats("load")["failed"] == 0
