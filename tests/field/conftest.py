"""A detector for each entry of the field catalogue; the real servers, started once for a run of tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from detector.demo.demos import Demo
from detector.demo.harness import Harness
from tests.field.servers import Servers


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path) as harness:
        harness.start_detector("--period-seconds", "0.5")
        yield harness


@pytest.fixture
def demo(harness: Harness) -> Demo:
    return Demo(harness, Console(file=sys.stderr))


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("servers")) as servers:
        yield servers
