"""Warns of environment variables that are meant as flags of a command and misspelt."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import fields
from difflib import get_close_matches

import click

from stilltrue.launch import STARTED
from stilltrue.protocol.misspelt import misspelt
from stilltrue.settings import Settings

_OTHERS = frozenset({STARTED, "STILLTRUE_JSONL"})
"""Variables of one command that are near one of another: the agent's own, and `evaluate --jsonl` beside `--json`."""


def warn_of_misspelt(context: click.Context, name: str) -> None:
    """Print a line on standard error for each misspelt variable of the command ``name`` in the group of ``context``."""
    assert isinstance(context.command, click.Group)
    command = context.command.get_command(context, name)
    if command is None:
        return
    known = variables_of(command, f"{context.auto_envvar_prefix}_{_word(name)}")
    for variable, meant in misspelt_variables(os.environ, known, name):
        near = f"; did you mean {meant}?" if meant else f": 'stilltrue {name} --help' lists them"
        click.echo(f"stilltrue: {variable} is not a setting of 'stilltrue {name}'{near}", err=True)


def misspelt_variables(environment: Iterable[str], known: set[str], name: str) -> Iterator[tuple[str, str]]:
    """The misspelt ones with those that were meant: near ``known``, or with the command's own prefix (meant may be unknown)."""
    prefix = f"STILLTRUE_{_word(name)}_"
    of_agents = {f"STILLTRUE_{each.name.upper()}" for each in fields(Settings)}
    own = {each for each in environment if each.startswith(prefix) and each not in known | _OTHERS}
    bare = {each.removeprefix(prefix): each for each in known}
    for variable in sorted(own):
        near = get_close_matches(variable.removeprefix(prefix), bare, n=1, cutoff=0.7)
        yield variable, bare[near[0]] if near else ""
    shared = {each for each in known if not each.startswith(prefix)}
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
