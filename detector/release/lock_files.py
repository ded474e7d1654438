"""Writes the lock files of the images, with hashes: ``make locks``, after a change of constraints.txt or of dependencies."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "helm" / "image"
LOCKS: Mapping[str, tuple[str, ...]] = {
    "requirements.txt": ("archive", "kafka", "probe"),
    "requirements-spark.txt": ("archive", "kafka", "spark"),
}
"""The lock files, and the extras of the detector that each includes."""
_HEAD = "# Made by `make locks` from pyproject.toml and constraints.txt; helm/image/install installs nothing else.\n"


def write_locks() -> None:
    """Resolve each lock file again, for all Python versions and platforms."""
    uv = str(Path(sys.executable).with_name("uv"))
    with tempfile.TemporaryDirectory() as wheels:
        subprocess.run([uv, "build", "-q", "--wheel", "--out-dir", wheels, str(ROOT / "clients" / "python")], check=True)
        for name, extras in LOCKS.items():
            command = [
                uv,
                "pip",
                "compile",
                "-q",
                "--universal",
                "--python-version",
                "3.11",
                "--generate-hashes",
                "--no-header",
            ]
            command += ["--no-annotate", "--constraint", "constraints.txt", "--find-links", wheels]
            command += ["--no-emit-package", "stilltrue", *(f"--extra={extra}" for extra in extras), "pyproject.toml"]
            done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            (FOLDER / name).write_text(_HEAD + done.stdout)


if __name__ == "__main__":
    write_locks()
