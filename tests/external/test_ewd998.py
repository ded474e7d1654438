"""The published EWD998 trace (tlaplus/Examples): `termination` is right at its consistent cuts, and stable."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from detector.core.protocol.assembler import Outcome
from detector.core.snapshot import Snapshot
from detector.predicates.termination import Termination
from stilltrue.model import Activity, Holds, Message, ProcessName, ProcessState
from tests.external.ewd998 import TRACE, Cut, Trace, closed, extension, read_trace, terminated
from tests.external.ewd998_run import AT_ONCE, Manner, Taken, play
from tests.external.shared import published

CUTS = 300


@pytest.fixture(scope="module")
def trace() -> Trace:
    return read_trace(published(TRACE))


def snapshot(trace: Trace, cut: Cut) -> Snapshot:
    """The state in which each node has gone through its first ``cut[node]`` events."""
    active = [True] * len(trace)
    moving: Counter[tuple[int, int]] = Counter()
    for node, count in enumerate(cut):
        for one in trace[node][:count]:
            match one.kind:
                case "send":
                    moving[one.source, one.target] += 1
                case "receive":
                    moving[one.source, one.target] -= 1
                    active[node] = True
                case "deactivate":
                    active[node] = False
    assert min(moving.values(), default=0) >= 0, "received before it was sent: no consistent cut"
    return Snapshot(
        processes={
            ProcessName(f"n{node}"): ProcessState(activity=Activity.ACTIVE if one else Activity.IDLE)
            for node, one in enumerate(active)
        },
        in_transit=tuple(
            Message(source=ProcessName(f"n{source}"), target=ProcessName(f"n{target}"))
            for (source, target), count in sorted(moving.items())
            for _ in range(count)
        ),
    )


def says(trace: Trace, cut: Cut) -> bool:
    verdict = Termination().evaluate(snapshot(trace, cut))
    assert verdict.holds is not Holds.UNDETERMINED
    return verdict.holds is Holds.TRUE


def test_the_trace_equals_the_published_one(trace: Trace) -> None:
    assert [len(trace), sum(map(len, trace))] == [5, 654]


@pytest.mark.parametrize("seed", range(3))
def test_termination_is_right_and_stable_at_every_prefix_of_a_linear_extension(trace: Trace, seed: int) -> None:
    prefixes = list(extension(trace, Random(seed)))
    answers = [says(trace, cut) for cut in prefixes]
    assert len(answers) == 655
    assert answers == [terminated(trace, cut) for cut in prefixes]
    assert answers == sorted(answers), "once true, still true"
    assert answers[-1]
    assert not answers[0]


def test_termination_is_right_at_random_consistent_cuts(trace: Trace) -> None:
    random = Random(998)
    cuts = {closed(trace, [len(own) - min(len(own), int(random.expovariate(0.05))) for own in trace]) for _ in range(CUTS)}
    for seed in range(5):
        cuts.update(random.sample(list(extension(trace, Random(100 + seed))), 400))
    assert len(cuts) >= 1_000
    wrong = [cut for cut in sorted(cuts) if says(trace, cut) != terminated(trace, cut)]
    assert wrong == []
    assert {terminated(trace, cut) for cut in cuts} == {True, False}


def moving(trace: Trace, cut: Cut) -> Counter[str]:
    """The number of each process's payloads in transit at ``cut``."""
    return Counter(message.source for message in snapshot(trace, cut).in_transit)


def answer(taken: Taken) -> Holds:
    return Termination().evaluate(taken.made.assembled.snapshot).holds


def test_reports_at_each_prefix_show_the_state_there(trace: Trace) -> None:
    prefixes = list(extension(trace, Random(4)))
    run = play(trace, Random(4), AT_ONCE)
    assert [taken.cut for taken in run] == prefixes
    for taken in run:
        found = taken.made.assembled
        assert found.outcome is Outcome.COMPLETE
        assert Counter(message.source for message in found.snapshot.in_transit) == moving(trace, taken.cut)
        idle = {name for name, state in found.snapshot.processes.items() if state.activity is Activity.IDLE}
        assert idle == {name for name, state in snapshot(trace, taken.cut).processes.items() if state.activity is Activity.IDLE}
        assert (answer(taken) is Holds.TRUE) == terminated(trace, taken.cut)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.longer) for seed in (2, 3))])
def test_markers_at_any_time_make_a_consistent_cut_with_the_right_answer(trace: Trace, seed: int) -> None:
    run = play(trace, Random(seed), Manner(marks_share=0.3))
    spread = [taken for taken in run if taken.cut not in (taken.begun, taken.ended)]
    assert len(spread) > 50
    for taken in run:
        found = taken.made.assembled
        assert found.outcome is Outcome.COMPLETE
        assert Counter(message.source for message in found.snapshot.in_transit) == moving(trace, taken.cut)
        assert (answer(taken) is Holds.TRUE) == terminated(trace, taken.cut)


@pytest.mark.parametrize("seed", range(4))
def test_lost_reports_cause_no_true_and_false_only_if_a_process_may_act(trace: Trace, seed: int) -> None:
    run = play(trace, Random(seed), Manner(marks_share=0.3, lost_share=0.2))
    outcomes = Counter(taken.made.assembled.outcome for taken in run)
    assert set(outcomes) == {Outcome.COMPLETE, Outcome.INCOMPLETE}
    for taken in run:
        holds = answer(taken)
        if taken.made.assembled.outcome is Outcome.COMPLETE:
            assert (holds is Holds.TRUE) == terminated(trace, taken.cut)
        else:
            assert holds is not Holds.TRUE
        assert holds is not Holds.FALSE or not terminated(trace, taken.begun)
