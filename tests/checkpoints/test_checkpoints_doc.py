"""The examples in docs/checkpoints.md run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOC = Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOC.read_text(), flags=re.DOTALL)


@pytest.mark.live
@pytest.mark.parametrize("block", BLOCKS, ids=["live channels", "files"])
def test_the_example_runs(block: str) -> None:
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
