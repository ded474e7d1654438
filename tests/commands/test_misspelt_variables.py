"""Misspelt environment variables of the commands: a line on standard error names them."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import click
import pytest

from detector.cli import COMMANDS, cli
from detector.commands.options.misspelt_variables import misspelt_variables, variables_of
from stilltrue.protocol.misspelt import misspelt
from stilltrue.runtime.introspection.linux.child_processes import STARTED
from stilltrue.settings import Settings, read_settings

AGENTS = {f"STILLTRUE_{each.name.upper()}" for each in fields(Settings)}


def variables(name: str) -> set[str]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return variables_of(command, f"STILLTRUE_{name.replace('-', '_').upper()}")


@pytest.mark.parametrize(
    ("command", "variable", "text"),
    [
        ("ask", "STILLTRUE_DETECTR", "; did you mean STILLTRUE_DETECTOR?"),
        ("ask", "STILLTRUE_ASK_TIMEOUT_SECOND", "; did you mean STILLTRUE_ASK_TIMEOUT_SECONDS?"),
        ("serve", "STILLTRUE_SERVE_PROT", "; did you mean STILLTRUE_SERVE_PORT?"),
        ("serve", "STILLTRUE_SERVE_COLOUR", ": 'stilltrue serve --help' lists them"),
        ("check-predicate", "STILLTRUE_CHECK_PREDICATE_WORLD", "; did you mean STILLTRUE_CHECK_PREDICATE_WORLDS?"),
    ],
)
async def test_a_misspelt_variable_is_named(command: str, variable: str, text: str, here: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv(variable, "1")
    ended = await here(command, "--help")
    assert ended.code == 0
    assert ended.err == f"stilltrue: {variable} is not a setting of 'stilltrue {command}'{text}\n"


@pytest.mark.parametrize("told", [{"STILLTRUE_SERVE_LOG_FORMAT": "json"}, {}])
async def test_it_is_named_in_json_where_the_log_is_json(told: dict[str, str], here: Any, monkeypatch: Any) -> None:
    for name, value in {"STILLTRUE_SERVE_PROT": "1", **told}.items():
        monkeypatch.setenv(name, value)
    ended = await here("serve", *(() if told else ("--log-format=json",)), "--help")
    line = json.loads(ended.err)
    assert (line["level"], line["event"]) == ("warning", "setting ignored")
    assert line["text"] == "STILLTRUE_SERVE_PROT is not a setting of 'stilltrue serve'; did you mean STILLTRUE_SERVE_PORT?"


@pytest.mark.parametrize("name", ["sidecar", "probe"])
def test_a_command_with_an_agent_leaves_the_agents_settings_to_it(name: str, caplog: pytest.LogCaptureFixture) -> None:
    given = {"STILLTRUE_DETECTR": "127.0.0.1:1"}
    assert list(misspelt_variables(given, variables("ask"), "ask")) == [("STILLTRUE_DETECTR", "STILLTRUE_DETECTOR")]
    assert list(misspelt_variables(given, variables(name), name)) == []
    read_settings({}, given)
    assert "STILLTRUE_DETECTR is not a setting; did you mean STILLTRUE_DETECTOR?" in caplog.text


def test_no_variable_of_any_command_or_agent_is_misspelt_for_another() -> None:
    every = set().union(*map(variables, COMMANDS)) | AGENTS | {STARTED}
    assert len(every) > 200
    assert not list(misspelt(every - AGENTS, AGENTS))
    for name in COMMANDS:
        known = variables(name)
        assert not list(misspelt_variables(every, known, name))
        for one in every - known:
            assert not list(misspelt_variables([one], known, name)), name


def test_the_variables_of_subcommands_are_known() -> None:
    assert {"STILLTRUE_PROBE_DSN", "STILLTRUE_PROBE_LOCKS"} <= variables("probe")
