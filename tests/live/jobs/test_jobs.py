"""Ordinary jobs in real processes: termination is never TRUE while work remains, and TRUE once it is over; likewise tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from detector.demo.demos import Demo
from detector.demo.harness import Harness
from stilltrue.model import Holds
from stilltrue.query import Detector
from tests.free_ports import free_port
from tests.live.jobs.job_programs import JOBS

pytestmark = pytest.mark.live
PROGRAM = str(Path(__file__).with_name("job_programs.py"))
QUICK = ("retries",)
OF_A_LANDING = (*QUICK, "processes")
END_SECONDS_MAX = 30


class Job:
    """The processes of a job, and what they have said."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_over = threading.Event()

    def listen(self, output: Any, ready: threading.Event) -> None:
        with output:
            for line in output:
                if line == "ready\n":
                    ready.set()
                else:
                    self.lines.append(line)
                if line.startswith("over"):
                    self.is_over.set()

    def did_after(self, moment: float) -> list[str]:
        """The work that was done after ``moment`` (epoch)."""
        return [line for line in self.lines if float(line.split()[1]) > moment]


def end(process: subprocess.Popen[str]) -> None:
    """Let a process end its own children; kill it if it does not end."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(END_SECONDS_MAX)
    finally:
        process.kill()


@contextmanager
def running(name: str, harness: Harness) -> Iterator[Job]:
    """The job, begun by its last role once all others are ready."""
    addresses = {role: f"127.0.0.1:{free_port()}" for role in JOBS[name]}
    environment = {**os.environ, "STILLTRUE_DETECTOR": harness.detector, "JOB_ADDRESSES": json.dumps(addresses)}
    job = Job()
    with ExitStack() as stack:
        for role in JOBS[name]:
            command = [sys.executable, PROGRAM, name, role]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            stack.callback(end, process)
            ready = threading.Event()
            threading.Thread(target=job.listen, args=(process.stdout, ready), daemon=True).start()
            if role != list(JOBS[name])[-1]:
                assert ready.wait(60), role
        yield job


def said_until(demo: Demo, detector: str, predicate: str, is_enough: Callable[[Holds], bool]) -> list[tuple[float, Holds, str]]:
    """When each asked snapshot ended, and its answers up to the one that is enough."""
    said: list[tuple[float, Holds, str]] = []
    query = Detector(detector)

    def asked() -> bool:
        verdict = query.ask(predicate, timeout_seconds=30)
        said.append((verdict.snapshot.ended or 0.0, verdict.holds, verdict.witness.text))
        return is_enough(verdict.holds)

    demo.until(f"{predicate} to be answered", asked)
    return said


def _as_parameter(name: str) -> object:
    marks = [] if name in QUICK else [pytest.mark.longer]
    return pytest.param(name, marks=marks if name in OF_A_LANDING else [*marks, pytest.mark.not_in_ci])


@pytest.mark.parametrize("name", [_as_parameter(one) for one in JOBS if one != "ring"])
def test_a_job_has_terminated_once_it_is_over_and_not_before(harness: Harness, demo: Demo, name: str) -> None:
    with running(name, harness) as job:
        demo.until("work to begin", lambda: bool(job.lines))
        said = said_until(demo, harness.detector, "termination", lambda holds: holds is Holds.TRUE and job.is_over.is_set())
        early = [(text, job.did_after(ended)) for ended, holds, text in said if holds is Holds.TRUE and job.did_after(ended)]
        assert early == []


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_a_token_that_goes_round_is_neither_lost_nor_duplicated_until_its_holder_loses_it(harness: Harness, demo: Demo) -> None:
    with running("ring", harness) as job:
        demo.until("work to begin", lambda: bool(job.lines))
        doubled = said_until(demo, harness.detector, "token-duplicated", lambda _: len(job.lines) > 10)
        said = said_until(demo, harness.detector, "token-lost", lambda holds: holds is Holds.TRUE)
        assert {holds for _, holds, _ in doubled} == {Holds.FALSE}
        assert [text for ended, holds, text in said if holds is Holds.TRUE and job.did_after(ended)] == []
        assert "over" in job.lines[-1]
