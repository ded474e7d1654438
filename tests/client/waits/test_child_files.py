"""A thread at one pipe of a child, which waits at another pipe that only the thread can use, waits for itself."""

from __future__ import annotations

import fcntl
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime.waits.databases.source_search import Mentions
from stilltrue.runtime.waits.pipes import named_objects, signallers
from tests.client.waits.children import (
    SECONDS_MAX,
    WAITER,
    assert_waits_for_itself,
    enders,
    lasting_look,
    looked_at,
    searched,
    using,
    wait_until_for,
)

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not Path("/proc/self/timers").exists(), reason="the system does not show timers"),
    pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 14), reason="references of frames are not read"),
]
FILLS_ERRORS = "import sys; sys.stderr.write('x' * 1_000_000)"
ECHOES = "import sys\nfor line in sys.stdin: print(line * 1000, flush=True)"
SLEEPS = "import time; time.sleep(600)"
ATTEMPTS = 6
PIPE = subprocess.PIPE
BOTH: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "text": True}
OUTPUTS: dict[str, Any] = {"stdout": PIPE, "stderr": PIPE}


def reads_lines(child: Any) -> None:
    for _ in child.stdout:
        pass


def reads_all(child: Any) -> None:
    child.stdout.read()


def asks(child: Any) -> None:
    child.stdin.write("1\n")
    child.stdout.readline()


def writes(child: Any) -> None:
    for _ in range(10_000):
        child.stdin.write("x" * 1000 + "\n")


class Tool:
    """Keeps its child as an attribute."""

    def __init__(self, child: Any) -> None:
        self.child = child

    def ask(self) -> None:
        asks(self.child)


def asks_a_tool(child: Any) -> None:
    Tool(child).ask()


class Tools:
    """Keeps its children by name."""

    def __init__(self, child: Any) -> None:
        self.children = {"a": child}

    def ask(self, name: str, calls: int = named_objects.FRAMES_MAX) -> None:
        """Ask it far from the functions that have it as a variable."""
        if calls:
            self.ask(name, calls - 1)
        self.children[name].stdin.write("1\n")
        self.children[name].stdout.readline()


def asks_one_of_some(child: Any) -> None:
    Tools(child).ask("a")


def waits_for_each(child: Any) -> None:
    for one in [child]:
        one.wait()


def by_shell(code: str) -> list[str]:
    """A command that a shell runs in a process of its own."""
    return ["sh", "-c", f'{sys.executable} -ISc "$1"; true', "sh", code]


@pytest.mark.parametrize(
    ("code", "use", "options"),
    [
        (FILLS_ERRORS, reads_lines, OUTPUTS),
        (FILLS_ERRORS, reads_all, {**OUTPUTS, "text": True}),
        (ECHOES, writes, BOTH),
        (ECHOES, asks, BOTH),
        (ECHOES, asks_a_tool, BOTH),
        (ECHOES, asks_one_of_some, BOTH),
        (FILLS_ERRORS, waits_for_each, OUTPUTS),
        (by_shell(FILLS_ERRORS), reads_lines, OUTPUTS),
        (by_shell(ECHOES), asks, BOTH),
        (by_shell(FILLS_ERRORS), lambda child: child.wait(), OUTPUTS),
    ],
    ids=["lines", "all", "writes", "asks", "tool", "tools", "each", "shell", "asks by a shell", "waits for a shell"],
)
def test_who_waits_at_one_pipe_of_a_child_that_waits_at_another_waits_for_itself(
    alone: Callable[..., Agent], code: str | list[str], use: Callable[[Any], None], options: dict[str, Any]
) -> None:
    agent = alone("here")
    with using(code, use, **options):
        assert_waits_for_itself(agent)


def test_another_thread_that_has_the_other_file_may_read_it(alone: Callable[..., Agent]) -> None:
    agent, given, end = alone("here"), list[threading.Thread](), threading.Event()

    def read_later(file: Any) -> None:
        end.wait()
        with suppress(ValueError):
            file.read(1)

    def give(child: Any) -> None:
        given.append(threading.Thread(target=read_later, args=(child.stderr,), name="reader", daemon=True))
        given[0].start()

    with using(FILLS_ERRORS, reads_lines, give, **OUTPUTS):
        wait_until_for(agent, "here/thread:reader")
    end.set()
    given[0].join(SECONDS_MAX)


def opens(descriptor: int) -> None:
    with open(descriptor, "rb", closefd=False) as file:
        file.read(1)


