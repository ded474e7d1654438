"""A stage for each live test: a real detector and real processes, all stopped at its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from detector.demo.demos import Play
from detector.demo.harness import Stage

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def scenes_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """`live_scenes` can be imported here and in the processes of the scene."""
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")])))


@pytest.fixture
def stage(tmp_path: Path, scenes_importable: None) -> Iterator[Stage]:
    with Stage(tmp_path) as stage:
        stage.start_detector("--period-seconds", "0.5")
        yield stage


@pytest.fixture
def play(stage: Stage) -> Play:
    return Play(stage, Console(file=sys.stderr))


Verdict = dict[str, Any]


@pytest.fixture
def until_true(play: Play) -> Callable[[str], Verdict]:
    """Ask until the predicate holds, and give the verdict."""

    def wait(predicate: str) -> Verdict:
        found: list[Verdict] = []

        def holds() -> bool:
            found.append(play.verdict(predicate))
            return found[-1]["holds"] is True

        play.until(f"{predicate} to hold", holds)
        return found[-1]

    return wait
