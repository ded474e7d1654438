"""Known vulnerabilities of what the images install, from the package index: ``python -m detector.release.vulnerabilities``.

Not every index offers them (a mirror rarely does). One pin is asked for first; where the index does not know it, the check is
skipped with that reason. It never passes as if everything had been looked up.
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

from detector.release.locks import FOLDER, LOCKS

PIP_AUDIT = "pip-audit==2.10.1"
ACCEPTED: Mapping[str, str] = {}
"""Vulnerabilities (``GHSA-...``, ``PYSEC-...``, ``CVE-...``) that do not concern us, each with the reason."""

Audit = Callable[[list[str]], Mapping[str, Any]]
"""What pip-audit says, as JSON, of pins such as ``click==8.5.1``."""


def pins(requirements: str) -> list[str]:
    """The pinned requirements of a lock file, without their hashes."""
    return re.findall(r"^([A-Za-z0-9._-]+==[^\\\n]+?) *\\?$", requirements, flags=re.MULTILINE)


def known_vulnerabilities(pinned: list[str], audit: Audit) -> tuple[list[str], str]:
    """The vulnerabilities that are not accepted, a line each, and why pins could not be looked up (empty: all were)."""
    first = _skipped(audit(pinned[:1]))
    if first:
        return [], first[0]
    said = audit(pinned)
    found = [
        f"{each['name']} {each['version']}: {one['id']}"
        + (f", fixed in {', '.join(one['fix_versions'])}" if one["fix_versions"] else ", not fixed yet")
        for each in said["dependencies"]
        for one in each.get("vulns", ())
        if not {one["id"], *one["aliases"]} & set(ACCEPTED)
    ]
    return found, "; ".join(_skipped(said))


def _skipped(said: Mapping[str, Any]) -> list[str]:
    return [each["skip_reason"] for each in said["dependencies"] if "skip_reason" in each]


def pip_audit(pinned: list[str]) -> Mapping[str, Any]:
    """Ask the package index, through pip-audit.

    Raises
    ------
    SystemExit
        When pip-audit cannot be run.
    """
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_text("\n".join(pinned) + "\n")
        command = [str(Path(sys.executable).with_name("uv")), "tool", "run", "--quiet", "--from", PIP_AUDIT, "pip-audit"]
        command += ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json", "-r", str(requirements)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        said: Mapping[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"pip-audit exited with {done.returncode}: {done.stderr.strip()[-500:]}") from None
    return said


def main(audit: Audit = pip_audit) -> None:
    """Check every lock file; end with 1 when something is known of a pin."""
    pinned = sorted({pin for name in LOCKS for pin in pins((FOLDER / name).read_text())})
    found, not_asked = known_vulnerabilities(pinned, audit)
    if not_asked:
        sys.stdout.write(f"skipped: this package index does not say what is known ({not_asked})\n")
    for line in found:
        sys.stdout.write(f"{line}\n")
    if found:
        raise SystemExit(1)
    if not not_asked:
        sys.stdout.write(f"nothing is known of the {len(pinned)} pinned packages of the images\n")


if __name__ == "__main__":
    main()
