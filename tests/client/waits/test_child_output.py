"""A thread that waits for a child, which waits at a pipe that only the thread can use, waits for itself."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.waits.children import (
    SECONDS_MAX,
    WAITER,
    assert_waits_for_itself,
    enders,
    looked_at,
    searched,
    wait_until_for,
    waiting,
)

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not Path("/proc/self/timers").exists(), reason="the system does not show timers"),
    pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 14), reason="references of frames are not read"),
]
WRITES = "import sys; sys.stdout.write('x' * 1_000_000)"
READS = "import sys; sys.stdin.read()"
TWO_AT_ONE = ["sh", "-c", "yes & exec cat /dev/zero"]
PIPELINE = ["sh", "-c", "yes | head -c 1000000 | cat; true"]
OUTPUT: dict[str, Any] = {"stdout": subprocess.PIPE}
INPUT: dict[str, Any] = {"stdin": subprocess.PIPE}


@pytest.mark.parametrize(
    ("code", "options"), [(WRITES, OUTPUT), (WRITES, {**OUTPUT, "text": True}), (READS, INPUT), (PIPELINE, OUTPUT)]
)
def test_who_waits_for_a_child_that_waits_for_it_waits_for_itself(
    alone: Callable[..., Agent], code: str | list[str], options: dict[str, Any]
) -> None:
    agent = alone("here")
    with waiting(code, **options):
        assert_waits_for_itself(agent)


def test_another_thread_that_has_the_file_may_read_it(alone: Callable[..., Agent]) -> None:
    agent, given, end = alone("here"), list[Any](), threading.Event()

    def read_later(file: Any) -> None:
        end.wait()
        with suppress(ValueError):
            file.read(1)

    def give(child: Any) -> None:
        given.append(threading.Thread(target=read_later, args=(child.stdout,), name="reader", daemon=True))
        given[0].start()

    with waiting(WRITES, give=give, **OUTPUT):
        wait_until_for(agent, "here/thread:reader")
    end.set()
    given[0].join(SECONDS_MAX)


@pytest.mark.parametrize(
    "code",
    [
        f"import signal; signal.signal(signal.SIGALRM, lambda *_: 1 / 0); {WRITES}",
        f"import threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); {WRITES}",
        "import time; time.sleep(600)",
        ["sh", "-c", "yes | (sleep 600; cat)"],
    ],
    ids=["alarm", "thread", "sleeps", "one of a pipeline sleeps"],
)
def test_a_child_that_may_go_on_is_unknown(alone: Callable[..., Agent], code: str | list[str]) -> None:
    agent = alone("here")
    with waiting(code, **OUTPUT):
        for _ in range(6):
            assert not enders(searched(agent))


def test_another_process_that_has_the_pipe_too_is_found_by_the_look(alone: Callable[..., Agent]) -> None:
    agent, others = alone("here"), list[subprocess.Popen[bytes]]()

    def give(child: Any) -> None:
        others.append(
            subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(600)"], pass_fds=[child.stdout.fileno()])
        )

    with waiting(WRITES, give=give, **OUTPUT):
        wait_until_for(agent, WAITER)
        assert not looked_at(agent).unchanged
    others[0].kill()
    others[0].wait()
