"""What is published, made once, and an empty environment with the wheels in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from detector.release.publish import ROOT, publish

UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with everything that ``make release`` makes."""
    out = tmp_path_factory.mktemp("published") / "dist"
    publish(out)
    return out


@pytest.fixture(scope="session")
def installed(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that had nothing in it, with the two wheels and what they need, outside the checkout."""
    prefix = tmp_path_factory.mktemp("empty") / "env"
    wheels = [str(path) for path in published.glob("*.whl")]
    subprocess.run([str(UV), "venv", "-q", "--python", sys.executable, str(prefix)], check=True)
    command = [str(UV), "pip", "install", "-q", "--python", str(prefix / "bin" / "python"), "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*command, *wheels], check=True, cwd=prefix)
    return prefix
