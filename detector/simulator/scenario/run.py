"""Runs a scenario about FIFO channels: checks its expectations, and returns its output and the diagram's events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from detector.simulator.diagram import Event
from detector.simulator.scenario.expectations import FifoExpectations
from detector.simulator.scenario.fifo import FifoStage
from detector.simulator.scenario.language import Verb, parse, play
from detector.simulator.scenario.verdicts import FifoVerdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The output of a scenario, and the diagram's events: those of the system (before or after a restore) with the most."""

    printed: tuple[str, ...]
    events: tuple[Event, ...]


def run_scenario(text: str, *, more: Mapping[str, Verb] | None = None) -> Outcome:
    """Run ``text``; raises ScenarioError that names the line that cannot be parsed, is impossible, or is not met.

    ``more`` adds or replaces verbs, for worlds other than FIFO channels.
    """
    stage = FifoStage()
    verbs = {**stage.verbs(), **FifoExpectations(stage).verbs(), **FifoVerdicts(stage).verbs(), **(more or {})}
    play(parse(text), verbs)
    longest = max((*stage.left, stage.system), key=lambda system: len(system.events))
    return Outcome(printed=tuple(stage.printed), events=tuple(longest.events))
