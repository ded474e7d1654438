"""The cost of a second look at an application under uvicorn whose request waits for its own caller's lock.

The processor time of the first look, which reads the code, and of later ones, beside the bound on a look.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.longer, pytest.mark.not_in_ci]
PART = Path(__file__).with_name("look_cost_part.py")
SECONDS_MAX = 300


def test_a_look_at_a_cycle_under_uvicorn() -> None:
    done = subprocess.run([sys.executable, str(PART)], check=False, capture_output=True, text=True, timeout=SECONDS_MAX)
    print(f"\n{done.stdout}")
    assert done.returncode == 0, done.stderr
    assert "nothing in doubt" in done.stdout
