"""A command that signals stop ends, however many of them arrive, and whenever."""

from __future__ import annotations

import signal
import subprocess
import sys

from detector.ops.process.stop_signal import stopped_by_signals

INTERRUPTED_EVERYWHERE = """
import signal, sys
from detector.ops.process.stop_signal import stopped_by_signals

left = 20

def interrupt(frame, event, _):
    global left
    if event == "line" and left and frame.f_code.co_name in {"set", "<lambda>", "__enter__", "__exit__"}:
        left -= 1
        signal.raise_signal(signal.SIGINT)
    return interrupt

with stopped_by_signals() as stop:
    sys.settrace(interrupt)
    signal.raise_signal(signal.SIGINT)
    sys.settrace(None)
    print("stopped" if stop.wait(5) else "never asked to stop", left < 20)
"""


def test_a_signal_within_the_handler_of_another_does_not_hang_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_EVERYWHERE], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.stdout, ended.stderr) == ("stopped True\n", "")


def test_a_signal_ends_a_wait_and_is_remembered() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopped_by_signals() as stop:
        assert not stop.is_set()
        assert not stop.wait(0.01)
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        assert stop.wait()
        assert stop.wait(100)
        assert stop.is_set()
    assert signal.getsignal(signal.SIGTERM) is before
