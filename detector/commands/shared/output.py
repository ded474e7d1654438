"""How commands print their answers: the option ``-o``, and JSON, YAML or bare names for programs."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import click

from detector.commands.shared.render import print_json
from detector.ops.printable_text import printable

_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


class Output(StrEnum):
    """Output formats: ``text`` fits a terminal, ``wide`` leaves nothing out."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


FORMS = [each.value for each in Output]


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``-o FORM``, passed as ``output``; ``--json`` is short for ``-o json``."""

    @functools.wraps(command)
    def with_output(*, form: str, as_json: bool, **rest: Any) -> Any:
        return command(output=Output.JSON if as_json else Output(form), **rest)

    with_output = click.option(
        "--json", "as_json", is_flag=True, envvar="STILLTRUE_JSON", show_envvar=True, help="The same as -o json."
    )(with_output)
    return click.option(
        "-o", "--output", "form", type=click.Choice(FORMS), default="text", show_default=True, show_envvar=True,
        envvar="STILLTRUE_OUTPUT", help="Output format: wide has all columns, name only names, one per line.",
    )(with_output)  # fmt: skip


def print_data(value: Any, output: Output) -> bool:
    """Print ``value`` as JSON or YAML if ``output`` asks for one of them; returns whether it did."""
    match output:
        case Output.JSON:
            print_json(value)
        case Output.YAML:
            click.echo(printable_yaml(value), nl=False)
        case _:
            return False
    return True


def print_names(names: Iterable[str]) -> None:
    """Print names, one per line."""
    for name in names:
        click.echo(printable(name))


def printable_yaml(value: Any) -> str:
    """Format JSON-like values as YAML.

    Examples
    --------
    >>> print(printable_yaml({"core": ["a/1"], "until": None, "snapshot": {}}), end="")
    core:
    - "a/1"
    until: null
    snapshot: {}
    """
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _entry(f"{_key(str(key))}:", each)
    elif isinstance(value, list | tuple) and value:
        for each in value:
            first, *rest = _lines(each)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield json.dumps(value, ensure_ascii=True)


def _entry(head: str, value: Any) -> Iterator[str]:
    lines = list(_lines(value))
    if isinstance(value, Mapping) and value:
        yield head
        yield from (f"  {line}" for line in lines)
    elif isinstance(value, list | tuple) and value:
        yield head
        yield from lines
    else:
        yield f"{head} {lines[0]}"


def _key(name: str) -> str:
    """Quote a key if necessary; words that YAML reads as a boolean or null need quotes."""
    plain = name.replace("_", "").isalpha() and name.isascii() and name.lower() not in _YAML_WORDS
    return name if plain else json.dumps(name)
