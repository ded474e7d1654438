"""Processes and the detector die, stop and return at any moment: applications never notice, answers stay right."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from detector.demo.demos import Demo
from detector.demo.harness import Harness

pytestmark = pytest.mark.live
Verdict = dict[str, Any]
Until = Callable[[str], Verdict]


def deadlocked(harness: Harness, until_true: Until) -> Verdict:
    """The harness with the pools of one cycle full for ever."""
    harness.start_scene("detector.demo.scenes:POOLS")
    harness.processes["load"].tell({"threads": 6})
    return until_true("deadlock")


def open_incidents(harness: Harness) -> list[dict[str, Any]]:
    listed = json.loads(harness.run("incidents", "--json").stdout)
    return [incident for incident in listed if incident["closed"] is None]


@pytest.mark.longer
def test_a_killed_party_is_lost_and_its_incident_open_until_it_is_forgotten(
    harness: Harness, demo: Demo, until_true: Until
) -> None:
    deadlocked(harness, until_true)
    harness.processes["billing"].send(signal.SIGKILL)
    demo.until("billing to be lost", lambda: [incident["lost"] for incident in open_incidents(harness)] == [["billing"]])
    assert demo.verdict("deadlock")["holds"] is None
    demo.until("the end of the deadlock", lambda: demo.verdict("deadlock")["holds"] is False)
    demo.until("the incident's end", lambda: not open_incidents(harness))


def test_a_stopped_bystander_does_not_silence_the_detector(harness: Harness, demo: Demo, until_true: Until) -> None:
    first = deadlocked(harness, until_true)
    harness.processes["load"].send(signal.SIGSTOP)
    verdict = demo.verdict("deadlock")
    assert verdict["holds"] is True
    assert verdict["missing"] == ["load"]
    assert verdict["core"] == first["core"]
    harness.processes["load"].send(signal.SIGCONT)
    demo.until("the report of load", lambda: demo.verdict("deadlock")["missing"] == [])
    assert demo.verdict("deadlock")["behind"] == first["behind"]


@pytest.mark.longer
def test_a_stopped_party_makes_the_answer_undetermined(harness: Harness, demo: Demo, until_true: Until) -> None:
    deadlocked(harness, until_true)
    harness.processes["stock"].send(signal.SIGSTOP)
    done = harness.run("ask", "deadlock", "--json")
    assert done.returncode == 3
    verdict = json.loads(done.stdout)
    assert verdict["holds"] is None
    assert verdict["missing"] == ["stock"]
    harness.processes["stock"].send(signal.SIGCONT)
    demo.until("the answer", lambda: demo.verdict("deadlock")["holds"] is True)


@pytest.mark.longer
def test_a_restarted_detector_finds_the_same_incident(harness: Harness, demo: Demo, until_true: Until) -> None:
    first = deadlocked(harness, until_true)
    demo.until("the incident", lambda: bool(open_incidents(harness)))
    before = open_incidents(harness)
    ports = tuple(int(address.rsplit(":", 1)[1]) for address in (harness.detector, harness.http))
    harness.processes["detector"].send(signal.SIGKILL)
    harness.processes["detector"].process.wait()
    harness.start_detector("--period-seconds", "0.5", ports=(ports[0], ports[1]))
    verdict = until_true("deadlock")
    demo.until("all members", lambda: demo.verdict("deadlock")["behind"] == first["behind"])
    assert verdict["snapshot"]["id"] > first["snapshot"]["id"]
    after = open_incidents(harness)
    assert [i["id"] for i in after] == [i["id"] for i in before]


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_the_applications_never_notice(harness: Harness, demo: Demo) -> None:
    """Calls go on, and none fails, while the detector is stopped, killed, absent, and back."""
    harness.start_scene("live_scenes:POOLS_LIGHT")

    def goes_on() -> None:
        before = harness.stats("load")["done"]
        demo.until("more calls", lambda: harness.stats("load")["done"] > before + 20)

    goes_on()
    harness.processes["detector"].send(signal.SIGSTOP)
    goes_on()
    harness.processes["detector"].send(signal.SIGCONT)
    goes_on()
    ports = tuple(int(address.rsplit(":", 1)[1]) for address in (harness.detector, harness.http))
    harness.processes["detector"].send(signal.SIGKILL)
    harness.processes["detector"].process.wait()
    goes_on()
    harness.start_detector("--period-seconds", "0.5", ports=(ports[0], ports[1]))
    demo.until("all members", lambda: (said := demo.verdict("deadlock"))["snapshot"]["members"] == 4 and not said["missing"])
    assert demo.verdict("deadlock")["holds"] is False
    goes_on()
    assert harness.stats("load")["failed"] == 0
