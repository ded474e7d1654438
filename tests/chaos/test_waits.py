"""Programs with every kind of observed wait, with cancellers, timeouts, hand-overs and leaks: none is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from detector.demo.harness import Harness
from tests.chaos.waits.soak import PROGRAMS, Soak

SECONDS = 12.0


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_programs_freed_in_time_are_not_reported(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        said = Soak(harness).run(SECONDS)
        assert "no TRUE" in said
        assert all(harness.processes[name].process.poll() is None for name in PROGRAMS)
