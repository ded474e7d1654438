"""The version is in one file, clients/python/stilltrue/VERSION; copies in files that cannot read it must agree with it."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

import stilltrue

ROOT = Path(__file__).parent.parent
ELSEWHERE = {
    "helm/stilltrue/Chart.yaml": r"(?m)^(?:version|appVersion): (\S+)$",
    "docs/detector.md": r"stilltrue:(\d+\.\d+\.\d+)",
    "docs/examples/compose/compose.yaml": r"stilltrue:(\d+\.\d+\.\d+)",
    "docs/kubernetes.md": r"stilltrue:(\d+\.\d+\.\d+)|name: stilltrue, version: (\d+\.\d+\.\d+)",
    "helm/stilltrue/README.md": r"stilltrue:(\d+\.\d+\.\d+)",
}


@pytest.mark.parametrize("distribution", ["stilltrue", "stilltrue-detector"])
def test_both_distributions_have_the_version(distribution: str) -> None:
    assert version(distribution) == stilltrue.__version__


@pytest.mark.parametrize("file", ELSEWHERE)
def test_copies_of_the_version_agree(file: str) -> None:
    found = [next(filter(None, match)) for match in _matches(file)]
    assert found
    assert set(found) == {stilltrue.__version__}


def _matches(file: str) -> list[tuple[str, ...]]:
    return [match.groups() for match in re.finditer(ELSEWHERE[file], (ROOT / file).read_text())]
