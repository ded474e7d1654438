"""The examples in docs/checkpoints.md and the package's README.md run unchanged, and the API is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import detector.checkpoints

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "checkpoints.md", ROOT / "detector" / "checkpoints" / "README.md")
BLOCKS = [block for doc in DOCS for block in re.findall(r"```python\n(.*?)```", doc.read_text(), flags=re.DOTALL)]


@pytest.mark.live
@pytest.mark.parametrize("block", BLOCKS, ids=["live channels", "files", "readme"])
def test_the_example_runs(block: str) -> None:
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_public_api_is_sorted_and_exists() -> None:
    names = detector.checkpoints.__all__
    assert sorted(names) == names
    assert [name for name in names if not hasattr(detector.checkpoints, name)] == []
