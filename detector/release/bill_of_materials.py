"""The release's software bill of materials: the dependencies of each wheel, as CycloneDX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CYCLONEDX = "cyclonedx-bom==7.5.0"
ACCEPTED = (
    "Apache",
    "MIT",
    "BSD",
    "PSF",
    "Python Software Foundation",
    "MPL",
    "Mozilla Public License",
    "ISC",
    "Unlicense",
    "0BSD",
)
"""Prefixes of licences that may be shipped with Apache-2.0."""

NOT_NAMED = {"protobuf": "BSD-3-Clause"}
"""Licences that are in a distribution's files but not in its metadata."""


def write_materials(wheels: Path, names: Mapping[str, str], constraints: Path, epoch: int) -> list[Path]:
    """Write ``NAME-VERSION.cdx.json`` next to the wheels for each of ``names`` (distribution to version); return the paths.

    Each lists the packages that installing the wheel with ``constraints`` into an empty environment adds.

    Raises
    ------
    SystemExit
        If a package cannot be installed, or its licence is not accepted.
    """
    made = []
    for name, version in names.items():
        out = wheels / f"{name}-{version}.cdx.json"
        with tempfile.TemporaryDirectory() as folder:
            python = Path(folder, "bin", "python")
            _uv("venv", "--python", sys.executable, folder)
            found = ("--python", str(python), "--find-links", str(wheels), "--constraint", str(constraints))
            _uv("pip", "install", *found, f"{name}=={version}")
            tool = ("tool", "run", "--from", CYCLONEDX, "cyclonedx-py", "environment", "--output-reproducible", "--short-PURLs")
            _uv(*tool, "--output-file", str(out), str(python), SOURCE_DATE_EPOCH=str(epoch))
        refused = list(refused_licences(json.loads(out.read_text())))
        if refused:
            raise SystemExit(f"{name} includes components whose licence forbids shipping them: {', '.join(refused)}")
        made.append(out)
    return made


def refused_licences(materials: Mapping[str, Any]) -> Iterator[str]:
    """Yield the components without an accepted licence, each with its licences."""
    for component in materials.get("components", ()):
        named = [one.get("license", one) for one in component.get("licenses", ())]
        licences = [str(one.get("expression") or one.get("id") or one.get("name")) for one in named]
        if not licences and component["name"] in NOT_NAMED:
            licences = [NOT_NAMED[component["name"]]]
        plain = [licence.removeprefix("License :: OSI Approved :: ").strip("( ") for licence in licences]
        if not any(licence.startswith(ACCEPTED) for licence in plain):
            yield f"{component['name']} {component.get('version', '')} ({', '.join(licences) or 'no licence named'})"


def _uv(*arguments: str, **environment: str) -> None:
    command = [str(Path(sys.executable).with_name("uv")), "--quiet", *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