def reads_by_a_process(descriptor: int) -> None:
    subprocess.run(["head", "-c", "1"], stdin=descriptor, stdout=subprocess.DEVNULL, check=False)


def makes_room(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 2**20)


@pytest.mark.parametrize("use", [lambda one: os.read(one, 1), opens, reads_by_a_process, makes_room])
def test_a_thread_that_reads_by_descriptor_is_a_way_out(alone: Callable[..., Agent], use: Callable[[int], object]) -> None:
    agent, given, end = alone("here"), list[threading.Thread](), threading.Event()

    def read_later(descriptor: int) -> None:
        while not end.wait(0.05):
            pass
        with suppress(OSError):
            use(descriptor)

    def give(child: Any) -> None:
        given.append(threading.Thread(target=read_later, args=(child.stderr.fileno(),), name="reader", daemon=True))
        given[0].start()

    with using(FILLS_ERRORS, reads_lines, give, **OUTPUTS):
        wait_until_for(agent, WAITER)
        assert ["thread reader" in one.text for one in lasting_look(agent).ways_out] == [True]
    end.set()
    given[0].join(SECONDS_MAX)


@pytest.mark.parametrize(
    "call",
    [
        lambda child: (os.kill, (child.pid, 9)),
        lambda child: (partial(os.killpg, child.pid), (9,)),
        lambda child: (os.close, (child.stderr.fileno(),)),
        lambda child: (subprocess.call, (["kill", str(child.pid)],)),
    ],
    ids=["kill", "killpg", "close", "command"],
)
def test_a_timer_that_is_given_a_function_of_the_system_is_a_way_out(
    alone: Callable[..., Agent], call: Callable[[Any], tuple[Any, Any]]
) -> None:
    agent, timers = alone("here"), list[threading.Timer]()

    def give(child: Any) -> None:
        timers.append(threading.Timer(600, *call(child)))
        timers[0].start()

    with using(FILLS_ERRORS, reads_lines, give, **OUTPUTS):
        wait_until_for(agent, WAITER)
        try:
            assert lasting_look(agent).ways_out
        finally:
            timers[0].cancel()


@pytest.mark.parametrize(
    "code",
    [
        SLEEPS,
        f"import signal; signal.signal(signal.SIGALRM, lambda *_: 1 / 0); {FILLS_ERRORS}",
        f"import threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); {FILLS_ERRORS}",
        by_shell(SLEEPS),
        ["sh", "-c", f'sleep 600 & {sys.executable} -ISc "$1"; true', "sh", FILLS_ERRORS],
        ["sh", "-c", f'trap : ALRM; {sys.executable} -ISc "$1"; true', "sh", FILLS_ERRORS],
    ],
    ids=["sleeps", "alarm", "thread", "shell sleeps", "shell with another child", "shell with an alarm"],
)
def test_a_child_that_may_go_on_is_unknown(alone: Callable[..., Agent], code: str | list[str]) -> None:
    agent = alone("here")
    with using(code, reads_lines, **OUTPUTS):
        for _ in range(ATTEMPTS):
            assert not enders(searched(agent))


def test_a_child_whose_errors_go_elsewhere_is_unknown(alone: Callable[..., Agent]) -> None:
    agent, (reader, writer) = alone("here"), os.pipe()
    with using(FILLS_ERRORS, reads_lines, stdout=PIPE, stderr=writer):
        for _ in range(ATTEMPTS):
            assert not enders(searched(agent))
    os.close(reader)
    os.close(writer)


def assert_another_is_noticed(agent: Agent, give: Callable[[Any], object], others: list[subprocess.Popen[bytes]]) -> None:
    """The second look notices the first of the other processes, which ``give`` has started for the child."""
    with using(FILLS_ERRORS, reads_lines, give, **OUTPUTS):
        try:
            wait_until_for(agent, WAITER)
            assert not looked_at(agent).unchanged
        finally:
            others[0].kill()
            others[0].wait()


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_another_process_at_one_of_the_pipes_is_found_by_the_look(alone: Callable[..., Agent], name: str) -> None:
    agent, others = alone("here"), list[subprocess.Popen[bytes]]()
    writing = list[int]()

    def give(child: Any) -> None:
        if name == "stderr":  # it may read what the child writes
            ends = [child.stderr.fileno()]
        else:  # it may write what the thread reads
            writing.append(os.open(f"/proc/{child.pid}/fd/1", os.O_WRONLY))
            ends = list(writing)
        others.append(subprocess.Popen([sys.executable, "-ISc", SLEEPS], pass_fds=ends))
        for one in writing:
            os.close(one)

    assert_another_is_noticed(agent, give, others)


