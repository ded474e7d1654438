"""A harness for each live test: a real detector and real processes, all stopped at its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from detector.demo.demos import Demo
from detector.demo.harness import Harness

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def scenes_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """`live_scenes` can be imported here and in the processes of the scene."""
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")])))


@pytest.fixture
def harness(tmp_path: Path, scenes_importable: None) -> Iterator[Harness]:
    with Harness(tmp_path) as harness:
        harness.start_detector("--period-seconds", "0.5", "--lease-seconds", "2", "--forget-seconds", "8")
        yield harness


@pytest.fixture
def demo(harness: Harness) -> Demo:
    return Demo(harness, Console(file=sys.stderr))


Verdict = dict[str, Any]


@pytest.fixture
def until_true(demo: Demo) -> Callable[[str], Verdict]:
    """Ask until the predicate holds, and give the verdict of the snapshot after it: every process has joined by then."""

    def wait(predicate: str) -> Verdict:
        found: list[Verdict] = []

        def holds() -> bool:
            found.append(demo.verdict(predicate))
            return found[-1]["holds"] is True

        demo.until(f"{predicate} to hold", holds)
        demo.until(f"{predicate} still to hold", holds)
        return found[-1]

    return wait
