"""A restart of the detector, and members that end without a goodbye: nothing follows from their silence."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from aiohttp import test_utils, web

from detector.service.storage.sqlite import MIGRATIONS, NewerStateError
from stilltrue.v1 import agent_pb2, detector_pb2, snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED
BRIEF = {"give_up_seconds": 0.3, "suspect_seconds": 0.1, "lease_seconds": 0.3}


async def state(detector: Any, name: str, wanted: int) -> None:
    async with asyncio.timeout(10):
        while (await detector.agents()).get(name) != wanted:
            await asyncio.sleep(0.02)


async def test_a_bystander_that_returns_first_causes_no_false_and_ends_no_incident(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b, bystander = process("a"), process("b"), process("bystander")
    deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, bystander)
        assert (await detector.ask()).holds == TRUE
        (before,) = await detector.incidents()
    async with start_detector(tmp_path, **BRIEF) as detector:
        await detector.join(bystander)
        verdict = await detector.ask()
        assert (verdict.holds, list(verdict.decisive)) == (UNDETERMINED, ["a", "b"])
        assert "gathering, 1 of 3 back" in verdict.witness.text
        assert (await detector.ask("termination")).holds == UNDETERMINED
        (incident,) = await detector.incidents()
        assert (incident.id, incident.ending, list(incident.lost)) == (before.id, "", ["a", "b"])
        assert await detector.metric('stilltrue_members{state="lost"}') == 2
        await detector.join(a, b)
        assert (await detector.ask()).holds == TRUE
        (incident,) = await detector.incidents()
        assert (incident.id, incident.opened, list(incident.lost)) == (before.id, before.opened, [])


async def test_after_a_restart_no_unproved_end_is_notified(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    told: list[dict[str, Any]] = []

    async def hook(request: web.BaseRequest) -> web.Response:
        told.append(json.loads(await request.read()))
        return web.Response()

    a, b, bystander = process("a"), process("b"), process("bystander")
    stuck = deadlock(a, b)
    async with test_utils.RawTestServer(hook) as server:
        url = {"notify_url": str(server.make_url("/"))}
        async with start_detector(tmp_path, **url) as detector:
            await detector.join(a, b, bystander)
            assert (await detector.ask()).holds == TRUE
        async with start_detector(tmp_path, **BRIEF, **url) as detector:
            await detector.join(bystander)
            for _ in range(3):
                assert (await detector.ask()).holds == UNDETERMINED
            await detector.join(a, b)
            stuck.cure()
            assert (await detector.ask()).holds == FALSE
            async with asyncio.timeout(20):
                while len(told) < 2:
                    await asyncio.sleep(0.02)
    assert [each["incident"]["closed"] is None for each in told] == [True, False]


async def test_while_gathering_a_seen_deadlock_is_still_reported(start_detector: Any, process: Any, tmp_path: Path) -> None:
    busy, other = process("busy"), process("other")
    busy.call(other, "/s/Work")
    async with start_detector(tmp_path) as detector:
        await detector.join(busy, other)
    async with start_detector(tmp_path, **BRIEF) as detector:
        await detector.join(busy)
        assert (await detector.ask("termination")).holds == FALSE
        assert (await detector.ask("deadlock")).holds == UNDETERMINED


async def test_after_a_restart_a_member_was_last_seen_at_its_last_report_not_when_it_joined(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a = process("a")
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        (joined,) = (await detector.stub.ListAgents(detector_pb2.ListAgentsRequest())).agents
        await asyncio.sleep(0.2)
        await a.say(lease=agent_pb2.Lease())
        await detector.ask()
    async with start_detector(tmp_path) as detector:
        (restored,) = (await detector.stub.ListAgents(detector_pb2.ListAgentsRequest())).agents
    assert restored.heard_at >= joined.heard_at + 0.2


async def test_earlier_members_are_forgotten_eventually(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
    async with start_detector(tmp_path, **BRIEF, forget_seconds=0.5) as detector:
        await detector.join(a)
        assert (await detector.ask("termination")).holds == UNDETERMINED
        async with asyncio.timeout(10):
            while "b" in await detector.agents():
                await a.say(lease=agent_pb2.Lease())
                await asyncio.sleep(0.05)
        assert (await detector.ask("termination")).holds == TRUE


async def test_a_member_that_said_goodbye_is_not_waited_for_after_a_restart(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        assert (await detector.ask()).holds == TRUE
        await a.say(goodbye=agent_pb2.Goodbye())
        async with asyncio.timeout(5):
            while "a" in await detector.agents():
                await asyncio.sleep(0.01)
        (incident,) = await detector.incidents()
        assert not incident.ending, "b has said nothing yet"
    async with start_detector(tmp_path, **BRIEF) as detector:
        await detector.join(b)
        assert "a" not in await detector.agents()
        async with asyncio.timeout(20):
            while not incident.ending:
                assert (await detector.ask()).holds == FALSE
                (incident,) = await detector.incidents()
        assert "went on" in incident.ending


async def test_an_incident_with_a_lost_member_stays_open_until_it_is_accounted_for(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    both = deadlock(a, b)
    async with start_detector(tmp_path, **BRIEF) as detector:
        await detector.join(a, b)
        assert (await detector.ask()).holds == TRUE
        await asyncio.gather(a.kill(), b.kill())
        await asyncio.gather(
            state(detector, "a", detector_pb2.AGENT_STATE_LOST), state(detector, "b", detector_pb2.AGENT_STATE_LOST)
        )
        await a.connect(detector.address)
        both.a.recorder.settled(both.from_a, None, 1.0)
        verdict = await detector.ask()
        assert verdict.holds == UNDETERMINED
        (incident,) = await detector.incidents()
        assert (incident.ending, list(incident.lost)) == ("", ["b"])
        await b.connect(detector.address)
        both.cure()
        await detector.ask()
        (incident,) = await detector.incidents()
        assert "went on" in incident.ending


async def test_an_incident_ends_although_the_wall_clock_was_set_back_before_a_restart(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        assert (await detector.ask()).holds == TRUE
    with sqlite3.connect(tmp_path / "stilltrue.sqlite3") as database:  # it was seen an hour from now
        database.execute("UPDATE incidents SET body = json_set(body, '$.seen', json_extract(body, '$.seen') + 3600)")
    database.close()
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        stuck.cure()
        async with asyncio.timeout(20):
            while not (await detector.incidents())[0].ending:
                assert (await detector.ask()).holds == FALSE


async def test_the_previous_versions_state_is_migrated_with_its_incidents(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b, bystander = process("a"), process("b"), process("bystander")
    deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        await detector.ask()
    with sqlite3.connect(tmp_path / "stilltrue.sqlite3") as database:
        database.executescript("DROP TABLE members; PRAGMA user_version = 0")
        (body,) = database.execute("SELECT body FROM incidents").fetchone()
        database.execute("UPDATE incidents SET body = json_set(?, '$.later', 1)", (body,))
        database.execute("UPDATE incidents SET body = json_remove(body, '$.formed')")
    database.close()
    async with start_detector(tmp_path, **BRIEF) as detector:
        await detector.join(bystander)
        assert set(await detector.agents()) == {"a", "b", "bystander"}
        assert (await detector.ask()).holds == UNDETERMINED
        (incident,) = await detector.incidents()
        assert not incident.ending


async def test_state_of_a_later_version_is_refused_with_one_line(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path):
        pass
    with sqlite3.connect(tmp_path / "stilltrue.sqlite3") as database:
        database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    database.close()
    with pytest.raises(NewerStateError, match="written by a later version") as refused:
        async with start_detector(tmp_path):
            pass
    assert "\n" not in str(refused.value)
