"""The output formats, and shell completion."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from rich.console import Console

from detector.cli import COMMANDS, cli
from detector.commands.options import completed_names as names
from detector.commands.shared.output import Output, printable_yaml
from detector.commands.shared.render import table
from stilltrue.v1 import detector_pb2 as pb

DOCUMENT = {"waits": [{"waiter": "a/1", "among": ["b/2"]}, {"waiter": "b/2", "among": ["a/1"]}]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b": [], "c": {}, "d": None, "e": True}, "a: 1\nb: []\nc: {}\nd: null\ne: true\n"),
        ([{"id": "i-1", "core": ["a", "b"]}], '- id: "i-1"\n  core:\n  - "a"\n  - "b"\n'),
        ({"x": {"y": {"z: #": "no\n"}}}, 'x:\n  "y":\n    "z: #": "no\\n"\n'),
        ([[1, 2], []], "- - 1\n  - 2\n- []\n"),
        ([], "[]\n"),
    ],
)
def test_yaml_is_written_in_blocks_and_quotes_every_text(value: Any, text: str) -> None:
    assert printable_yaml(value) == text


async def test_each_format_of_an_offline_verdict(here: Any, tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(DOCUMENT))
    forms = {form: await here("evaluate", "deadlock", str(file), "-o", form.value) for form in Output}
    assert {ended.code for ended in forms.values()} == {0}
    assert forms[Output.TEXT].out.startswith("deadlock: TRUE\n")
    assert json.loads(forms[Output.JSON].out)["core"] == ["a/1", "b/2"]
    assert '\ncore:\n- "a/1"\n- "b/2"\n' in forms[Output.YAML].out
    assert forms[Output.NAME].out == "a/1\nb/2\n"
    assert (await here("evaluate", "deadlock", str(file), "--json")).out == forms[Output.JSON].out


@pytest.mark.live
async def test_each_format_of_a_detectors_lists(
    played: Any, here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "SECONDS_MAX", 20)
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    async with played.detecting(tmp_path) as detector:
        await detector.join(a, b)
        await detector.ask()
        address = ("--detector", detector.address)
        assert (await here("agents", "-o", "name", *address)).out == "a\nb\n"
        snapshots = (await here("snapshots", "-o", "name", *address)).out.split()
        assert (await here("show", "latest", "-o", "name", *address)).out.split() == snapshots[:1]
        assert (await here("incidents", "-o", "name", *address)).out == ""
        narrow, wide = [(await here("agents", "-o", form, *address)).out.splitlines() for form in ("text", "wide")]
        assert (len(narrow), len(wide)) == (3, 3)
        assert set(narrow[0].split()) < set(wide[0].split())
        assert "- process: " in (await here("agents", "-o", "yaml", *address)).out
        assert "processes:\n" in (await here("show", "latest", "-o", "yaml", *address)).out
        assert (await here("doctor", "-o", "name", *address)).err == ""
        for words, wanted in ((("ask", "deadlock", *address, "--scope"), "all"), (("show", *address), snapshots[0])):
            assert wanted in await asyncio.to_thread(completed, *words, begun="")
        await asyncio.gather(a.kill(), b.kill())


def test_a_table_wraps_between_words_and_cuts_none() -> None:
    rows = [("checkout-7d9f8c6b5-x2kq0", "1 server, 3 channels, 98 calls"), ("stock", "y" * 90)]
    out = Console(file=io.StringIO(), width=50, color_system=None)
    with out.capture() as text:
        out.print(table(("process", "sees"), rows, flexible={"sees"}))
    lines = text.get().splitlines()
    assert max(map(len, lines)) <= 50
    assert {"checkout-7d9f8c6b5-x2kq0", "server,", "channels,", "calls"} <= set(" ".join(lines).split())
    assert text.get().count("y") == 90, "a word wider than the terminal goes on in the next line"


def completed(*words: str, begun: str) -> list[str]:
    """What a shell offers after ``words``."""
    shell = ShellComplete(cli, {}, "stilltrue", "_STILLTRUE_COMPLETE")
    return [item.value for item in shell.get_completions(list(words), begun)]


def test_commands_flags_and_predicates_are_completed_without_a_detector() -> None:
    assert completed(begun="in") == ["incidents"]
    assert "deadlock" in completed("ask", begun="")
    assert completed("evaluate", begun="term") == ["termination"]
    assert "--scope" in completed("watch", begun="--s")
    assert completed("ask", "deadlock", "--detector", "127.0.0.1:1", "--scope", begun="") == ["all"]
    assert completed("show", "--detector", "127.0.0.1:1", begun="") == ["latest"]


def test_cure_completes_only_incidents_that_have_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"i-open": True, "i-ended": False}

    class Stub:
        def ListIncidents(self, request: pb.ListIncidentsRequest, timeout: float) -> pb.ListIncidentsResponse:  # noqa: N802
            assert timeout <= names.SECONDS_MAX
            shown = [name for name, is_open in known.items() if is_open or not request.open_only]
            return pb.ListIncidentsResponse(incidents=[pb.Incident(id=name) for name in shown])

    monkeypatch.setattr(names, "detector_stub", lambda _: contextlib.nullcontext(Stub()))
    assert completed("cure", begun="i") == ["i-open"]
    assert completed("incidents", begun="i") == ["i-open", "i-ended"]
    assert completed("completion", begun="") == ["bash", "zsh", "fish"]


def test_forget_completes_only_lost_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"orders-0": pb.AGENT_STATE_LOST, "orders-1": pb.AGENT_STATE_LIVE, "orders-2": pb.AGENT_STATE_MISSING}

    class Stub:
        def ListAgents(self, _: pb.ListAgentsRequest, timeout: float) -> pb.ListAgentsResponse:  # noqa: N802
            assert timeout <= names.SECONDS_MAX
            agents = [pb.Agent(process={"instance": name}, state=state) for name, state in states.items()]
            return pb.ListAgentsResponse(agents=agents)

    monkeypatch.setattr(names, "detector_stub", lambda _: contextlib.nullcontext(Stub()))
    assert completed("forget", begun="o") == ["orders-0"]
    assert completed("stacks", begun="o") == list(states)


def test_archives_results_and_documents_are_completed_by_the_shell() -> None:
    shell = ShellComplete(cli, {}, "stilltrue", "_STILLTRUE_COMPLETE")
    for words, kind in (
        (["analyze"], "dir"), (["compact"], "dir"), (["stream"], "dir"), (["generate-archive"], "dir"),
        (["analyze", "a", "--out"], "dir"), (["stream", "a", "--out"], "dir"), (["assemble", "--out"], "dir"),
        (["evaluate", "deadlock"], "file"),
    ):  # fmt: skip
        assert [item.type for item in shell.get_completions(words, "st")] == [kind], words
    assert "termination" in completed("analyze", "a", "--predicate", begun="t")


def test_commands_are_completed_with_the_summaries_of_the_help() -> None:
    shell = ShellComplete(cli, {}, "stilltrue", "_STILLTRUE_COMPLETE")
    assert {item.value: item.help for item in shell.get_completions([], "")} == {
        name: summary for name, (_, summary) in COMMANDS.items()
    }


def test_a_command_to_run_is_completed_by_the_programs_and_files_that_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("gunicorn", "gunzip", "uvicorn"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere")
    shell = ShellComplete(cli, {}, "stilltrue", "_STILLTRUE_COMPLETE")
    assert completed("run", begun="gu") == ["gunicorn", "gunzip"]
    for words, begun in ((["run"], ""), (["run"], "./ap"), (["run", "--", "gunicorn"], "gu")):
        assert [item.type for item in shell.get_completions(words, begun)] == ["file"], (words, begun)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_the_script_for_each_shell_calls_the_command(here: Any, shell: str) -> None:
    told = await here("completion", shell)
    assert (told.code, told.err) == (0, "")
    assert f"_STILLTRUE_COMPLETE={shell}_complete" in told.out
    if shell == "fish":
        assert 'split -m 1 ","' in told.out
        assert told.out.count("string split") == 1, "a text with commas is not cut"
    if shell == "zsh":
        assert 'for type key descr in "${response[@]}"; do' in told.out, "an empty word keeps its place"
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=told.out, text=True, check=True)


def options_with_help(name: str) -> Iterator[tuple[click.Option, tuple[str, str] | None]]:
    """The options of a command, each with what its help shows of it."""
    context = click.Context(cli, info_name="stilltrue", auto_envvar_prefix="STILLTRUE")
    command = cli.get_command(context, name)
    assert command is not None
    inner = click.Context(command, info_name=name, parent=context)
    for option in (each for each in command.params if isinstance(each, click.Option)):
        yield option, option.get_help_record(inner)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_flag_names_its_environment_variable(name: str) -> None:
    for option, record in options_with_help(name):
        assert record is None or "env var: STILLTRUE_" in " ".join(record[1].split()), option.name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_environment_variable_of_a_flag_has_the_flag_s_own_name(name: str) -> None:
    for option, record in options_with_help(name):
        named = re.search(r"env var: STILLTRUE(_[A-Z_]+)", " ".join(record[1].split())) if record else None
        flags = [flag[2:].replace("-", "_").upper() for flag in option.opts if flag.startswith("--")]
        known = {"party_metadata": "TELLS_PARTY"}.get(flags[0].lower(), flags[0])
        assert named is None or any(named[1].removesuffix("S").endswith(f"_{one}".removesuffix("S")) for one in (*flags, known))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    own = command.commands if isinstance(command, click.Group) else {}
    for path, each in {name: command, **{f"{name} {one}": found for one, found in own.items()}}.items():
        text = each.get_help(click.Context(each, info_name=path))
        assert re.search(rf"\bExamples?\b.*\n(.*\n)*?.*stilltrue {path}\b", text), path


def test_the_environment_variables_that_the_help_gives_as_examples_are_those_of_ask() -> None:
    context = click.Context(cli, info_name="stilltrue", auto_envvar_prefix="STILLTRUE")
    ask = cli.get_command(context, "ask")
    assert ask is not None
    given = set(re.findall(r"STILLTRUE_[A-Z_]+", cli.get_help(context)))
    assert given
    assert given <= set(re.findall(r"STILLTRUE_[A-Z_]+", ask.get_help(click.Context(ask, info_name="ask", parent=context))))


@pytest.mark.parametrize(
    ("command", "flag"),
    [(("analyze", "a", "--out", "b"), "--since"), (("compact", "a"), "--until"), (("generate-archive", "a"), "--since")],
)
async def test_what_is_not_a_day_is_answered_with_one(command: tuple[str, ...], flag: str, here: Any) -> None:
    ended = await here(*command, flag, "2030")
    assert ended.code == 2
    assert f"Invalid value for '{flag}': '2030' is not a day; for example 2026-11-29." in ended.err
    assert f"{flag} YYYY-MM-DD" in (await here(command[0], "--help")).out
