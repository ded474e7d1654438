"""The framework of the scenario language: lines, indented blocks, verbs, and errors that name the line.

A scenario is a text with one command per line; ``#`` begins a comment; indented lines belong to the command above them.
Verbs define the commands: they map a command's first word (or first two) to the function that runs it, so that
several kinds of worlds can share the language: ``play(parse(text), {**fifo.verbs(), **others})``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stilltrue.fifo import ChannelError
from stilltrue.model import Fact


class ScenarioError(ValueError):
    """A scenario that cannot be parsed or run, or whose expectation is not met; the text begins with the line number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One command: its number in the file (from 1), its words, and the lines of its block."""

    number: int
    words: tuple[str, ...]
    block: tuple[Line, ...] = ()

    @property
    def text(self) -> str:
        """The command with single spaces."""
        return " ".join(self.words)

    def word(self, at: int, what: str) -> str:
        """The word at index ``at``; raises a ValueError that says what is expected there if it is missing."""
        if at >= len(self.words):
            raise ValueError(f"expected {what}")
        return self.words[at]


Verb = Callable[[Line], None]


def parse(text: str) -> tuple[Line, ...]:
    """Parse a scenario; raises ScenarioError for a stray indentation or an open quote."""
    lines: list[tuple[int, tuple[str, ...], list[Line]]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        words = _words(raw, number)
        if not words:
            continue
        if not raw[0].isspace():
            lines.append((number, words, []))
        elif lines:
            lines[-1][2].append(Line(number=number, words=words))
        else:
            raise ScenarioError(f"line {number}: indented, but there is no command above it")
    return tuple(Line(number=number, words=words, block=tuple(block)) for number, words, block in lines)


def play(lines: Sequence[Line], verbs: Mapping[str, Verb]) -> None:
    """Run the commands in order; raises ScenarioError at the first that is unknown, impossible, or not met."""
    for line in lines:
        verb = verbs.get(" ".join(line.words[:2])) or verbs.get(line.words[0])
        if verb is None:
            known = ", ".join(sorted(verbs))
            raise ScenarioError(f"line {line.number}: unknown command {line.words[0]!r}; known: {known}")
        try:
            verb(line)
        except ScenarioError:
            raise
        except (ValueError, ChannelError) as error:
            raise ScenarioError(f"line {line.number}: {line.text}: {error}") from error


def facts_of(words: Sequence[str]) -> dict[str, Fact]:
    """Parse ``key=value`` words, with values as for :func:`fact_of`; raises ValueError for anything else."""
    facts: dict[str, Fact] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ValueError(f"expected key=value, got {word!r}")
        facts[key] = fact_of(value)
    return facts


def fact_of(text: str) -> Fact:
    """Parse one value: an integer, a decimal, ``true``, ``false``, or else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def split_at(words: Sequence[str], *keywords: str) -> dict[str, tuple[str, ...]]:
    """Split a command at its keywords: the words before the first under ``""``, those after each keyword under its name."""
    parts: dict[str, list[str]] = {"": []}
    current = parts[""]
    for word in words:
        if word in keywords and word not in parts:
            current = parts[word] = []
        else:
            current.append(word)
    return {keyword: tuple(part) for keyword, part in parts.items()}


def _words(raw: str, number: int) -> tuple[str, ...]:
    lexer = shlex.shlex(raw, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters, lexer.quotes = True, "#", '"'
    try:
        return tuple(lexer)
    except ValueError as error:
        raise ScenarioError(f"line {number}: {str(error).lower()}") from error
