"""Finds the Java that Spark needs; if there is none, the error says what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_MAJOR_MIN = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


class JavaError(Exception):
    """Spark cannot run without Java; the message is one line that says what to install."""


def find_java() -> Path:
    """Return the ``java`` that Spark will use: that of ``JAVA_HOME``, else the first on the ``PATH``.

    Raises
    ------
    JavaError
        If there is none, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise JavaError(f"the pipeline needs Java {JAVA_MAJOR_MIN} or newer, but there is none {where}: {_advice()}")
    major = java_major(_version(found))
    if major is None:
        raise JavaError(
            f"the pipeline needs Java {JAVA_MAJOR_MIN} or newer, but {found} does not state its version: {_advice()}"
        )
    if major < JAVA_MAJOR_MIN:
        raise JavaError(f"the pipeline needs Java {JAVA_MAJOR_MIN} or newer, but {found} is Java {major}: {_advice()}")
    return Path(found)


def java_major(text: str) -> int | None:
    """Parse the major version from ``java -version``: 17 in ``openjdk version "17.0.15"``, 8 in ``"1.8.0_402"``."""
    match = _VERSION.search(text)
    if match is None:
        return None
    first = int(match[1])
    return int(match[2] or 0) if first == 1 else first


def _version(java: str) -> str:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout


def _advice() -> str:
    return "install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
