"""Warns of environment variables that are meant as flags of a command and misspelt.

The agent names misspelt settings of its own. So of a command that runs one, only the command's own flags are checked here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from difflib import get_close_matches

import click

from detector.ops.clock import utc_milliseconds
from stilltrue.protocol.misspelt import misspelt
from stilltrue.runtime.introspection.linux.child_processes import STARTED
from stilltrue.settings import Settings

_OTHERS = frozenset({STARTED, "STILLTRUE_JSONL"})
"""Variables of one command that are near one of another: the agent's own, and `evaluate --jsonl` beside `--json`."""


_WITH_AGENT = frozenset({"sidecar", "probe"})
_LOG_FORMAT = "--log-format"


def warn_of_misspelt(context: click.Context, name: str, arguments: Sequence[str]) -> None:
    """Print a line on standard error for each misspelt variable of the command ``name`` in the group of ``context``.

    It is a line of JSON if ``arguments`` or the environment have the command log JSON.
    """
    assert isinstance(context.command, click.Group)
    command = context.command.get_command(context, name)
    if command is None:
        return
    known = variables_of(command, f"{context.auto_envvar_prefix}_{_word(name)}")
    for variable, meant in misspelt_variables(os.environ, known, name):
        near = f"; did you mean {meant}?" if meant else f": 'stilltrue {name} --help' lists them"
        text = f"{variable} is not a setting of 'stilltrue {name}'{near}"
        if _log_format(arguments, known) == "json":
            line = {"time": utc_milliseconds(time.time()), "level": "warning", "event": "setting ignored", "text": text}
            click.echo(json.dumps(line), err=True)
        else:
            click.echo(f"stilltrue: {text}", err=True)


def _log_format(arguments: Sequence[str], known: Iterable[str]) -> str:
    """The value of the flag ``--log-format``, or of a variable for it; empty if neither is set."""
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith(f"{_LOG_FORMAT}=") else [word])]
    given = [words[at + 1] for at, word in enumerate(words[:-1]) if word == _LOG_FORMAT]
    variables = sorted(each for each in known if each.endswith("_LOG_FORMAT"))
    return next((text for text in [*given[-1:], *map(os.environ.get, variables)] if text), "")


def misspelt_variables(environment: Iterable[str], known: set[str], name: str) -> Iterator[tuple[str, str]]:
    """The misspelt ones with those that were meant: near ``known``, or with the command's own prefix (meant may be unknown)."""
    prefix = f"STILLTRUE_{_word(name)}_"
    of_agents = {f"STILLTRUE_{each.name.upper()}" for each in fields(Settings)}
    own = {each for each in environment if each.startswith(prefix) and each not in known | _OTHERS}
    bare = {each.removeprefix(prefix): each for each in known}
    for variable in sorted(own):
        near = get_close_matches(variable.removeprefix(prefix), bare, n=1, cutoff=0.7)
        yield variable, bare[near[0]] if near else ""
    shared = {each for each in known if not each.startswith(prefix)} if name not in _WITH_AGENT else set()
    yield from misspelt(set(environment) - own, shared, others=known | of_agents | _OTHERS)


def variables_of(command: click.Command, prefix: str) -> set[str]:
    """The variables of the flags of ``command`` and its subcommands; unless a flag names its own, it begins with ``prefix``."""
    found: set[str] = set()
    for parameter in command.params:
        given = parameter.envvar or (
            f"{prefix}_{(parameter.name or '').upper()}" if isinstance(parameter, click.Option) else ()
        )
        found.update([given] if isinstance(given, str) else given)
    for name, each in command.commands.items() if isinstance(command, click.Group) else ():
        found |= variables_of(each, f"{prefix}_{_word(name)}")
    return found


def _word(name: str) -> str:
    return name.replace("-", "_").upper()
