"""Checks the images' packages for known vulnerabilities: ``python -m detector.release.vulnerabilities``.

Not every package index has vulnerability data (mirrors rarely do). So one pin is looked up first, and if the index has no data
the check is reported as skipped, with the reason; it never passes without having looked everything up.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from detector.release.lock_files import FOLDER, LOCKS

PIP_AUDIT = "pip-audit==2.10.1"
ACCEPTED: Mapping[str, str] = {}
"""Vulnerabilities (``GHSA-...``, ``PYSEC-...``, ``CVE-...``) that do not affect us, each with the reason."""

Audit = Callable[[list[str]], Mapping[str, Any]]
"""Returns pip-audit's JSON output for pins such as ``click==8.5.1``."""


def pins(requirements: str) -> list[str]:
    """Return the pinned requirements of a lock file, without hashes."""
    return re.findall(r"^([A-Za-z0-9._-]+==[^\\\n]+?) *\\?$", requirements, flags=re.MULTILINE)


def known_vulnerabilities(pinned: list[str], audit: Audit) -> tuple[list[str], str]:
    """Return a line for each vulnerability that is not accepted, and why pins could not be looked up (empty: all were)."""
    first = _skipped(audit(pinned[:1]))
    if first:
        return [], first[0]
    report = audit(pinned)
    found = [
        f"{each['name']} {each['version']}: {one['id']}"
        + (f", fixed in {', '.join(one['fix_versions'])}" if one["fix_versions"] else ", not fixed yet")
        for each in report["dependencies"]
        for one in each.get("vulns", ())
        if not {one["id"], *one["aliases"]} & set(ACCEPTED)
    ]
    return found, "; ".join(_skipped(report))


def _skipped(report: Mapping[str, Any]) -> list[str]:
    return [each["skip_reason"] for each in report["dependencies"] if "skip_reason" in each]


def pip_audit(pinned: list[str]) -> Mapping[str, Any]:
    """Query the package index with pip-audit.

    Raises
    ------
    SystemExit
        If pip-audit fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_text("\n".join(pinned) + "\n")
        command = [str(Path(sys.executable).with_name("uv")), "tool", "run", "--quiet", "--from", PIP_AUDIT, "pip-audit"]
        command += ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json", "-r", str(requirements)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report: Mapping[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"pip-audit exited with {done.returncode}: {done.stderr.strip()[-500:]}") from None
    return report


def main(audit: Audit = pip_audit) -> None:
    """Check all lock files; exit with 1 if a pin has a known vulnerability."""
    pinned = sorted({pin for name in LOCKS for pin in pins((FOLDER / name).read_text())})
    found, not_asked = known_vulnerabilities(pinned, audit)
    if not_asked:
        sys.stdout.write(f"skipped: this package index has no vulnerability data ({not_asked})\n")
    for line in found:
        sys.stdout.write(f"{line}\n")
    if found:
        raise SystemExit(1)
    if not not_asked:
        sys.stdout.write(f"no known vulnerabilities in the {len(pinned)} pinned packages of the images\n")


if __name__ == "__main__":
    main()
