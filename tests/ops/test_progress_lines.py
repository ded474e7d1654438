"""While a step runs, standard error shows for how long: a terminal in a line that is rewritten, a pipe in further lines."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from detector.ops.progress_lines import pauses

PROGRAM = """
import os, sys, time
from detector.ops import progress_lines
from detector.ops.progress_lines import ProgressLines
progress_lines.TERMINAL_SECONDS = progress_lines.PIPE_SECONDS = 0.05
lines = ProgressLines()
lines.say("first")
lines.wait("starting ...")
kept, lost = os.dup(2), os.open(os.devnull, os.O_WRONLY)
os.dup2(lost, 2)  # as while Java starts
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os.dup2(kept, 2)
lines.say("last")
lines.end()
"""


def run(go_on: Path, stderr: int, read: int, until: bytes) -> bytes:
    """What the program writes; it ends once it has written ``until``."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(go_on)], stderr=stderr) as running:
        os.close(stderr)
        said, limit = b"", time.monotonic() + 60
        try:
            while part := os.read(read, 4096):
                said += part
                if until in said:
                    go_on.touch()
                assert time.monotonic() < limit, said
        except OSError:  # the end of a terminal
            pass
        finally:
            running.kill()
            os.close(read)
    return said


def test_a_pipe_gets_further_lines_ever_more_rarely(tmp_path: Path) -> None:
    read, write = os.pipe()
    lines = run(tmp_path / "go-on", write, read, until=b"starting ... 0 s\nstarting ... 0 s\n").decode().splitlines()
    assert lines[:4] == ["first", "starting ...", "starting ... 0 s", "starting ... 0 s"]
    assert lines[-1] == "last"
    assert all(line.startswith("starting ... ") for line in lines[2:-1])


def test_a_terminal_shows_the_seconds_in_a_line_that_disappears(tmp_path: Path) -> None:
    read, write = pty.openpty()
    said = run(tmp_path / "go-on", write, read, until=b"\x1b[K  0 s\r\x1b[K  0 s").decode()
    assert said.startswith("first\r\nstarting ...\r\n\r\x1b[K  0 s")
    assert said.endswith("\r\x1b[Klast\r\n")


@pytest.mark.parametrize(("live", "seconds"), [(True, [1.0, 1.0, 1.0, 1.0]), (False, [10.0, 20.0, 40.0, 80.0])])
def test_the_pauses_in_a_pipe_double(live: bool, seconds: list[float]) -> None:
    assert list(islice(pauses(live=live), 4)) == seconds
