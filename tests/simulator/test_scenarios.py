"""Every scenario file meets its expectations, and fails when its rule is broken."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from detector.checkpoints.protocol.barriers import BarrierRecorder
from detector.simulator.diagram import Kind, diagram
from detector.simulator.scenario.language import ScenarioError, parse
from detector.simulator.scenario.run import run_scenario
from stilltrue.fifo import MarkerRecorder

FOLDER = Path(__file__).resolve().parent.parent / "scenarios"
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.txt"))}
OURS = (
    "two_accounts",
    "single_token",
    "nondeterministic",
    "three_processes",
    "barrier_alignment",
    "cyclic_graph",
    "waiting_ring",
    "loop_ends",
)


@pytest.mark.parametrize("name", OURS)
def test_a_scenario_meets_its_expectations(name: str) -> None:
    outcome = run_scenario(FILES[name].read_text())
    assert any(line.startswith("snapshot 1") for line in outcome.printed)


@pytest.mark.parametrize("name", OURS)
def test_the_scenario_can_be_drawn(name: str) -> None:
    outcome = run_scenario(FILES[name].read_text())
    assert any(event.kind is Kind.CUT for event in outcome.events)
    picture = ET.fromstring(diagram(outcome.events, title=name))
    assert picture.tag.endswith("svg")


def forget_to_send_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 1 broken: the cut without its markers."""
    cut = MarkerRecorder._cut
    monkeypatch.setattr(MarkerRecorder, "_cut", lambda self, *a, **k: cut(self, *a, **k)[:1])


def keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 3 broken: received messages are never recorded."""

    def received(self: MarkerRecorder[object, object], on: object, message: object) -> tuple[object, ...]:
        self._received[on] += 1  # type: ignore[index]
        return ()

    monkeypatch.setattr(MarkerRecorder, "received", received)


def keep_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 3 broken: at the first marker, its own channel continues to be recorded."""
    marked = MarkerRecorder.marked

    def late(self: MarkerRecorder[object, object], on: object, snapshot: object, state: object) -> tuple[object, ...]:
        if snapshot not in self._under_way:
            return self.begins(snapshot, state)  # type: ignore[arg-type]
        return marked(self, on, snapshot, state)  # type: ignore[arg-type]

    monkeypatch.setattr(MarkerRecorder, "marked", late)


def align_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Barrier rule 2 broken: the first barrier cuts."""
    monkeypatch.setattr(BarrierRecorder, "_regular", lambda self: [])


def forget_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Barrier rule 4 broken: messages on a back edge are not kept."""
    monkeypatch.setattr(BarrierRecorder, "_log", lambda self, *a: ())


@pytest.mark.parametrize(
    ("mutant", "names"),
    [
        (forget_to_send_markers, ("two_accounts", "single_token", "nondeterministic", "three_processes")),
        (keep_nothing, ("two_accounts", "single_token", "nondeterministic", "three_processes")),
        (keep_for_ever, ("two_accounts", "single_token", "nondeterministic", "three_processes")),
        (align_nothing, ("barrier_alignment",)),
        (forget_the_loop, ("cyclic_graph",)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_rule_is_caught_by_the_scenarios(
    mutant: Callable[[pytest.MonkeyPatch], None], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for name in names:
        with pytest.raises(ScenarioError):
            run_scenario(FILES[name].read_text())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("process A\nfly A", "line 2: unknown command 'fly'"),
        ("  indented", "line 1: indented, but there is no command above it"),
        ('process A name="x', "line 1: no closing quotation"),
        ("process A\nprocess A", "line 2: process A: processes and channels are declared once"),
        ("process A x", "line 1: process A x: expected key=value, got 'x'"),
        ("process A\nprocess B\nchannel A B", "line 3: channel A B: expected A -> B, got 'A B'"),
        ("process A\nchannel A -> C\nbegin A", "line 3: begin A: channel A -> C names C, which is not a process"),
        ("process A\nprocess B\nchannel A -> B\ndeliver A -> B", "line 4: deliver A -> B: A -> B is empty"),
        ("process A x=1\nprocess B\nchannel A -> B\nsend A -> B moving x=2", "A has x=1 and cannot give 2"),
        ("process A\nprocess B\nchannel A -> B\nsend A -> B m\ndeliver A -> B k", "the head of A -> B is 'm'"),
        ("process A\nexpect snapshot 1", "snapshot 1 has not begun"),
        ("process A\nprocess B\nchannel A -> B\nbegin A\nexpect snapshot 1", "no record of B"),
        ("process A x=1\nbegin A\nexpect snapshot 1\n  A x=2", "expected: A x=2\n  found:    A x=1"),
        ("process A\nprocess B\nloop A -> B", "this channel does not close a cycle"),
        ("process A\nexpect refused\n  set A x=1", "it was not refused"),
        ("process A\nbegin A one", "line 2: begin A one: expected a snapshot id"),
        ("process A\nset", "line 2: set: expected a process"),
        ("process A\nbegin A\nexpect verdict 1 termination true", "expected: true\n  found:    false"),
        ("process A\nbegin A\nexpect verdict 1 nonsense true", "no predicate 'nonsense'"),
        ("process A\nbegin A\nexpect verdict 1 token-lost maybe", "'maybe' is not a valid Holds"),
        ("process A\nbegin A\nverdict 1", "expected a predicate"),
        ("process A\nverdict 1 termination", "snapshot 1 has not begun"),
        ("process A\nexpect look nothing", "line 2: expect look nothing: nothing was recorded under that name"),
    ],
)
def test_an_invalid_scenario_is_refused_with_a_message(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        run_scenario(text)
    assert message in str(caught.value)


def test_comments_blocks_and_quotes_are_read() -> None:
    lines = parse('process A name="two words" # why\n\nexpect now\n  A name="two words"\n')
    assert [line.number for line in lines] == [1, 3]
    assert lines[0].words == ("process", "A", "name=two words")
    assert lines[1].block[0].number == 4


def test_more_verbs_can_join_the_language() -> None:
    heard: list[str] = []
    run_scenario("process A\nhear A whistle", more={"hear": lambda line: heard.append(line.text)})
    assert heard == ["hear A whistle"]
