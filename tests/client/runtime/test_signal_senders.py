"""Whether a process may send another one a signal: what Linux shows of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from stilltrue.runtime.introspection.linux.child_processes import children_of
from stilltrue.runtime.introspection.linux.signal_senders import command_line_of, is_told, may_find

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
TARGET = 54321
SECONDS_MAX = 10.0
Finds = Callable[..., bool]


@pytest.fixture
def finds(tmp_path: Path) -> Iterator[Finds]:
    """Whether a process with these arguments, run in a folder with a script, may find the target."""
    started: list[subprocess.Popen[bytes]] = []

    def look(
        *arguments: str, script: str = "", typed: str = "", sleeps: bool = True, beside: str = "", **environment: str
    ) -> bool:
        for name in ("script", "module.py"):
            (tmp_path / name).write_text(script)
        for name in ("cleanup.sh", "watching.py"):
            (tmp_path / name).write_text(beside)
        variables = {"PATH": "/usr/bin:/bin", **environment}
        process = subprocess.Popen(arguments, cwd=tmp_path, env=variables, stdin=subprocess.PIPE, start_new_session=True)
        started.append(process)
        give(process.stdin, typed)
        end = time.monotonic() + SECONDS_MAX
        while sleeps and not children_of(process.pid) and b"sleep" not in command_line_of(process.pid):
            assert time.monotonic() < end
        return may_find(process.pid, command_line_of(process.pid), (TARGET,))

    yield look
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)  # at once, or a shell would go on after its child
        process.communicate()


def give(stdin: IO[bytes] | None, typed: str) -> None:
    assert stdin is not None
    stdin.write(typed.encode())
    stdin.flush()


@pytest.mark.parametrize("command", ["kill -9 $TARGET", "kill $(cat app.pid)", "pkill -f app", "kill 0", "fuser -k app.sock"])
def test_a_shell_whose_command_sends_signals(finds: Finds, command: str) -> None:
    assert finds("sh", "-c", f"sleep 60; exit; {command}")


def test_a_shell_whose_script_sends_signals(finds: Finds) -> None:
    assert finds("sh", "script", script="sleep 60\nexit\nkill $PPID\n")


def test_a_shell_whose_script_sends_none(finds: Finds) -> None:
    assert not finds("sh", "script", script="sleep 60\necho skill-set overkill\n")


@pytest.mark.parametrize(("later", "doubtful"), [("sh ./cleanup.sh", True), ("sh ./other.sh", False)])
def test_a_shell_whose_script_runs_another(finds: Finds, later: str, doubtful: bool) -> None:
    assert finds("sh", "script", script=f"sleep 60\nexit\n{later}\n", beside="pkill -f app\n") is doubtful


PYTHON = "import os, subprocess, time\nsubprocess.run(['sleep', '60'])\nos._exit(0)\n"


@pytest.mark.parametrize(
    "act",
    [
        "os.kill(os.getppid(), 9)",
        "os.kill(int(open('app.pid').read()), 15)",
        "os.kill(json.load(open('app.json'))['worker'], 9)",
        "subprocess.run(['pkill', '-f', 'app'])",
        "os.system('sleep 1; kill -9 ' + pid)",
        "[one.kill() for one in psutil.process_iter() if one.name() == 'app']",
        "psutil.Process(pid).kill()",
        "psutil.Process().parent().kill()",
        "from watching import end; end()",
    ],
)
@pytest.mark.parametrize("how", [["script"], ["-m", "module"], ["-Wignore", "-c"]], ids=["script", "module", "code"])
def test_a_watchdog_in_python(finds: Finds, how: list[str], act: str) -> None:
    text = PYTHON + act
    arguments = [*how, text] if "-c" in how else how
    assert finds(sys.executable, "-Su", *arguments, script=text, beside="import os\ndef end(): os.kill(int(input()), 9)\n")


@pytest.mark.parametrize(
    "act",
    [
        "print(os.getppid())",
        "child.kill()",
        "os.kill(child, 9)",
        "os.kill(child.pid, 9); open('x').read()",
        "os.kill(os.getpid(), 9); open('x').read()",
        "psutil.Process().memory_info()",
        "import other, json",
    ],
)
def test_a_program_in_python_that_signals_nobody_it_was_told_of(finds: Finds, act: str) -> None:
    assert not finds(sys.executable, "-IS", "script", script=PYTHON + act)


@pytest.mark.parametrize("shares", [True, False])
def test_a_program_in_python_that_signals_its_own_group(tmp_path: Path, shares: bool) -> None:
    """A server that ends its forked workers so, as its last act, is no watchdog of a program in another group."""
    script = tmp_path / "ends.py"
    script.write_text("import os, signal, sys\nsys.stdin.read(); os.killpg(0, signal.SIGTERM)")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=not shares) as process:
        try:
            end = time.monotonic() + SECONDS_MAX
            while b"ends.py" not in command_line_of(process.pid):  # it is about to become Python
                assert time.monotonic() < end
            assert may_find(process.pid, command_line_of(process.pid), (os.getpid(),)) is shares
        finally:
            process.kill()


def test_a_process_whose_environment_has_the_id(finds: Finds) -> None:
    assert finds("sleep", "60", TARGET=str(TARGET))
    assert not finds("sleep", "60", TARGET=f"1{TARGET}")


def test_a_shell_that_runs_what_it_has_read(finds: Finds) -> None:
    assert finds("sh", typed="sleep 60\n")
    assert not finds("sh", sleeps=False)


def test_ids_in_command_lines() -> None:
    assert is_told(b"watch\0--pid=54321", (7, 54321)) is False
    assert is_told(b"watch\0--pid=54321", (54321, 54322)) is True
    assert is_told(b"sh\0-c\0kill 7", (7,)) is True
