"""The commands that ask a detector: exact exit codes, text, JSON, and one line for each error."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


async def test_the_exit_code_of_ask_is_the_answer(played: Any, here: Any, tmp_path: Path) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    async with played.detecting(tmp_path, lease_seconds=60.0) as detector:

        async def run(*arguments: str) -> Any:
            return await here(*arguments, "--detector", detector.address)

        nobody = await run("ask", "deadlock")
        assert (nobody.code, nobody.err) == (3, "")
        assert "no process is connected\n  start one with 'stilltrue run -- python app.py': it joins with " in nobody.out
        await asyncio.gather(a.connect(detector.address), b.connect(detector.address))
        free = await run("ask", "deadlock")
        assert free.code == 1
        assert free.out.startswith("deadlock: not as of ")
        assert "no deadlock" not in free.out
        stuck = played.Deadlock(a, b)
        held = await run("ask", "deadlock", "--json")
        assert held.code == 0
        verdict = json.loads(held.out)
        assert verdict["holds"] is True
        assert verdict["core"] == stuck.core
        shown, listed = await run("show", "latest", "--format", "json"), await run("snapshots", "--json")
        incidents, agents = await run("incidents", "--json"), await run("agents", "--json")
        assert json.loads(shown.out)["id"] == verdict["snapshot"]["id"]
        assert json.loads(listed.out)[0]["verdicts"]["deadlock"] is True
        (incident,) = json.loads(incidents.out)
        assert (incident["core"], incident["closed"]) == (stuck.core, None)
        assert [agent["process"] for agent in json.loads(agents.out)] == ["a", "b"]
        document = tmp_path / "document.json"
        document.write_text(shown.out)
        again = await here("evaluate", "deadlock", str(document), "--json")
        evaluated = json.loads(again.out)
        assert (again.code, evaluated["core"], evaluated["witness"]) == (0, verdict["core"], verdict["witness"])
        for words in (("incidents",), ("incidents", "--open"), ("agents",), ("snapshots",), ("show", "latest")):
            told = await run(*words)
            assert (told.code, told.err) == (0, "")
            assert "\x1b" not in told.out
            assert "a" in told.out
        processes = (await run("show", "latest")).out.partition("needs")[0]
        assert processes.count("1 deadlocked, 1 behind a deadlock") == 2, "each process: its worker, and its caller"
        assert "active" not in processes
        told = await run("show", incident["id"])
        assert f"{incident['id']}: deadlock, open" in told.out
        assert (await run("incidents", incident["id"])).out.splitlines()[:-1] == told.out.splitlines()[:-1]
        assert json.loads((await run("incidents", incident["id"], "--json")).out)["waits"] == incident["waits"]
        absent = await run("incidents", "i-0")
        assert (absent.code, absent.err) == (2, "stilltrue: there is no incident i-0; 'stilltrue incidents' lists them\n")
        for form, mark in (("svg", "<svg "), ("dot", "digraph"), ("graphml", "<graphml")):
            for wanted in ("latest", incident["id"]):
                drawn = await run("show", wanted, "--format", form)
                assert (drawn.code, drawn.err) == (0, "")
                assert mark in drawn.out
                assert all(party in drawn.out for party in stuck.core)
        await asyncio.gather(a.kill(), b.kill())
        silent = await run("ask", "deadlock")
        assert silent.code == 3
        assert silent.out.endswith("'stilltrue doctor' says what to do about members that stay missing\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ask", "deadlock", "--detector", "127.0.0.1:1"), "no detector at 127.0.0.1:1"),
        (("agents", "--detector", "nowhere"), "is not a valid HOST:PORT"),
        (("ask",), "Missing argument 'PREDICATE', as in: stilltrue ask deadlock (see"),
        (("analyze",), "Missing argument 'ARCHIVE', as in: stilltrue analyze stilltrue-data/archive --out analysis (see"),
        (("probe", "mysql"), "stilltrue probe: there is no probe 'mysql', only postgres and redis (see"),
        (("probe", "--bogus"), "No such option '--bogus'. (see"),
        (("asc", "deadlock"), "no such command 'asc'; did you mean ask?"),
        (("xyzzy",), "no such command 'xyzzy' (see"),
        (("help",), "no such command 'help'; did you mean --help?"),
        (("ask", "deadlock", "--nonsense"), "No such option"),
        (("show", "seven"), "is not a snapshot number"),
        (("snapshots", "--limit", "0"), "--limit"),
        (("snapshots", "--limit", "x"), "Invalid value for '--limit': 'x' is not a valid integer. (see"),
        (("watch", "--wait-seconds-max", "0", "--detector", "127.0.0.1:1"), "no detector at 127.0.0.1:1"),
        (("watch", "--wait-seconds-max", "0.5", "--detector", "127.0.0.1:1"), "no detector at 127.0.0.1:1 after 0.5 s"),
        (("ask", "deadlock", "--detector", "http://127.0.0.1:7600/"), "is a URL, not HOST:PORT: write 127.0.0.1:7600 ("),
        (("ask", "deadlock", "--detector", "http://127.0.0.1:7601/"), "write 127.0.0.1:7600 (7601 is the port of the web UI"),
        (("ask", "deadlock", "--detector", "http://127.0.0.1:7600/"), "write 127.0.0.1:7600 (see"),
        (("ask", "deadlock", "--detector", "::1:7600"), "an IPv6 address stands in brackets: write [::1]:7600 (see"),
        (("ask", "deadlock", "--detector", "127.0.0.1"), "is not a valid HOST:PORT; for example 127.0.0.1:7600 (see"),
        (("serve", "--bogus"), "No such option '--bogus'. (see"),
        (("serve", "--expect"), "stilltrue serve: Option '--expect' requires an argument. (see stilltrue serve --help)"),
        (("ask", "deadlock", "--detector", "127.0.0.1:70000"), "the port must be between 1 and 65535"),
        (("incident",), "did you mean incidents?"),
        (("run", "--serivce", "shop", "--", "true"), "No such option '--serivce'. Did you mean '--service'?"),
        (("serve", "--period-seconds", "-1"), "--period-seconds: must be between 0 and 86400, not -1"),
        (("serve", "--scope", "shop"), "--scope: 'shop'"),
        (("serve", "--set", "fact=3"), "--set: 'fact=3'"),
        (("serve", "--suspect-seconds", "3"), "--suspect-seconds"),
    ],
)
async def test_errors_are_one_line_that_names_what_to_change(here: Any, arguments: tuple[str, ...], words: str) -> None:
    ended = await here(*arguments)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.count("\n") == 1
    assert words in ended.err


async def test_unknown_names_are_refused_with_the_known_ones(played: Any, here: Any, tmp_path: Path) -> None:
    async with played.detecting(tmp_path) as detector:
        for arguments, words in (
            (("ask", "dedlock"), "available: deadlock"),
            (("ask", "deadlock", "--scope", "shop"), "no scope 'shop'"),
            (("watch", "dedlock"), "available: deadlock"),
            (("show", "99"), "there is no snapshot 99 yet: the next one is"),
            (("show", "latest"), "no snapshot is kept yet: the first is taken when a process connects"),
            (("show", "i-0000000000"), "no incident i-0000000000"),
        ):
            ended = await here(*arguments, "--detector", detector.address)
            assert (ended.code, ended.out) == (2, "")
            assert words in ended.err
            assert ended.err.count("\n") == 1


async def test_the_help_of_each_command_has_an_example(here: Any) -> None:
    listing = (await here("--help")).out
    for name in ("serve", "ask", "watch", "agents", "snapshots", "incidents", "show"):
        told = await here(name, "--help")
        assert f"  {name} " in listing
        assert told.code == 0
        assert f"stilltrue {name}" in told.out
        assert re.search("^  Examples?:$", told.out, re.M)


async def test_the_bare_command_prints_its_help(here: Any) -> None:
    bare, asked = await here(), await here("--help")
    assert (bare.code, bare.err) == (0, "")
    assert bare.out == asked.out
    assert "Commands:" in bare.out


async def test_the_environment_names_the_detector_and_each_flag(command: Any) -> None:
    told = await command("ask", "deadlock", STILLTRUE_DETECTOR="127.0.0.1:1")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("stilltrue: no detector at 127.0.0.1:1 (")
    assert told.err.count("\n") == 1
    told = await command("serve", STILLTRUE_SERVE_REPORT_BYTES_MAX="7")
    assert told.err == "stilltrue: --report-bytes-max: must be between 1024 and 1073741824, not 7\n"


@pytest.mark.parametrize(
    "command",
    [
        *(
            f"live.{name}"
            for name in ("ask", "agents", "cure", "doctor", "forget", "incidents", "snapshots", "stacks", "watch")
        ),
        *(f"processes.{name}" for name in ("probe", "run", "sidecar", "webhook")),
    ],
)
def test_a_command_that_evaluates_nothing_does_not_import_numpy(command: str) -> None:
    program = f"import sys, detector.commands.{command}; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
