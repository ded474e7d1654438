"""A thread that gives a console what it reads from elsewhere may do anything with the variables that the console has."""

from __future__ import annotations

import code
import os
import threading
from collections.abc import Callable
from typing import IO, Any

import pytest

from stilltrue import Agent
from tests.client.look.worlds import Stuck, look_at_caller


class Remote(code.InteractiveConsole):
    """A console that reads from a pipe."""

    def __init__(self, names: dict[str, Any], reader: IO[str]) -> None:
        super().__init__(names)
        self.reader = reader

    def raw_input(self, prompt: str = "") -> str:
        line = self.reader.readline()
        if not line:
            raise EOFError
        return line

    def write(self, data: str) -> None:
        del data


_NAMES: dict[str, Any] = {}


def pushes(reader: IO[str]) -> None:
    console = code.InteractiveConsole(_NAMES)
    for line in reader:
        console.push(line)


def interacts(reader: IO[str]) -> None:
    Remote(_NAMES, reader).interact("", "")


@pytest.mark.parametrize("run", [pushes, interacts])
@pytest.mark.parametrize("has_it", [True, False])
def test_a_console_may_end_what_its_variables_lead_to(
    alone: Callable[..., Agent], stuck: Stuck, run: Callable[..., None], has_it: bool
) -> None:
    calls: dict[int, Any] = {}
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader:
        _NAMES.update(calls=calls if has_it else {})
        thread = threading.Thread(target=run, args=(reader,))
        thread.start()

        def keeps(get: Any) -> None:
            call = calls[0] = get.future(b"")
            call.result()

        seen = look_at_caller(alone, stuck, keeps)
        os.close(writing)
        thread.join()
        _NAMES.clear()
    assert bool(seen.ways_out) is has_it, seen.ways_out
