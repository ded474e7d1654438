"""The log has each verdict that changes, but not that a predicate is about a fact which no process has ever declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


async def test_a_fact_that_no_process_has_declared_is_not_logged_until_one_does(
    start_detector: Any, process: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stilltrue")
    a = process("a")

    def logged() -> list[tuple[str, str]]:
        changes = [record for record in caplog.records if record.getMessage() == "verdict changed"]
        return [(one.stilltrue_fields["predicate"], one.stilltrue_fields["holds"]) for one in changes]  # type: ignore[attr-defined]

    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        await detector.ask("token-lost")
        await detector.ask("termination")
        assert {name for name, _ in logged()} & {"token-lost", "token-duplicated", "phase-ended", "lost-message"} == set()
        assert ("termination", "true") in logged()
        a.recorder.fact({"token": 1})
        await detector.ask("token-lost")
        await detector.ask("termination")
        assert ("token-lost", "false") in logged()
        assert "phase-ended" not in {name for name, _ in logged()}
