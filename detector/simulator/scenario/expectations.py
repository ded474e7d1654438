"""The scenario language's expectations about snapshots in FIFO channels.

- ``expect snapshot ID`` with a block: exactly this global state was recorded. The block has a line per process (``A
  balance=1``) and per channel (``A -> B: first, second balance=2``); a channel that is left out must be empty.
- ``expect now`` with a block: the true state at this instant, in the same form. ``expect look NAME``: the same for a manual
  recording.
- ``expect unfinished ID [missing A B]``: the snapshot has begun, but is not completed.
- ``expect total ID key=value``: the fact summed over processes and channels. ``expect total now key=value`` likewise.
- ``expect occurred ID yes|no``: whether the recorded state ever was the true state.
- ``expect permuted ID`` with a block: the run's events before the cuts, then ``recorded``, then the others; the permutation is
  replayed and must pass through the recorded state (Theorem 1).
- ``expect held A -> B ...``: exactly these channels are held for alignment; ``expect held nothing``.
- ``expect inconsistent NAME A -> B WORDS``: how a manual recording contradicts itself, such as ``n < n'``.
- ``expect refused`` with a block of one command: the command is not possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from detector.simulator.fifo.manual_recording import ManualRecording
from detector.simulator.fifo.permutation import check_reachable, occurred
from detector.simulator.fifo.system import GlobalState, StepError, channel_in_words, global_state_in_words, process_in_words
from detector.simulator.scenario.fifo import FifoStage, channel_of, number_of
from detector.simulator.scenario.language import Line, ScenarioError, Verb, facts_of, play


class FifoExpectations:
    """Checks a stage's system and snapshots against a scenario's expectations."""

    def __init__(self, stage: FifoStage) -> None:
        self._stage = stage

    def verbs(self) -> dict[str, Verb]:
        """The commands by their first two words."""
        return {
            "expect snapshot": self._snapshot,
            "expect now": self._now,
            "expect look": self._look,
            "expect unfinished": self._unfinished,
            "expect total": self._total,
            "expect occurred": self._occurred,
            "expect permuted": self._permuted,
            "expect held": self._held,
            "expect inconsistent": self._inconsistent,
            "expect refused": self._refused,
        }

    def _snapshot(self, line: Line) -> None:
        _expect_lines(line, global_state_in_words(self._stage.completed(number_of(line.words[2:]))))

    def _now(self, line: Line) -> None:
        _expect_lines(line, global_state_in_words(self._stage.system.now()))

    def _look(self, line: Line) -> None:
        look = self._look_named(line)
        processes = [process_in_words(name, facts) for name, facts in sorted(look.states.items())]
        _expect_lines(line, processes + [channel_in_words(one, many) for one, many in sorted(look.channels.items())])

    def _look_named(self, line: Line) -> ManualRecording:
        name = line.word(2, "the name of a manual recording")
        if name not in self._stage.looks:
            raise ValueError("nothing was recorded under that name")
        return self._stage.looks[name]

    def _unfinished(self, line: Line) -> None:
        snapshot = number_of(line.words[2:3])
        if snapshot in self._stage.system.snapshots or snapshot not in self._stage.system.pending:
            raise ValueError("it is completed" if snapshot in self._stage.system.snapshots else "it has not begun")
        if line.words[3:4] == ("missing",):
            _expect(line, self._stage.system.pending[snapshot].missing, line.words[4:])

    def _total(self, line: Line) -> None:
        now = line.words[2:3] == ("now",)
        state = self._stage.system.now() if now else self._stage.completed(number_of(line.words[2:3]))
        for key, expected in facts_of(line.words[3:]).items():
            _expect(line, [f"{key}={_total(state, key)}"], [f"{key}={expected}"])

    def _occurred(self, line: Line) -> None:
        snapshot = number_of(line.words[2:3])
        self._stage.completed(snapshot)
        _expect(line, ["yes" if occurred(self._stage.system, snapshot) else "no"], line.words[3:])

    def _permuted(self, line: Line) -> None:
        snapshot = number_of(line.words[2:])
        self._stage.completed(snapshot)
        order = check_reachable(self._stage.system, snapshot)
        found = [*map(str, order.before), "recorded", *map(str, order.after)]
        self._stage.printed += [f"permuted for snapshot {snapshot}", *(f"  {text}" for text in found)]
        if line.block:
            _expect(line, found, [one.text for one in line.block])

    def _held(self, line: Line) -> None:
        words = " ".join(line.words[2:])
        expected = [] if words == "nothing" else sorted(part.strip() for part in words.split(","))
        _expect(line, sorted(map(str, self._stage.system.held)), expected)

    def _inconsistent(self, line: Line) -> None:
        look = self._look_named(line)
        _expect(line, [look.inconsistency(channel_of(line.words[3:6]))], [" ".join(line.words[6:])])

    def _refused(self, line: Line) -> None:
        try:
            play(line.block, {**self._stage.verbs(), **self.verbs()})
        except ScenarioError:
            return
        raise ValueError("it was not refused")


def _total(state: GlobalState, key: str) -> float:
    total: float = 0
    messages = (message.facts for many in state.channels.values() for message in many)
    for facts in (*state.states.values(), *messages):
        here = facts.get(key, 0)
        if isinstance(here, str):
            raise StepError(f"{key} is text and has no total")
        total += here
    return total


def _expect_lines(line: Line, found: Iterable[str]) -> None:
    expected = {one.text.replace(" :", ":") for one in line.block}
    left_out = {text for text in found if text.endswith(": empty") and text not in expected}
    _expect(line, sorted(set(found) - left_out), sorted(expected))


def _expect(line: Line, found: Sequence[str], expected: Sequence[str]) -> None:
    if list(found) != list(expected):
        raise ScenarioError(
            f"line {line.number}: {line.text}\n  expected: {'; '.join(expected)}\n  found:    {'; '.join(found)}"
        )
