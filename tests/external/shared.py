"""Where the published cases lie, and what a test does where they do not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"


def published(name: str) -> Path:
    """The path of ``name`` below ``../shared``; where it is absent the test is skipped, or fails if it must be there."""
    path = SHARED / name
    if not path.exists():
        if os.environ.get("STILLTRUE_REQUIRE_SHARED") == "1":
            pytest.fail(f"{path} is absent")
        pytest.skip(f"{path} is absent: it lies beside a checkout, not in it")
    return path
