"""Runs a transcript: executes each command and writes its output, indented, below it.

A transcript is a text that documents the algorithm and tests it. Comments begin with ``#``; a command begins at the margin; the
indented lines below it are its output. :func:`replayed` returns the text with the present output: a test
compares the two, and a flag writes the new text over the old.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from detector.simulator.scenario.language import ScenarioError
from tests.simulator.transcript.stage import Stage

INDENT = "  "
COMMENT = re.compile(r"(^|\s)#.*")
"""Not the ``#`` within a party's name."""


def replayed(text: str) -> str:
    """The transcript ``text`` with the present output of its commands.

    Raises
    ------
    ScenarioError
        When a command cannot be parsed or executed; the message begins with the line number.
    """
    stage = Stage()
    return "\n".join(_lines(text.splitlines(), stage)) + "\n"


def _lines(lines: Iterable[str], stage: Stage) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if line.startswith(INDENT):
            continue  # old output
        yield line
        words = shlex.split(COMMENT.sub("", line))
        if words:
            yield from (INDENT + answer for answer in _answers(stage, words, number))


def _answers(stage: Stage, words: list[str], number: int) -> list[str]:
    try:
        return stage.do(words)
    except (ValueError, LookupError) as error:
        raise ScenarioError(f"line {number}: {' '.join(words)}: {error}") from error
