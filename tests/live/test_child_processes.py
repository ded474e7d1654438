"""A job is not over while a child process is at work that a handler started, or gave work, though no member knows of it yet."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detector.demo.demos import Demo
from detector.demo.harness import Harness, ManagedProcess

pytestmark = pytest.mark.live
PROGRAM = str(Path(__file__).with_name("child_process_scenes.py"))
AT_WORK_SECONDS = 2.0
LONGER = ("background", "daemon", "fed", "system", "spawn", "forkserver")


@pytest.mark.parametrize(
    "how",
    [
        "subprocess",
        *(pytest.param(one, marks=pytest.mark.longer) for one in LONGER),
    ],
)
def test_termination_waits_for_the_child_of_a_handler(
    harness: Harness, demo: Demo, until_true: Callable[[str], dict[str, Any]], tmp_path: Path, how: str
) -> None:
    environment = {"STILLTRUE_DETECTOR": harness.detector, "CHILD_FOLDER": str(tmp_path), "STILLTRUE_RUN_PID": str(os.getpid())}
    process = ManagedProcess(how, [sys.executable, PROGRAM, how], environment=environment, log=harness.folder / "scene.log")
    harness.processes[how] = process
    process.tell({"step": "first call"})
    assert process.line() == "called\n"
    until_true("termination")
    process.tell({"step": "start the child"})
    assert process.line() == "called\n"
    _is_never_over(demo)
    process.tell({"step": "the child calls"})
    assert process.line() == "worked\n"
    _is_never_over(demo)
    process.tell({"step": "the child ends"})
    until_true("termination")


def _is_never_over(demo: Demo) -> None:
    """No answer is TRUE for a while, and one says why."""
    begun = time.monotonic()
    said = []

    def names_the_child() -> bool:
        verdict = demo.verdict("termination")
        assert verdict["holds"] is not True, verdict["explanation"]
        said.extend(verdict["explanation"])
        return time.monotonic() - begun > AT_WORK_SECONDS and any("child process" in text for text in said)

    demo.until("an answer that names the child process", names_the_child)
