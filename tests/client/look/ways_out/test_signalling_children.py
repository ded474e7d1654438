"""A child process that was told the process id of its parent may send it a signal: a watchdog."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stilltrue import Agent
from stilltrue.runtime.introspection.linux.signal_senders import SMALL
from stilltrue.runtime.look.ways_out.kinds.signalling_children import may_signal
from tests.client.look.worlds import Stuck, look_at_caller

OWN = str(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("arguments", "doubtful"),
    [
        (("sh", "-c", f"sleep 60; kill -USR1 {OWN}"), True),
        (("sh", "-c", "sleep 60; kill -USR1 $PPID"), True),
        (("sh", "-c", "sleep 60; kill -USR1 $(cat app.pid)"), True),
        ((sys.executable, "-c", "import time; time.sleep(60)", OWN), os.getpid() >= SMALL),  # in a container it may be small
        (("sleep", "60"), False),
    ],
)
def test_a_child_that_knows_its_parents_id_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, arguments: Sequence[str], doubtful: bool
) -> None:
    with subprocess.Popen(arguments, start_new_session=True) as child:
        seen = look_at_caller(alone, stuck, lambda get: get(b""))
        os.killpg(child.pid, 9)
    assert not seen.ways_out
    assert ("send it a signal" in seen.doubt) is doubtful, seen.doubt


@pytest.mark.parametrize(
    ("command_line", "own", "expected"),
    [
        (b"watchdog\0--pid\x004321", 4321, True),
        (b"watchdog\0--pid=4321", 4321, True),
        (b"worker\0--port\x0014321", 4321, False),
        (b"worker\0--address\x00127.0.0.1:4321", 4321, False),
        (b"worker\0--threads\x001", 1, False),
        (b"sh\0-c\0sleep 9; kill 1", 1, True),
        (b"python\0-c\0import os, signal; os.kill(os.getppid(), signal.SIGUSR1)", 4321, True),
        (b"python\0-c\0import os; os.getppid()", 4321, False),
    ],
)
def test_which_command_lines_count(command_line: bytes, own: int, expected: bool) -> None:
    assert may_signal(command_line, own) is expected


LEAVES = """
import os, subprocess

from stilltrue.runtime.look.ways_out.kinds.signalling_children import signalling_child

subprocess.run(f"(sleep 60; kill {os.getpid()}) & echo", shell=True, check=True, stdout=subprocess.DEVNULL)
print(signalling_child())
os.killpg(0, 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_shell_that_has_lost_its_parent_counts() -> None:
    command = [sys.executable, "-u", "-c", LEAVES]
    told = subprocess.run(command, check=False, capture_output=True, text=True, start_new_session=True).stdout
    assert "may send it a signal" in told, told


DAEMON = """
import os, subprocess, time

from stilltrue.runtime.look.ways_out.kinds.signalling_children import signalling_child

daemon = f"setsid sh -c 'echo $$; exec >/dev/null 2>&1; sleep 60; exit; kill {os.getpid()}' &"
pid = int(subprocess.check_output(daemon, shell=True))
print(signalling_child())
os.killpg(pid, 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_daemon_with_the_id_counts() -> None:
    told = subprocess.run([sys.executable, "-u", "-c", DAEMON], check=False, capture_output=True, text=True).stdout
    assert "has its process id, and may send it a signal" in told, told


SCRIPTED = """
import os, subprocess, sys

from stilltrue.runtime.look.ways_out.kinds.signalling_children import signalling_child

pid = int(subprocess.check_output(f"setsid sh {sys.argv[1]} &", shell=True))
print(signalling_child() or "nothing")
os.killpg(pid, 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("act", "run", "doubtful"),
    [("kill $(cat app.pid)", True, True), ("kill $(cat app.pid)", False, False), ("ls", True, False)],
)
def test_a_daemon_whose_script_finds_the_id_counts_if_the_program_was_started_by_run(
    tmp_path: Path, act: str, run: bool, doubtful: bool
) -> None:
    script = tmp_path / "watch"
    script.write_text(f"echo $$\nexec >/dev/null 2>&1\nsleep 60\n{act}\n")
    command = [sys.executable, "-u", "-c", SCRIPTED, str(script)]
    launched = ["sh", "-c", 'STILLTRUE_RUN_PID=$$ exec "$@"', "run", *command] if run else command
    told = subprocess.run(launched, check=False, capture_output=True, text=True).stdout
    assert ("may find its process id, and send it a signal" in told) is doubtful, told
    assert doubtful is not told.startswith("nothing")


PROGRAM = """
import multiprocessing, os, pathlib, signal, sys, time

import stilltrue
from stilltrue.runtime.look.ways_out.kinds.signalling_children import signalling_child


{known}


def watch(there, parent):
    there.set()
    time.sleep(60)
    {act}


if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    there = context.Event()
    watchdog = context.Process(target=watch, args=(there, {given}), daemon=True)
    watchdog.start()
    there.wait()
    print(signalling_child() or "nothing")
    watchdog.kill()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("act", "given", "known", "doubtful"),
    [
        ("os.kill(parent, signal.SIGUSR1)", "os.getpid()", "", True),
        ("os.kill(PARENT, 9)", "0", "PARENT = os.getpid()", True),
        ("os.kill(parent.value, 9)", "None", "def begin(shared): shared.value = os.getpid()", True),
        ("os.kill(int(pathlib.Path('app').read_text()), 9)", "0", "", True),
        ("os.killpg(os.getpgrp(), 9)", "0", "", True),
        ("os.system('pkill -f app')", "0", "", True),
        ("print(parent)", "os.getpid()", "", False),
        ("os.kill(parent, 9)", "0", "", False),
        ("os.kill(os.getpid(), 9)", "0", "PARENT = os.getpid()", False),
    ],
)
def test_a_watchdog_of_the_same_program_is_doubt(
    tmp_path: Path, method: str, act: str, given: str, known: str, doubtful: bool
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(act=act, given=given, known=known, method=method))
    told = subprocess.run([sys.executable, program], check=True, capture_output=True, text=True).stdout
    assert ("may send it a signal" in told) is doubtful, told
    assert doubtful is not told.startswith("nothing")
