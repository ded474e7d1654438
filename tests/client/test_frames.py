"""The frames of all threads are read without a collection meanwhile."""

from __future__ import annotations

import gc
import sys
import threading
from types import FrameType

import pytest

from stilltrue.runtime import compat


@pytest.mark.parametrize("collects", [True, False])
def test_no_collection_runs_while_the_frames_are_read_and_the_setting_stays(
    monkeypatch: pytest.MonkeyPatch, collects: bool
) -> None:
    while_reading: list[bool] = []

    def current_frames() -> dict[int, FrameType]:
        while_reading.append(gc.isenabled())
        return {threading.get_ident(): sys._getframe()}

    monkeypatch.setattr(sys, "_current_frames", current_frames)
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert threading.get_ident() in compat.innermost_frames()
        assert threading.get_ident() in compat.frames_of_threads()
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()
    assert while_reading == [False, False]