@pytest.mark.parametrize("words", [["{}", "600"], ["multiprocessing"]], ids=["told the id", "same program"])
def test_another_process_that_may_signal_the_child_is_found_by_the_look(alone: Callable[..., Agent], words: list[str]) -> None:
    """This file mentions sending signals, and the ids of processes."""
    agent, others = alone("here"), list[subprocess.Popen[bytes]]()

    def give(child: Any) -> None:
        told = [one.format(child.pid) for one in words]
        others.append(subprocess.Popen([sys.executable, "-ISc", "import time; 'kill'; time.sleep(600)", *told]))

    assert_another_is_noticed(agent, give, others)


def test_a_process_that_may_find_the_childs_id_is_found_by_the_look(alone: Callable[..., Agent]) -> None:
    agent, others = alone("here"), list[subprocess.Popen[bytes]]()

    def give(child: Any) -> None:
        words = ["sh", "-c", "read line; exit; kill $CHILD"]
        others.append(subprocess.Popen(words, stdin=PIPE, env={**os.environ, "CHILD": str(child.pid)}))

    assert_another_is_noticed(agent, give, others)


def test_a_child_may_have_an_alarm_that_the_program_mentions(
    alone: Callable[..., Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = alone("here")
    monkeypatch.setattr(signallers, "_ALARMS", Mentions(signallers._ALARMS._wanted.pattern.decode(), own_only=True))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "alarms_its_child.py").write_text(f"""COMMAND = ["perl", "-e", "{"alarm"} 60; exec @ARGV", "cat"]""")
    try:
        importlib.import_module("alarms_its_child")
        with using(FILLS_ERRORS, reads_lines, **OUTPUTS):
            wait_until_for(agent, WAITER)
            assert not looked_at(agent).unchanged
    finally:
        sys.modules.pop("alarms_its_child", None)


@pytest.mark.parametrize(
    ("then", "ends"), [("child.wait()", False), ("threading.Event().wait()", False), ("time.sleep(9)", True)]
)
def test_a_child_may_end_with_the_thread_that_has_started_it(then: str, ends: bool) -> None:
    command = [sys.executable, "-c", STARTS.format(then=then)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[3]).stdout
    assert told.split() == [str(ends), "False"]


STARTS = """
import os, subprocess, sys, threading, time
import tests.mutants.injection  # a mutant is put into this process, too
from stilltrue.runtime.waits.pipes import signallers
from stilltrue.runtime.waits.pipes.signallers import may_be_signalled

signallers._ENDS_WITH_THREADS.found = "a mention"
sleeps = [sys.executable, "-ISc", "import time; time.sleep(60)"]
started, begun = [], threading.Event()

def starts():
    child = subprocess.Popen(sleeps)
    started.append(child)
    begun.set()
    {then}

threading.Thread(target=starts, daemon=True).start()
begun.wait()
time.sleep(0.2)
own = subprocess.Popen(sleeps)
print(may_be_signalled((started[0].pid,)), may_be_signalled((own.pid,)), flush=True)
own.kill()
started[0].kill()
os._exit(0)
"""


def test_what_a_child_has_left_behind_may_signal_it(alone: Callable[..., Agent]) -> None:
    """As BusyBox's ``timeout`` does."""
    agent = alone("here")
    leaves = (
        "import os, time\nif not os.fork():\n os.closerange(0, 3)\n if not os.fork(): time.sleep(600)\n os._exit(0)\nos.wait()"
    )
    with using(f"{leaves}\n{FILLS_ERRORS}", reads_lines, **OUTPUTS):
        wait_until_for(agent, WAITER)
        assert not looked_at(agent).unchanged


def test_a_thread_that_is_elsewhere_does_not_wait_for_its_child(alone: Callable[..., Agent]) -> None:
    agent, end = alone("here"), threading.Event()

    def waits_between(child: Any) -> None:
        child.stdout.readline()
        end.wait(SECONDS_MAX)

    def ends() -> bool:
        time.sleep(0.1)
        return bool(enders(searched(agent)))

    with using(f"print('x', flush=True); {FILLS_ERRORS}", waits_between, **OUTPUTS):
        assert not any(ends() for _ in range(ATTEMPTS))
        end.set()
