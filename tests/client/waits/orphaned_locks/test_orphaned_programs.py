"""Locks and semaphores left behind, with no holder and no party to release them. Each program has its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.waits.orphaned_locks import orphaned_programs

PROGRAMS = Path(orphaned_programs.__file__)
PATIENCE_SECONDS = 60.0


def run(program: str) -> dict[str, list[str]]:
    """The waiter as it is seen: the parties that it waits for, and the result of the second look."""
    command = [sys.executable, "-m", "tests.client.waits.orphaned_locks.orphaned_programs", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("program", orphaned_programs.LEFT)
def test_a_wait_for_an_abandoned_lock_is_a_wait_for_an_ended_holder(program: str) -> None:
    found = run(program)
    assert len(found["among"]) == 1
    assert found["among"][0].startswith("shop/ended:")
    assert found["look"] == ["True", "", ""]


@pytest.mark.parametrize("program", orphaned_programs.NEAR)
def test_a_lock_that_may_still_be_released_is_not_abandoned(program: str) -> None:
    assert [one for one in run(program)["among"] if one.startswith("shop/ended:")] == []


@pytest.mark.parametrize("program", orphaned_programs.UNDONE)
def test_who_may_run_code_that_is_not_read_may_release_an_abandoned_lock(program: str) -> None:
    found = run(program)
    assert found["among"][0].startswith("shop/ended:")
    assert "repairs" in found["look"][2]
