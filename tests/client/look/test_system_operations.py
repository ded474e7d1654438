"""Code that takes files away from their paths, or sends signals to processes, has a further name."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from os import remove
from pathlib import Path
from typing import Any

import pytest

from stilltrue.runtime.look.called_code.call_graph import names_in
from stilltrue.runtime.look.code.system_operations import DELETES_FILES, SIGNALS_PROCESSES, UNLOCKS_FILES, system_operations

PATH = Path("lock")


def closes(number: int) -> None:
    os.close(number)


def operations(function: Callable[..., Any]) -> set[str]:
    return set(system_operations(function.__code__, names_in(function.__code__), globals()))


@pytest.mark.parametrize(
    "function",
    [
        lambda: PATH.unlink(missing_ok=True),
        lambda: shutil.rmtree("folder"),
        lambda: os.remove("lock"),  # noqa: PTH107
        lambda: os.replace("new", "lock"),  # noqa: PTH105
        lambda: remove("lock"),  # noqa: PTH107
        lambda: subprocess.run(["rm", "-rf", "folder"], check=False),
        lambda: os.system("cd /tmp && rm lock"),
    ],
)
def test_it_deletes_files(function: Callable[[], Any]) -> None:
    assert DELETES_FILES in operations(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda number: os.kill(number, 15),
        lambda number: os.killpg(number, signal.SIGTERM),
        lambda one: signal.pidfd_send_signal(one, 15),
        lambda number: subprocess.run(["kill", str(number)], check=False),
        lambda: os.system("pkill renderer"),
    ],
)
def test_it_signals_processes(function: Callable[..., Any]) -> None:
    assert SIGNALS_PROCESSES in operations(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda number: fcntl.flock(number, fcntl.LOCK_UN),
        closes,
        lambda number: os.dup2(1, number),
        lambda: os.closerange(3, 99),
        lambda number: subprocess.run(["flock", "-u", str(number)], pass_fds=[number], check=False),
    ],
)
def test_it_unlocks_files_by_their_descriptors(function: Callable[..., Any]) -> None:
    assert UNLOCKS_FILES in operations(function)


def locks(path: Path) -> None:
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_UN)


def test_who_locks_a_file_unlocks_that_one() -> None:
    assert UNLOCKS_FILES not in operations(locks)


@pytest.mark.parametrize(
    "function",
    [lambda those: those.rename(1), lambda text: text.replace("a", "b"), lambda text: text + "a form to skill"],
)
def test_ordinary_names_are_neither(function: Callable[..., Any]) -> None:
    assert operations(function) == set()
