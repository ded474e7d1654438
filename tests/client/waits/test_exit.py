"""A program that does not end: Python waits for the threads that are no daemons, once the main thread has run all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stilltrue.runtime.compat import value_stack
from tests.client.waits.exiting import MAIN

_BEGIN = """
import tests.mutants.injection  # a mutant is put into this process, too
import queue, threading
from concurrent.futures import ThreadPoolExecutor
from tests.client.waits.exiting import tell_at_the_end
tell_at_the_end()
"""
_QUEUE = """
todo = queue.Queue()
def work():
    while (item := todo.get()) is not None:
        item()
"""
_WORK = _QUEUE + 'threading.Thread(target=work, name="work").start()'
_ENDED = """
async def names():
    print(work)
kept = names()
try:
    kept.send(None)
except StopIteration:
    pass
"""
_OF_CLASS = """
class Sender:
    def __init__(self):
        self.todo = queue.Queue()
        threading.Thread(target=self.work, name="work").start()
    def work(self):
        while (item := self.todo.get()) is not None:
            item()
    def again(self):
        return sender
    def __del__(self):
        self.todo.put(None)
sender = Sender()
"""
ROOT = Path(__file__).parents[3]
Told = Callable[[str], dict[str, Any]]
needs_memory = pytest.mark.skipif(not value_stack._can_read(), reason="this interpreter's frames cannot be read")


@pytest.fixture
def told_by(tmp_path: Path) -> Told:
    """Runs a program, and returns what its agent tells at the end."""

    def run(program: str) -> dict[str, Any]:
        file = tmp_path / "program.py"
        file.write_text(_BEGIN + textwrap.dedent(program))
        paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
        done = subprocess.run(
            [sys.executable, file], capture_output=True, text=True, timeout=120, env={**os.environ, **paths}, check=False
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


def stuck(waits: dict[str, list[str]]) -> set[str]:
    """The parties that wait for one another, or for themselves, for ever."""
    found = set(waits)
    while free := {one for one in found if not found.issuperset(waits[one])}:
        found -= free
    return found - {MAIN}


@needs_memory
@pytest.mark.parametrize(
    "program",
    [
        _WORK,
        'threading.Thread(target=lambda: threading.Event().wait(), name="work").start()',
        _QUEUE + 'ThreadPoolExecutor(1, "work").submit(work)',
        _WORK + _ENDED,
        _OF_CLASS,
    ],
    ids=["queue", "event", "executor", "beside a coroutine that has ended", "in a class with a finalizer"],
)
def test_a_thread_that_nobody_can_end_keeps_the_program_from_ending(program: str, told_by: Told) -> None:
    told = told_by(program)
    (work,) = told["waits"][MAIN]
    assert work.startswith("one/thread:work")
    assert told["waits"][work] == [work]
    assert told["free"] == []


@needs_memory
def test_the_end_waits_for_all_threads(told_by: Told) -> None:
    program = _QUEUE + 'for name in ("first", "second"):\n    threading.Thread(target=work, name=name).start()'
    told = told_by(program)
    first, second = "one/thread:first", "one/thread:second"
    assert sorted(told["waits"][MAIN]) == [first, second]
    assert told["needs"][MAIN] == 2
    assert (told["waits"][first], told["waits"][second]) == ([second], [first])
    assert told["free"] == []


@pytest.mark.parametrize(
    "rest",
    [
        "threading.Timer(600, todo.put, (None,)).start()",
        "import time\nthreading.Thread(target=lambda: todo.put(time.sleep(600)), name='feeds', daemon=True).start()",
        "import signal\nsignal.signal(signal.SIGTERM, lambda *_: todo.put(None))",
        "late = todo\nthreading.Thread(target=lambda: threading.Event().wait(600) or late.put(None)).start()",
    ],
    ids=["a timer", "a daemon", "a signal's handler", "a thread that is slow"],
)
def test_a_thread_that_somebody_may_end_does_not(rest: str, told_by: Told) -> None:
    told = told_by(f"{_WORK}\n{rest}")
    assert "one/thread:work" in told["waits"][MAIN]
    assert "one/thread:feeds" not in told["waits"][MAIN], "the end of a daemon is not awaited"
    assert not stuck(told["waits"])
