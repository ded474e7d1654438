"""``stilltrue run`` of the detector's command; the agent's own is in tests/client/test_launch.py."""

from __future__ import annotations

import subprocess
import sys


def test_an_invalid_detector_address_is_refused() -> None:
    """As where its value was forgotten: ``--detector -- python app.py``."""
    command = [sys.executable, "-m", "detector", "run", "--detector", "--", sys.executable, "-c", "print('begun')"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--detector" in done.stderr


def test_a_url_is_refused_with_the_address_to_write() -> None:
    command = [sys.executable, "-m", "detector", "run", "--detector", "http://127.0.0.1:7600/", "--", "true"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--detector: 'http://127.0.0.1:7600/' is a URL, not HOST:PORT: write 127.0.0.1:7600" in done.stderr


def test_a_group_of_commands_prints_its_help_as_help() -> None:
    done = subprocess.run([sys.executable, "-m", "detector", "probe"], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Commands:\n  postgres " in done.stdout
