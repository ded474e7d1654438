"""A stream that both ends write, and would read afterwards: not a TRUE, since other calls can free it, but no silence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from detector.demo.demos import Demo
from detector.demo.harness import Harness, ManagedProcess

pytestmark = pytest.mark.live
PROGRAM = str(Path(__file__).with_name("both_write.py"))


def begin(harness: Harness, mode: str) -> None:
    """Both processes run, and write."""
    port = _process(harness, mode, "store").line().strip()
    assert _process(harness, mode, "client", port).line() == "begun\n"


def _process(harness: Harness, *arguments: str) -> ManagedProcess:
    name = arguments[1]
    process = ManagedProcess(
        name,
        [sys.executable, PROGRAM, *arguments],
        environment={"STILLTRUE_DETECTOR": harness.detector},
        log=harness.folder / f"{name}.log",
    )
    harness.processes[name] = process
    return process


@pytest.mark.longer
def test_the_answer_names_all_parties_and_says_why_it_is_undetermined(harness: Harness, demo: Demo) -> None:
    begin(harness, "stuck")
    verdicts: list[dict[str, Any]] = []

    def suspects() -> bool:
        verdicts.append(demo.verdict("deadlock"))
        return verdicts[-1]["holds"] is None and "may be deadlocked" in verdicts[-1]["witness"]["text"]

    demo.until("the parties to be suspected", suspects)
    text = verdicts[-1]["witness"]["text"]
    assert text.count("client/thread") >= 2
    assert "store/Sync#1" in text
    assert "other calls on the connection can make more room" in text
    assert not any(verdict["holds"] for verdict in verdicts)


@pytest.mark.parametrize("mode", ["client_reads", "store_reads", "told"])
@pytest.mark.longer
def test_nobody_is_suspected_if_another_thread_ends_it(harness: Harness, demo: Demo, mode: str) -> None:
    begin(harness, mode)
    verdicts: list[dict[str, Any]] = []

    def looked_at_for_long() -> bool:
        verdicts.append(demo.verdict("deadlock"))
        return sum("not moved for a while" in verdict["witness"]["text"] for verdict in verdicts) >= 8

    demo.until("answers about both ends at rest", looked_at_for_long)
    assert {verdict["holds"] for verdict in verdicts} == {False}
