"""Cuts of the locked recorder: the report of a cut that any message forces is sent, and markers settle doubts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.stamp import Stamp
from stilltrue.protocol.step import Step
from stilltrue.runtime.declared.idle_declaration import declaration
from stilltrue.runtime.locked_recorder import LockedRecorder

PROCESS = ProcessId(service="a", instance=ProcessName("a"), incarnation=1)
CHANNEL = ChannelRecord("b:1")


@pytest.fixture
def live() -> LockedRecorder:
    return LockedRecorder(lambda: Recorder(process=PROCESS))


def stamp(colour: int) -> Stamp:
    return Stamp(ProcessName("b"), 1, CallNumber(1), SnapshotId(colour), CallNumber(1))


def sent(live: LockedRecorder) -> list[int]:
    return [report.snapshot for report in live.reports]


def test_a_request_of_a_newer_colour(live: LockedRecorder) -> None:
    live.arrived(stamp(5), "/s/M", interruptible=False)
    assert sent(live) == [5]


def test_a_reply_of_a_newer_colour(live: LockedRecorder) -> None:
    made, _ = live.sent("/s/M", CHANNEL, None, None, waiting=False)
    live.settled(made, stamp(6), in_doubt=False)
    assert sent(live) == [6]


def test_a_reply_of_a_newer_colour_while_a_step_is_open(live: LockedRecorder) -> None:
    step = Step()
    key = live.open(step)
    made, _ = live.sent("/s/M", CHANNEL, None, None, waiting=False)
    live.settled(made, stamp(6), in_doubt=False)
    assert sent(live) == [6]
    live.close(key, step)


def test_the_oldest_report_beyond_the_bound_is_dropped_and_counted() -> None:
    live = LockedRecorder(lambda: Recorder(process=PROCESS), reports_max=2)
    for colour in (1, 2, 3):
        live.arrived(stamp(colour), "/s/M", interruptible=False)
    assert (sent(live), live.dropped) == ([2, 3], 1)


def test_a_marker_settles_doubts_before_the_cut(live: LockedRecorder) -> None:
    made, _ = live.sent("/s/M", CHANNEL, None, None, waiting=False)
    live.settled(made, None, in_doubt=True)
    report = live.marked(SnapshotId(1), settled=(made.number,))
    assert report is not None
    assert report.made == ()


_DECLARES: dict[str, Callable[[LockedRecorder], object]] = {
    "a call made": lambda live: live.sent("/s/M", CHANNEL, None, None, waiting=False),
    "a call served": lambda live: live.arrived(None, "/s/M", interruptible=False),
    "idle()": lambda live: live.idle(PartyName("a/main")),
}


@pytest.mark.parametrize("first", _DECLARES)
def test_other_threads_go_on_while_a_declaration_reads_the_process(
    live: LockedRecorder, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[bool] = []

    def reads(*given: Any) -> Any:
        other = threading.Thread(target=live.marked, args=(SnapshotId(1),), daemon=True)
        other.start()
        other.join(10)
        waiting.append(other.is_alive())
        return declaration(*given)

    monkeypatch.setattr("stilltrue.runtime.locked_recorder.declaration", reads)
    _DECLARES[first](live)
    assert waiting == [False]
    assert live.covered is not None


def test_a_renamed_process_sends_its_new_name(live: LockedRecorder) -> None:
    channel = ChannelRecord("b:1")
    channel.answered_by(ProcessName("b"), 1)
    live.sent("/s/M", channel, None, None, waiting=False)
    live.renamed(ProcessId(service="a", instance=ProcessName("a-2"), incarnation=7))
    _, (_, text) = live.sent("/s/M", channel, None, None, waiting=False)
    assert text == f"a-2;7;2;0;2;{channel.known}"


class InterruptedLock:
    """A lock during whose acquisition a signal handler raises: once the lock is acquired, or before."""

    def __init__(self, *, acquired: bool) -> None:
        self.inner: Any = threading.RLock()
        self.acquired = acquired

    def _is_owned(self) -> bool:
        return bool(self.inner._is_owned())

    def acquire(self) -> None:
        if self.acquired:
            self.inner.acquire()
        raise KeyboardInterrupt

    def release(self) -> None:
        self.inner.release()


@pytest.mark.parametrize("acquired", [True, False])
@pytest.mark.parametrize("step", ["sent", "awaits", "settled", "arrived_again", "started", "replied"])
def test_an_interrupted_step_raises_the_interruption_and_leaves_the_lock_free(
    live: LockedRecorder, step: str, acquired: bool
) -> None:
    made, _ = live.sent("/s/M", CHANNEL, None, None, waiting=False)
    served = live.arrived(stamp(0), "/s/M", interruptible=False)
    steps: dict[str, Callable[[], object]] = {
        "sent": lambda: live.sent("/s/M", CHANNEL, None, None, waiting=False),
        "awaits": lambda: live.awaits(made),
        "settled": lambda: live.settled(made, None, in_doubt=False),
        "arrived_again": lambda: live.arrived_again("b;1;2;0;2;~0~", "/s/M", interruptible=False),
        "started": lambda: live.started(served, None),
        "replied": lambda: live.replied(served),
    }
    live.lock = lock = InterruptedLock(acquired=acquired)
    with pytest.raises(KeyboardInterrupt):
        steps[step]()
    assert not lock._is_owned()
