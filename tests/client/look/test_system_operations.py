"""Code that takes files away from their paths, or sends signals to processes, has a further name."""

from __future__ import annotations

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
from stilltrue.runtime.look.code.system_operations import DELETES_FILES, SIGNALS_PROCESSES, system_operations

PATH = Path("lock")


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
    [lambda those: those.rename(1), lambda text: text.replace("a", "b"), lambda text: text + "a form to skill"],
)
def test_ordinary_names_are_neither(function: Callable[..., Any]) -> None:
    assert operations(function) == set()
