"""SIGTERM or ctrl-C within a micro-batch ends `stilltrue stream` cleanly; the next start repeats that batch."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from detector.core.registry import find_predicate
from detector.service.storage.archive_sink import FOLDER
from tests.synthetic.hostile_archives import verdict_rows
from tests.synthetic.random_snapshots import WorldShape, judged, random_snapshots

SECONDS_MAX = 120.0
PREDICATE = '''
import os, time
from detector.core.undetermined import undetermined

class Patient:
    """Waits in the worker until it is told to go on."""

    name = "patient"

    def evaluate(self, snapshot):
        folder = os.environ["PATIENT"]
        open(f"{folder}/waiting", "w").close()
        while not os.path.exists(f"{folder}/go-on"):
            time.sleep(0.05)
        return undetermined("patient", snapshot.ref, "patient", "it has been asked")
'''


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A folder with the predicate ``patient``, as an installed package has it."""
    folder = tmp_path / "plugins"
    (folder / "patient-1.dist-info").mkdir(parents=True)
    (folder / "patient_predicate.py").write_text(PREDICATE)
    (folder / "patient-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: patient\nVersion: 1\n")
    (folder / "patient-1.dist-info" / "entry_points.txt").write_text(
        "[stilltrue.predicates]\npatient = patient_predicate:Patient\n"
    )
    return folder


@pytest.mark.longer
@pytest.mark.parametrize(
    ("number", "send"),
    [
        pytest.param(signal.SIGTERM, os.kill, id="SIGTERM", marks=pytest.mark.not_in_ci),
        pytest.param(signal.SIGINT, os.kill, id="SIGINT", marks=pytest.mark.not_in_ci),
        pytest.param(signal.SIGTERM, os.killpg, id="SIGTERM to Java and the workers, too"),
    ],
)
def test_a_signal_within_a_batch_ends_the_stream_without_a_java_traceback(
    number: signal.Signals, send: Callable[[int, int], None], plugins: Path, archived: object, tmp_path: Path
) -> None:
    run = judged(list(random_snapshots(5, 10, WorldShape())), [find_predicate("deadlock")])
    assert callable(archived)
    archived(run, tmp_path, 0, 10)
    env = {**os.environ, "PYTHONPATH": str(plugins), "PATIENT": str(tmp_path)}
    out = tmp_path / "out"
    program = [sys.executable, "-m", "detector", "stream", str(tmp_path / FOLDER), "--out", str(out), "--master", "local[1]"]
    program += ["--predicate", "patient", "--once"]
    running = subprocess.Popen(
        program, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_for(tmp_path / "waiting", running)
        send(running.pid, number)
        _, said = running.communicate(timeout=SECONDS_MAX)
    finally:
        running.kill()
        (tmp_path / "go-on").touch()  # a worker that still waits ends
    assert running.returncode == 0, said
    # Nothing of Java's or Python's own; a line that is repeated with the seconds says that a start takes long.
    first, second = (line for line in said.splitlines() if not re.fullmatch(r".*\.\.\. \d+ s", line))
    assert first == "starting Spark ..."
    assert second.startswith(f"reading {tmp_path / FOLDER} (")
    assert not out.joinpath("verdicts").exists(), "the batch has not been"
    again = subprocess.run(program, env=env, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert again.returncode == 0, again.stderr
    found = verdict_rows(out / "verdicts")
    assert [verdict for key, verdict in sorted(found.items(), key=lambda each: each[0][1]) if key[2] == "deadlock"] == list(
        run.verdicts
    )


def wait_for(path: Path, running: subprocess.Popen[str]) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not path.exists():
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < until, "the worker was not asked"
        time.sleep(0.05)
