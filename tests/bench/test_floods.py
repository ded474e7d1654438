"""Under every flood an honest question is answered, and truly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.flood_kinds import FLOODS
from tests.bench.floods import ASK_SECONDS_MAX, waited


@pytest.mark.timeout(600)
@pytest.mark.skipif(not os.environ.get("STILLTRUE_BENCH"), reason="the floods take minutes; make bench runs them")
@pytest.mark.parametrize("flood", FLOODS)
async def test_an_honest_asker_is_answered_under_a_flood(flood: str, tmp_path: Path) -> None:
    found = await waited(flood, 1.0, tmp_path)
    assert found.failed == 0
    assert "FALSE" not in found.holds, "two of the honest agents are deadlocked"
    assert found.worst < ASK_SECONDS_MAX
