"""Ctrl-C while `make` sets up an environment: one line, no process left behind, and another try begins from the start."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 30.0
SLOW_PYTHON = """#!/bin/bash
case "$1" in
  --version) echo "Python 3.11.0" ;;
  *) echo $$ > "$PIDS/shell"; sleep 600 & echo $! > "$PIDS/child"; wait ;;
esac
"""


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def content(file: Path) -> str:
    """The text of a file, once it is there."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < end, f"{file.name} was not written"
        time.sleep(0.02)
    return file.read_text().strip()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("target", "folder"), [("demo", ".venv"), ("setup", ".venv"), ("release", "build/release-tools")])
def test_an_interrupted_set_up_says_so_and_leaves_no_process(
    tmp_path: Path, target: str, folder: str, number: signal.Signals
) -> None:
    for file in ("Makefile", "pyproject.toml", "constraints.txt", "clients/python/pyproject.toml"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    backend = tmp_path / "detector" / "release" / "build_backend.py"
    backend.parent.mkdir(parents=True)
    backend.touch()
    python = tmp_path / "slow-python"
    python.write_text(SLOW_PYTHON)
    python.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    make = subprocess.Popen(
        ["make", target, f"PYTHON={python}"],
        cwd=tmp_path,
        env=environment | {"PIDS": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        pids = [int(content(tmp_path / name)) for name in ("shell", "child")]
        os.killpg(make.pid, number)  # as a terminal sends Ctrl-C: to the group in the foreground
        out, err = make.communicate(timeout=PATIENCE_SECONDS)
    finally:
        make.kill()
    assert out == f"Setting up {folder} with Python 3.11.0 ...\n"
    lines = [line for line in err.splitlines() if not line.startswith("make: ")]
    assert lines == [f"the set-up was interrupted: run 'make {target}' again"]
    assert make.returncode not in (0, None)
    end = time.monotonic() + PATIENCE_SECONDS
    while any(map(is_running, pids)):  # they have been sent a signal, and may not have run since
        assert time.monotonic() < end
        time.sleep(0.02)
    assert not list(tmp_path.glob(f"{folder}/.*"))
