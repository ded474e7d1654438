"""The scenario language's verdicts: evaluates predicates on a snapshot, a manual recording, or the present instant.

- ``verdict ID PREDICATE [key=value ...]`` prints the verdict; the values are the predicate's settings.
- ``expect verdict ID PREDICATE true|false|undetermined [key=value ...]``: the verdict must be this.

ID is a snapshot id, ``now``, or the name of a manual recording. Two facts have a special meaning: ``activity=idle`` (or
``blocked``; otherwise a process is active), and ``waits_for=q,r`` (messages of both are needed) or ``waits_for=q|r`` (one is
enough). A wait whose message is in transit ends by itself and does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from detector.core.registry import PluginError, UnknownPredicateError, ask, find_predicate
from detector.core.snapshot import Snapshot
from detector.graph.columns import WaitColumns
from detector.simulator.fifo.system import GlobalState
from detector.simulator.scenario.fifo import FifoStage, number_of
from detector.simulator.scenario.language import Line, ScenarioError, Verb, facts_of
from stilltrue.fifo import ChannelSnapshot
from stilltrue.model import Activity, Holds, Message, PartyName, ProcessState, SnapshotId, SnapshotRef, Verdict, Wait

_ACTIVITY, _WAITS_FOR = "activity", "waits_for"


class FifoVerdicts:
    """Evaluates predicates on the recordings of a stage."""

    def __init__(self, stage: FifoStage) -> None:
        self._stage = stage

    def verbs(self) -> dict[str, Verb]:
        """The commands by their first words."""
        return {"verdict": self._verdict, "expect verdict": self._expect}

    def _verdict(self, line: Line) -> None:
        verdict = self._ask(line.word(1, "a snapshot"), line.word(2, "a predicate"), line.words[3:])
        self._print(line.words[1], verdict)

    def _expect(self, line: Line) -> None:
        expected = Holds(line.word(4, "true, false or undetermined"))
        verdict = self._ask(line.word(2, "a snapshot"), line.word(3, "a predicate"), line.words[5:])
        if verdict.holds is not expected:
            found = f"{verdict.holds.value}: {verdict.witness.text}"
            raise ScenarioError(f"line {line.number}: {line.text}\n  expected: {expected.value}\n  found:    {found}")
        self._print(line.words[2], verdict)

    def _print(self, about: str, verdict: Verdict) -> None:
        self._stage.printed.append(f"verdict {about} {verdict.predicate}: {verdict.holds.value} ({verdict.witness.text})")

    def _ask(self, about: str, predicate: str, settings: Sequence[str]) -> Verdict:
        try:
            return ask(find_predicate(predicate, facts_of(settings)), self._snapshot(about))
        except (PluginError, UnknownPredicateError) as error:
            raise ValueError(str(error)) from error

    def _snapshot(self, about: str) -> Snapshot:
        if about == "now":
            return snapshot_of(self._stage.system.now())
        look = self._stage.looks.get(about)
        if look is not None:
            manual = ChannelSnapshot(snapshot=SnapshotId(0), states=look.states, channels=look.channels)
            return snapshot_of(manual)
        return snapshot_of(self._stage.completed(number_of([about])))


def snapshot_of(state: GlobalState) -> Snapshot:
    """Convert a global state of FIFO channels to a snapshot for predicates."""
    in_transit = tuple(message for _, messages in sorted(state.channels.items()) for message in messages)
    waits = list(_waits(state, in_transit))
    waiting = {wait.waiter for wait in waits}
    processes = {}
    for name, facts in sorted(state.states.items()):
        declared = Activity(str(facts.get(_ACTIVITY, "active")))
        activity = Activity.BLOCKED if PartyName(name) in waiting else declared
        processes[name] = ProcessState(activity=activity, facts={k: v for k, v in facts.items() if k != _ACTIVITY})
    ref = SnapshotRef(id=state.snapshot or None, members=len(processes))
    return Snapshot(ref=ref, processes=processes, waits=WaitColumns.of(waits), in_transit=in_transit)


def _waits(state: GlobalState, in_transit: Sequence[Message]) -> Iterator[Wait]:
    routes: set[tuple[str, str | None]] = {(message.source, message.target) for message in in_transit}
    for name, facts in sorted(state.states.items()):
        for group in str(facts.get(_WAITS_FOR, "")).split(","):
            among = tuple(PartyName(one) for one in group.split("|") if one)
            if among and not any((one, name) in routes for one in among):
                yield Wait(waiter=PartyName(name), among=among, what="a message")
