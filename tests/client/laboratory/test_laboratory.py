"""The proof that a lock is left behind, on random programs: no waiter reported as stuck goes on, and each rule is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.laboratory.mutants import MUTANTS

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 120.0
SEEDS = 24


def laboratory(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run in a separate process: in this one any function of a test might release any lock."""
    command = [sys.executable, "-m", "tests.client.laboratory.worlds", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, cwd=ROOT)


@pytest.mark.longer
@pytest.mark.parametrize(
    "kind", [pytest.param((), id="left"), pytest.param(("--shared",), id="shared", marks=pytest.mark.not_in_ci)]
)
def test_no_reported_waiter_goes_on_and_some_stuck_ones_are_reported(kind: tuple[str, ...]) -> None:
    done = laboratory("--seeds", f"0..{SEEDS}", *kind)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{SEEDS} worlds, ")


@pytest.mark.longer
@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_broken_is_noticed(name: str) -> None:
    seed = MUTANTS[name].seed
    done = laboratory("--seeds", f"{seed}..{seed + 1}")
    assert done.returncode == 0, done.stderr
    broken = laboratory("--seeds", f"{seed}..{seed + 1}", "--mutant", name)
    assert broken.returncode == 1
    assert "reported, and went on" in broken.stderr
