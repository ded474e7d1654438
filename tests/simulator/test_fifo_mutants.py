"""Each numbered rule of markers and barriers, broken on purpose, is caught within a few seeded systems.

Run with ``-s`` to see how many systems each took; docs/checkpoints.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from detector.checkpoints.protocol.barriers import BarrierRecorder
from detector.simulator.fifo.permutation import check_reachable
from detector.simulator.fifo.system import FifoSystem, RecorderOf, StepError, markers
from detector.simulator.scenario.fifo import barriers
from stilltrue.fifo import ChannelError, Finished, Hold, MarkerRecorder

WORLDS_MAX = 100
Mutant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def fifo() -> ModuleType:
    """The seeded systems of test_fifo.py."""
    spec = spec_from_file_location("stilltrue_fifo_systems", Path(__file__).with_name("test_fifo.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def breach(fifo: ModuleType, seed: int, recorder: RecorderOf) -> str:
    """The faults in the snapshots of the system with this seed; empty if there are none."""
    try:
        system: FifoSystem = fifo.systems(seed, recorder)
    except (ChannelError, StepError) as error:
        return str(error)
    if set(system.snapshots) != set(system.pending):
        return "a snapshot never ended"
    for snapshot, state in system.snapshots.items():
        if fifo.total(state) != fifo.total(system.initial):
            return f"snapshot {snapshot} has {fifo.total(state)} tokens"
        try:
            check_reachable(system, snapshot)
        except StepError as error:
            return str(error)
    return ""


def marker_1_sends_no_marker_on_its_last_channel(patch: pytest.MonkeyPatch) -> None:
    cut = MarkerRecorder._cut

    def without_last(self: Any, snapshot: Any, state: Any, **more: Any) -> Any:
        effects = cut(self, snapshot, state, **more)
        return effects[:-1] if len(self._sent) > 1 and not isinstance(effects[-1], Finished) else effects

    patch.setattr(MarkerRecorder, "_cut", without_last)


def marker_2_does_not_cut_at_the_first_marker_but_at_the_last(patch: pytest.MonkeyPatch) -> None:
    marked = MarkerRecorder.marked

    def late(self: Any, on: Any, snapshot: Any, state: Any) -> Any:
        waiting = self.__dict__.setdefault("late", {}).setdefault(snapshot, [])
        if snapshot in self._under_way:
            return marked(self, on, snapshot, state)
        waiting.append(on)
        if len(waiting) < len(self._received):
            return ()
        return tuple(effect for one in waiting for effect in marked(self, one, snapshot, state))

    patch.setattr(MarkerRecorder, "marked", late)


def marker_2_goes_on_recording_the_first_markers_channel(patch: pytest.MonkeyPatch) -> None:
    marked = MarkerRecorder.marked

    def late(self: Any, on: Any, snapshot: Any, state: Any) -> Any:
        first = snapshot not in self._under_way
        effects = marked(self, on, snapshot, state)
        if first and snapshot in self._under_way:
            self._under_way[snapshot].open[on] = []
        return effects

    patch.setattr(MarkerRecorder, "marked", late)


def marker_3_keeps_no_message(patch: pytest.MonkeyPatch) -> None:
    def received(self: Any, on: Any, message: Any) -> Any:
        self._received[on] += 1
        return ()

    patch.setattr(MarkerRecorder, "received", received)


def marker_3_keeps_messages_in_the_wrong_order(patch: pytest.MonkeyPatch) -> None:
    close = MarkerRecorder._close

    def reversed_(self: Any, snapshot: Any, recording: Any, on: Any) -> Any:
        recording.open[on].reverse()
        return close(self, snapshot, recording, on)

    patch.setattr(MarkerRecorder, "_close", reversed_)


def marker_4_keeps_a_message_for_the_oldest_snapshot_only(patch: pytest.MonkeyPatch) -> None:
    received = MarkerRecorder.received

    def oldest(self: Any, on: Any, message: Any) -> Any:
        under_way = self._under_way
        self._under_way = dict(list(under_way.items())[:1])
        effects = received(self, on, message)
        self._under_way = under_way
        return effects

    patch.setattr(MarkerRecorder, "received", oldest)


def marker_5_finishes_before_the_last_marker(patch: pytest.MonkeyPatch) -> None:
    finish = MarkerRecorder._finish

    def early(self: Any, snapshot: Any, recording: Any) -> Any:
        if len(recording.open) == 1 and len(self._received) > 1:
            one, messages = recording.open.popitem()
            recording.closed[one] = tuple(messages)
        return finish(self, snapshot, recording)

    patch.setattr(MarkerRecorder, "_finish", early)


def barrier_2_aligns_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BarrierRecorder, "_regular", lambda self: [])


def barrier_2_holds_nothing(patch: pytest.MonkeyPatch) -> None:
    marked = BarrierRecorder.marked

    def unheld(self: Any, on: Any, snapshot: Any, state: Any) -> Any:
        return tuple(one for one in marked(self, on, snapshot, state) if not isinstance(one, Hold))

    patch.setattr(BarrierRecorder, "marked", unheld)


def barrier_2_holds_nothing_and_says_nothing(patch: pytest.MonkeyPatch) -> None:
    barrier_2_holds_nothing(patch)

    def received(self: Any, on: Any, message: Any) -> Any:
        self._received[on] += 1
        return tuple(effect for s, one in self._logging.items() for effect in self._log(s, one, on, message))

    patch.setattr(BarrierRecorder, "received", received)


def barrier_3_never_releases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BarrierRecorder, "_release", lambda self, aligned=(): ())


def barrier_4_forgets_the_loop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BarrierRecorder, "_log", lambda self, *rest: ())


def barrier_4_waits_for_its_own_loop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BarrierRecorder, "_regular", lambda self: list(self._received))
    marked = BarrierRecorder.marked

    def all_regular(self: Any, on: Any, snapshot: Any, state: Any) -> Any:
        self._back = frozenset()
        return marked(self, on, snapshot, state)

    patch.setattr(BarrierRecorder, "marked", all_regular)


MUTANTS: list[tuple[Mutant, RecorderOf]] = [
    *((mutant, markers) for name, mutant in sorted(globals().items()) if name.startswith("marker_")),
    *((mutant, barriers) for name, mutant in sorted(globals().items()) if name.startswith("barrier_")),
]


@pytest.mark.parametrize(("mutant", "recorder"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_the_mutant_is_caught(fifo: ModuleType, mutant: Mutant, recorder: RecorderOf, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    caught = next(((seed, what) for seed in range(WORLDS_MAX) if (what := breach(fifo, seed, recorder))), None)
    assert caught is not None, f"{mutant.__name__} went unnoticed in {WORLDS_MAX} systems"
    print(f"{mutant.__name__}: system {caught[0] + 1}: {caught[1]}")


def test_nothing_is_caught_when_no_rule_is_broken(fifo: ModuleType) -> None:
    for recorder in (markers, barriers):
        assert [what for seed in range(20) if (what := breach(fifo, seed, recorder))] == []
