"""``stilltrue forget`` ends the membership of a process that is lost, and of no other."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from detector.service.grpc_api.roles import Role, roles_for
from stilltrue.v1 import agent_pb2, snapshot_pb2
from tests.commands.conftest import Ended

pytestmark = [pytest.mark.slow, pytest.mark.live]
MISSING, LOST = 2, 3


async def lose(detector: Any, process: Any, *others: Any) -> None:
    """The process is killed, and its lease expires; the others renew theirs."""
    await process.kill()
    while (await detector.agents())[process.id.instance] != LOST:
        for other in others:
            await other.say(lease=agent_pb2.Lease())
        await asyncio.sleep(0.05)


async def test_an_answer_no_longer_waits_for_a_process_that_is_forgotten(played: Any, here: Any, tmp_path: Path) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    async with played.detecting(tmp_path, lease_seconds=1.0) as detector:
        await detector.join(a, b)
        await lose(detector, b, a)
        before = await detector.ask("termination")
        assert (before.holds, list(before.missing)) == (snapshot_pb2.HOLDS_UNDETERMINED, ["b"])
        ended: Ended = await here("forget", "b", "--yes", "--detector", detector.address)
        assert (ended.code, ended.out, ended.err) == (0, "1 process forgotten: b\n", "")
        after = await detector.ask("termination")
        assert (after.holds, list(after.missing)) == (snapshot_pb2.HOLDS_TRUE, [])
        assert list(await detector.agents()) == ["a"]
    (entry,) = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    assert (entry["what"], entry["process"]) == ("forget", "b")


async def test_an_incident_ends_once_its_lost_process_is_forgotten(played: Any, here: Any, tmp_path: Path) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    played.Deadlock(a, b)
    async with played.detecting(tmp_path, lease_seconds=1.0) as detector:
        await detector.join(a, b)
        while not await detector.incidents():
            await detector.ask()
        await lose(detector, b, a)
        (incident,) = await detector.incidents()
        assert (list(incident.lost), incident.HasField("closed")) == (["b"], False)
        assert (await here("forget", "--all", "--yes", "--detector", detector.address)).code == 0
        while not (await detector.incidents())[0].HasField("closed"):
            await detector.ask()


async def test_a_forgotten_process_that_still_runs_joins_again(played: Any, here: Any, tmp_path: Path) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    async with played.detecting(tmp_path, lease_seconds=1.0) as detector:
        await detector.join(a, b)
        await lose(detector, b, a)
        assert (await here("forget", "b", "--yes", "--detector", detector.address)).code == 0
        await detector.join(b)
        while list(await detector.agents()) != ["a", "b"]:
            await asyncio.sleep(0.05)


async def test_all_says_that_a_process_is_not_lost_yet(played: Any, here: Any, tmp_path: Path) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    async with played.detecting(tmp_path, lease_seconds=60.0) as detector:
        await detector.join(a, b)
        await b.kill()
        while (await detector.agents())["b"] != MISSING:
            await asyncio.sleep(0.05)
        ended = await here("forget", "--all", "--yes", "--detector", detector.address)
        assert (ended.code, ended.out) == (1, "no process was forgotten\n")
        assert "b is missing, but not lost yet: forget it once its lease has expired" in ended.err
        assert "a is" not in ended.err
        assert list(await detector.agents()) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a", "only a lost process can be forgotten, and a is not: it is live"),
        ("c", "no process 'c' is a member; 'stilltrue agents' lists them"),
    ],
)
async def test_no_other_process_is_forgotten(played: Any, here: Any, tmp_path: Path, name: str, says: str) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    async with played.detecting(tmp_path, lease_seconds=1.0) as detector:
        await detector.join(a, b)
        await lose(detector, b, a)
        ended = await here("forget", name, "b", "--yes", "--detector", detector.address)
        assert (ended.code, ended.out) == (1, "1 process forgotten: b\n")
        assert says in ended.err
        assert list(await detector.agents()) == ["a"]
        assert not (tmp_path / "audit.jsonl").read_text().count(f'"process": "{name}"')


async def test_nothing_is_forgotten_if_the_audit_log_cannot_be_written(played: Any, here: Any, tmp_path: Path) -> None:
    a = played.FakeProcess("a")
    async with played.detecting(tmp_path, lease_seconds=1.0) as detector:
        await detector.join(a)
        await lose(detector, a)
        (tmp_path / "audit.jsonl").mkdir()
        ended = await here("forget", "a", "--yes", "--detector", detector.address)
        assert (ended.code, ended.out) == (1, "no process was forgotten\n")
        assert "the audit log cannot be written" in ended.err
        assert list(await detector.agents()) == ["a"]


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 1, ["a", "b"]), ("", 1, ["a", "b"]), ("y\n", 0, ["a"])])
async def test_it_asks_first(
    played: Any, here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: list[str]
) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    async with played.detecting(tmp_path, lease_seconds=1.0) as detector:
        await detector.join(a, b)
        await lose(detector, b, a)
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        ended = await here("forget", "b", "--detector", detector.address)
        assert (ended.code, "nothing was forgotten" in ended.err) == (code, code == 1), ended
        assert "b (" in ended.err
        assert list(await detector.agents()) == left


async def test_it_names_what_to_forget(here: Any) -> None:
    for arguments in ((), ("a", "--all")):
        ended = await here("forget", *arguments)
        assert ended.code == 2
        assert "name the processes to forget, or give --all" in ended.err


def test_forgetting_is_for_operators() -> None:
    assert roles_for("/stilltrue.v1.DetectorService/Forget") == {Role.OPERATOR}
