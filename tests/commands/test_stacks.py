"""``stilltrue stacks``: what the parties of a process are blocked in, who can end that, and what is unexplained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from detector.commands.live.stacks import _row
from stilltrue.v1 import agent_pb2

HELD = agent_pb2.StandingParty(
    party="a/thread:one", blocked_in="a lock that a/thread:two holds", held_by=["a/thread:two"], stack=["app.py:7 in work"]
)
UNKNOWN = agent_pb2.StandingParty(
    party="a/thread:two", blocked_in="Event.wait", unexplained=True, stack=["app.py:9 in wait", "app.py:1 in <module>"]
)


@pytest.mark.live
async def test_the_command_prints_stacks_and_the_unexplained_parties(played: Any, here: Any, tmp_path: Path) -> None:
    a, old = played.FakeProcess("a"), played.FakeProcess("old")
    a.standing = [UNKNOWN, HELD]
    async with played.detecting(tmp_path) as detector:
        await detector.join(a, old)
        address = ("--detector", detector.address)
        text = (await here("stacks", "a", *address)).out
        assert text.startswith("a: 2 parties have not moved for a while, 1 unexplained\n")
        assert "unexplained (Event.wait)" in text
        assert "a lock that a/thread:two holds" in text
        assert "app.py:1 in <module>" in (await here("stacks", "a", "-o", "wide", *address)).out
        (shown,) = json.loads((await here("stacks", "a", "--json", *address)).out)
        assert [one["unexplained"] for one in shown["parties"]] == [True, False]
        assert (await here("stacks", "-o", "name", *address)).out == "a/thread:two\na/thread:one\n"
        assert (await here("stacks", "old", *address)).code == 2
        unknown = await here("stacks", "none", *address)
        assert (unknown.code, "no process or service 'none' is a member" in unknown.err) == (2, True)


def test_on_a_terminal_the_process_that_the_line_above_names_is_left_out_of_every_cell() -> None:
    assert _row(HELD, process="a") == ("thread:one", "a lock that thread:two holds", "thread:two", "app.py:7 in work")
    other = agent_pb2.StandingParty(party="a/T#1", blocked_in="the reply of aa/S#2", held_by=["b-a/S#2", "a/S#3"])
    assert _row(other, process="a") == ("T#1", "the reply of aa/S#2", "b-a/S#2, S#3", "-")
    assert _row(HELD, process="")[:3] == ("a/thread:one", "a lock that a/thread:two holds", "a/thread:two")
