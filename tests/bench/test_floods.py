"""Under every flood the honest asker is answered, and with the truth."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.floods import ASK_SECONDS_MAX, FLOODS, waited

SHORT = ("asks of one connection", "wishes")
"""Those that every run of the tests tries, for a moment; ``make bench`` tries all of them."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flood", FLOODS if os.environ.get("STILLTRUE_BENCH") else SHORT)
async def test_an_honest_asker_is_answered_under_a_flood(flood: str, tmp_path: Path) -> None:
    found = await waited(flood, 1.0, tmp_path)
    assert found.failed == 0
    assert "FALSE" not in found.holds, "two of the honest agents are deadlocked"
    assert found.worst < ASK_SECONDS_MAX
