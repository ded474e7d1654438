"""A file's tests run on one worker: they share slow fixtures, and do not compete with each other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RAN = re.compile(r"^\[(gw\d+)\].* PASSED (tests/\S+?)::", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.longer
@pytest.mark.not_in_ci
def test_a_files_tests_run_on_one_worker(tmp_path: Path) -> None:
    """pytest 9.2 with xdist 3.8 takes the groups for names, and says nothing: Spark began once on each worker."""
    flags = f"tests/ops -v -n 2 --dist loadgroup -o cache_dir={tmp_path}"
    command = [sys.executable, "-m", "pytest", *flags.split()]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout
    ran = set(RAN.findall(run.stdout))
    files = {file for _, file in ran}
    assert len(files) > 1
    assert len(ran) == len(files), sorted(ran)
