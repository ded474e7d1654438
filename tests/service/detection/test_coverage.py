"""Present and expected members, and which answers are possible while some are missing."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from detector.analysis.verdicts import verdicts_on
from detector.archive.units import open_archive
from detector.commands.live.doctor import complaints_of
from detector.core.registry import find_predicate
from detector.service.detection.membership import members
from detector.service.settings import Expectation, Scope
from detector.service.storage.archive_sink import FOLDER
from stilltrue.model import PartyName
from stilltrue.v1 import agent_pb2, detector_pb2, snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED
BRIEF = {"give_up_seconds": 0.3, "suspect_seconds": 0.1, "lease_seconds": 0.3}


async def test_termination_is_undetermined_until_all_expected_members_have_joined(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a, b, c = process("a"), process("b"), process("c")
    async with start_detector(tmp_path, expected={"all": Expectation(count=3)}) as detector:
        await detector.join(a, b)
        verdict = await detector.ask("termination")
        assert (verdict.holds, "2 of 3 expected have joined" in verdict.witness.text) == (UNDETERMINED, True)
        assert (verdict.coverage.members, verdict.coverage.expected) == (2, 3)
        blocked = await detector.ask()
        assert (blocked.holds, "covers 2 of 3 members" in blocked.witness.text) == (FALSE, True)
        await detector.join(c)
        assert (await detector.ask("termination")).holds == TRUE
        await b.say(goodbye=agent_pb2.Goodbye())
        async with asyncio.timeout(5):
            while "b" in await detector.agents():
                await asyncio.sleep(0.01)
        assert (await detector.ask("termination")).holds == TRUE, "it had joined, and left in good order"


async def test_a_member_that_joins_during_a_snapshot_has_not_joined_for_its_answer(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    """The token of a: the snapshot of b alone does not show it, so b's 0 is not a loss."""
    a, b = process("a"), process("b")
    a.recorder.fact({"token": 1})
    b.recorder.fact({"token": 0})
    asked, released, say = asyncio.Event(), asyncio.Event(), b.say

    async def say_later(**message: Any) -> None:
        if "report" in message:
            asked.set()
            await released.wait()
        await say(**message)

    async with start_detector(tmp_path, expected={"all": Expectation(count=2)}) as detector:
        await detector.join(b)
        b.say = say_later
        early = asyncio.create_task(detector.ask("token-lost"))
        await asked.wait()
        await detector.join(a)
        released.set()
        verdict = await early
        assert (verdict.holds, "1 of 2 expected have joined" in verdict.witness.text) == (UNDETERMINED, True)
        assert (verdict.coverage.members, verdict.coverage.expected) == (1, 2)
        assert (await detector.ask("token-lost")).holds == FALSE


async def test_expected_names(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, stock = process("a"), process("stock-7f9c", service="stock")
    async with start_detector(tmp_path, expected={"all": Expectation(names=frozenset({"a", "stock"}))}) as detector:
        await detector.join(a)
        assert (await detector.ask("termination")).holds == UNDETERMINED
        await detector.join(stock)
        assert (await detector.ask("termination")).holds == TRUE


async def test_a_reported_deadlock_stands_while_members_have_yet_to_join(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    busy, other = process("busy"), process("other")
    busy.call(other, "/s/Work")
    async with start_detector(tmp_path, expected={"all": Expectation(count=3)}) as detector:
        await detector.join(busy, other)
        assert (await detector.ask("termination")).holds == FALSE


async def test_a_true_of_a_young_membership_says_so_and_raises_no_alert(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a, late = process("a"), process("late")
    async with start_detector(tmp_path, lease_seconds=60) as detector:
        await detector.join(a)
        verdict = await detector.ask("termination")
        assert (verdict.holds, "the membership is young: a joined" in verdict.witness.text) == (TRUE, True)
        assert await detector.metric('stilltrue_predicate_state{predicate="termination",scope="all",state="true"}') == 0
        a.call(late, "/s/Work")
        await detector.join(late)
        verdict = await detector.ask("termination")
        assert (verdict.holds, "it held for" in verdict.witness.text) == (FALSE, False)  # that more may join was said then


async def test_a_true_of_an_old_membership_is_firm(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a = process("a")
    async with start_detector(tmp_path, **BRIEF) as detector:
        await detector.join(a)
        async with asyncio.timeout(10):
            while "young" in (verdict := await detector.ask("termination")).witness.text:
                assert verdict.holds == TRUE
        assert verdict.holds == TRUE
        assert await detector.metric('stilltrue_predicate_state{predicate="termination",scope="all",state="true"}') == 1
        late = process("late")
        a.call(late, "/s/Work")
        await detector.join(late)
        number, verdict = verdict.snapshot.id, await detector.ask("termination")
        assert f"it held for 1 member (snapshot {number}) before late joined" in verdict.witness.text


async def test_a_false_names_the_members_it_does_not_cover(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b, mute = process("a"), process("b"), process("mute")
    mute.silent = True
    async with start_detector(tmp_path, **{**BRIEF, "lease_seconds": 60}) as detector:
        await detector.join(a, b, mute)
        verdict = await detector.ask()
        assert (verdict.holds, "covers 2 of 3 members; blind: mute" in verdict.witness.text) == (FALSE, True)
        assert [(spot.process, "did not report" in spot.reasons[0]) for spot in verdict.coverage.blind] == [("mute", True)]
        assert await detector.metric('stilltrue_coverage_members{coverage="blind",scope="all"}') == 1
        assert await detector.metric('stilltrue_coverage_members{coverage="covered",scope="all"}') == 2


@pytest.mark.parametrize(
    ("sight", "why"),
    [
        (agent_pb2.Sight(channels=1, calls=1, channels_unseen=2), "2 channels made before the agent, or without it"),
        (agent_pb2.Sight(servers_unseen=1), "1 server made before the agent, or without it"),
        (agent_pb2.Sight(), "no server, channel or call is recorded"),
        (agent_pb2.Sight(servers=1, blind=["a server of another library"]), "a server of another library"),
    ],
)
async def test_an_agent_reports_its_blind_spots(
    sight: agent_pb2.Sight, why: str, start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        await b.say(lease=agent_pb2.Lease(sight=sight))
        async with asyncio.timeout(5):
            while not (await detector.ask()).coverage.blind:
                await asyncio.sleep(0.01)
        verdict = await detector.ask()
        assert "covers 1 of 2 members; blind: b" in verdict.witness.text
        assert list(verdict.coverage.blind[0].reasons) == [why]


async def test_an_instrumented_process_without_a_channel_is_not_blind(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    """Such as a program of threads only, under `stilltrue run`: if it had made one, that would be recorded."""
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector, asyncio.timeout(10):
        await detector.join(a, b)
        await a.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight(instrumented=True)))
        await b.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight()))
        while not (blind := (await detector.ask()).coverage.blind):
            await asyncio.sleep(0.01)
        assert [spot.process for spot in blind] == ["b"]
        await b.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight(instrumented=True, channels_unseen=1)))
        while "made before the agent" not in (await detector.ask()).coverage.blind[0].reasons[0]:
            await asyncio.sleep(0.01)


async def test_a_process_whose_parties_answer_names_is_not_blind_while_nobody_waits(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a = process("a")
    async with start_detector(tmp_path) as detector, asyncio.timeout(10):
        await detector.join(a)
        await a.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight()))
        while not (await detector.ask()).coverage.blind:
            await asyncio.sleep(0.01)
        a.recorder.holds(PartyName("a/task:writer"), "a:writer")
        assert not (await detector.ask()).coverage.blind


async def test_termination_is_undetermined_while_a_member_has_channels_that_are_not_recorded(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    """Their calls may wake anybody; a FALSE of ``deadlock`` stands, with its coverage."""
    a = process("a")
    async with start_detector(tmp_path) as detector:
        await detector.join(a)

        async def told(sight: agent_pb2.Sight) -> Any:
            await a.say(lease=agent_pb2.Lease(sight=sight))
            async with asyncio.timeout(5):
                while len((await detector.ask()).coverage.blind) != sight.channels_unseen:
                    await asyncio.sleep(0.01)
            return await detector.ask("termination")

        verdict = await told(agent_pb2.Sight(channels=1, calls=1, channels_unseen=1))
        assert verdict.holds == UNDETERMINED
        assert (
            "not all calls of a are recorded and attributed (a: 1 channel made before the agent, or without it)"
            in verdict.witness.text
        )
        assert (await detector.ask()).holds == FALSE
        assert (await told(agent_pb2.Sight(channels=1, calls=1))).holds == TRUE


async def test_termination_is_undetermined_while_a_process_that_has_not_joined_calls_members(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    """Its agent dials another address, say: it may call again, and nothing else tells of it."""
    a, b, other = process("a"), process("b"), process("other")
    a.work_for(other)
    async with start_detector(tmp_path, **{**BRIEF, "lease_seconds": 0.5}) as detector:
        await detector.join(a, b)
        async with asyncio.timeout(10):
            while (await detector.ask("termination")).holds != UNDETERMINED:
                a.work_for(other)
        verdict = await detector.ask("termination")
        assert "other calls members without being one" in verdict.witness.text
        verdict = await detector.ask()
        assert (verdict.holds, "covers 2 of 3 members; blind: other" in verdict.witness.text) == (FALSE, True)
        await detector.join(other)
        assert (await detector.ask("termination")).holds == TRUE


async def test_termination_is_undetermined_while_a_process_is_refused_because_of_its_name(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    """It is at work, and renames itself only after two leases."""
    a, b, twin = process("a"), process("b", service="stock"), process("a", incarnation=9)
    scopes = (Scope(name="stock", labels={"service": "stock"}),)
    stated = {"expected": {"stock": Expectation(names=frozenset({"b"}))}, "scopes": scopes}
    async with start_detector(tmp_path, **{**BRIEF, "lease_seconds": 1.0}, **stated) as detector:
        await detector.join(a, b)
        await detector.join(twin)
        assert not twin.welcomed.is_set()
        verdict = await detector.ask("termination")
        assert (verdict.holds, "another process uses the name a, too" in verdict.witness.text) == (UNDETERMINED, True)
        assert (await detector.ask("termination", "stock")).holds == TRUE, "its members are stated"
        assert (await detector.ask()).holds == FALSE
        await a.say(goodbye=agent_pb2.Goodbye())
        await detector.join(twin)
        async with asyncio.timeout(5):
            while (await detector.ask("termination")).holds != TRUE:
                await asyncio.sleep(0.01)
        after = process("a", incarnation=10)
        await detector.join(after)
        assert (await detector.ask("termination")).holds == UNDETERMINED
        async with asyncio.timeout(10):
            while (await detector.ask("termination")).holds != TRUE:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("goodbye", [True, False])
async def test_what_a_process_had_counted_before_it_was_restarted_is_not_lost(
    start_detector: Any, process: Any, tmp_path: Path, goodbye: bool
) -> None:
    """A rolling restart of the receiver: its new incarnation counts from 0."""
    a, b, after = process("a"), process("b"), process("b", incarnation=9)
    a.recorder.fact({"sent": 5})
    b.recorder.fact({"received": 5})
    after.recorder.fact({"received": 0})
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        assert (await detector.ask("lost-message")).holds == FALSE
        a.recorder.fact({"sent": 6})
        assert (await detector.ask("lost-message")).holds == TRUE
        if goodbye:
            await b.say(goodbye=agent_pb2.Goodbye())
        else:
            await b.kill()
        async with asyncio.timeout(10):
            while not after.welcomed.is_set():
                await detector.join(after)
        verdict = await detector.ask("lost-message")
        assert (verdict.holds, "b has left or was restarted" in verdict.witness.text) == (UNDETERMINED, True)
        assert (await detector.ask("termination")).holds == TRUE


async def test_a_process_that_leaves_without_counts_is_no_doubt_about_them(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a, b, other = process("a"), process("b"), process("other")
    a.recorder.fact({"sent": 6})
    b.recorder.fact({"received": 5})
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, other)
        assert (await detector.ask("lost-message")).holds == TRUE
        await other.say(goodbye=agent_pb2.Goodbye())
        async with asyncio.timeout(10):
            while "other" in await detector.agents():
                await asyncio.sleep(0.01)
        assert (await detector.ask("lost-message")).holds == TRUE


async def test_a_process_that_called_and_ended_before_it_could_join_is_no_doubt(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a, brief = process("a"), process("brief")
    async with start_detector(tmp_path, **BRIEF) as detector:
        await detector.join(a)
        for _ in range(2):
            a.work_for(brief)
            assert (await detector.ask("termination")).holds == TRUE
        async with asyncio.timeout(10):
            while "young" in (verdict := await detector.ask("termination")).witness.text:
                assert verdict.holds == TRUE
        assert (verdict.holds, list(verdict.coverage.blind)) == (TRUE, [])


async def test_stated_members_leave_out_the_processes_that_call_them(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, other = process("a"), process("other")
    async with start_detector(tmp_path, expected={"all": Expectation(count=1)}, **BRIEF) as detector:
        await detector.join(a)
        end = asyncio.get_running_loop().time() + 2 * BRIEF["lease_seconds"]
        while asyncio.get_running_loop().time() < end:
            a.work_for(other)
            assert (await detector.ask("termination")).holds == TRUE


async def test_an_agent_without_blind_spots_is_covered(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a = process("a")
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        await a.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight(servers=1)))
        verdict = await detector.ask()
        assert (verdict.coverage.members, verdict.coverage.expected, list(verdict.coverage.blind)) == (1, 1, [])


async def test_how_many_parties_are_unexplained_is_listed_shown_and_measured(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        await a.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight(servers=1, unexplained=3)))
        await b.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight(servers=1)))
        async with asyncio.timeout(20):
            while await detector.metric("stilltrue_unexplained_parties") != 3:
                await asyncio.sleep(0.01)
        _, _, body = await detector.fetch("/members?sort=most+unexplained+first")
        assert re.findall(r'data-label="unexplained"[^>]*>([^<]*)<', body) == ["3", "-"]
        _, _, body = await detector.fetch("/api/v1/members")
        assert {one["process"]: one["unexplained"] for one in json.loads(body)["members"]} == {"a": 3, "b": None}


async def test_a_false_says_that_calls_have_not_moved_for_long(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        await a.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight(servers=1, unexplained=3, unexplained_calls=2)))
        await b.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight(servers=1, unexplained=3, unexplained_calls=0)))
        async with asyncio.timeout(20):
            while not (verdict := await detector.ask()).coverage.partly:
                await asyncio.sleep(0.01)
        assert verdict.holds == FALSE
        assert await detector.metric("stilltrue_unexplained_calls") == 2
        said = "but 2 calls have not moved for a while, in no known wait, at a (stilltrue stacks)"
        assert verdict.witness.text.endswith(said)
        (spot,) = verdict.coverage.partly
        assert (spot.process, list(spot.reasons)) == ("a", ["serves 2 calls that have not moved for a while, in no known wait"])
        assert verdict.coverage.members == 2
        assert said not in (await detector.ask("termination")).witness.text
        answer = await detector.stub.ListAgents(detector_pb2.ListAgentsRequest(), timeout=10)
        complaints = {one.process.instance: complaints_of(one) for one in answer.agents}
        assert [(what, "stilltrue stacks" in cure) for what, cure in complaints["a"]] == [(spot.reasons[0], True)]
        assert complaints["b"] == []
        await a.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight(servers=1, unexplained=3, unexplained_calls=0)))
        async with asyncio.timeout(20):
            while (await detector.ask()).coverage.partly:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("workers", "agent", "told"),
    [(2, "python/0.1.0", True), (1, "python/0.1.0", False), (2, "sidecar/0.1.0", False)],
    ids=["a worker does something else", "all serve calls", "a sidecar"],
)
async def test_a_false_says_that_no_worker_takes_calls_although_not_all_serve_calls(
    workers: int, agent: str, told: bool, start_detector: Any, process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "NOT_TAKEN_SECONDS", 0.0)
    a, b = process("a"), process("b")
    b.agent = agent
    b.recorder.pool_opened("workers", workers)
    a.call(b, "/s/Work", by="one")
    a.call(b, "/s/Work", by="two", starts=False)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        verdict = await detector.ask()
        said = "but 1 call has not moved for a while, in no known wait, at b (stilltrue stacks)"
        assert (verdict.holds, said in verdict.witness.text) == (FALSE, told)
        assert [spot.process for spot in verdict.coverage.partly] == (["b"] if told else [])


async def test_a_false_says_that_threads_are_stuck_that_serve_no_call(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        await a.say(
            lease=agent_pb2.Lease(sight=agent_pb2.Sight(servers=1, unexplained=3, unexplained_calls=0, unexplained_waits=2))
        )
        await b.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight(servers=1, unexplained=3, unexplained_waits=0)))
        async with asyncio.timeout(20):
            while not (verdict := await detector.ask()).coverage.partly:
                await asyncio.sleep(0.01)
        said = "but 2 threads or tasks wait for a lock or an answer, with nobody known to bring it, at a (stilltrue stacks)"
        assert verdict.witness.text.endswith(said)
        (spot,) = verdict.coverage.partly
        reason = "has 2 threads or tasks that wait for a lock or an answer, with nobody known to bring it"
        assert (spot.process, list(spot.reasons)) == ("a", [reason])
        answer = await detector.stub.ListAgents(detector_pb2.ListAgentsRequest(), timeout=10)
        complaints = {one.process.instance: complaints_of(one) for one in answer.agents}
        assert [(what, "stilltrue stacks" in cure) for what, cure in complaints["a"]] == [(reason, True)]


async def test_a_withheld_answer_is_withheld_in_the_archive_too(start_detector: Any, process: Any, tmp_path: Path) -> None:
    """Evaluated again, a snapshot in which members had yet to join gives the detector's answer, not a TRUE."""
    async with start_detector(tmp_path, expected={"all": Expectation(count=2)}) as detector:
        await detector.join(process("a"))
        asked = [await detector.ask("termination")]
        await detector.join(process("b"))
        asked.append(await detector.ask("termination"))
    archive = open_archive(str(tmp_path / FOLDER))
    rows = pa.concat_tables([rows for file in archive.files("snapshots") for rows in archive.store.read(file)])
    found = verdicts_on(rows.sort_by("snapshot"), [find_predicate("termination")]).to_pylist()
    said = [(verdict.snapshot.id, snapshot_pb2.Holds.Name(verdict.holds)) for verdict in asked]
    assert said[0][1] == "HOLDS_UNDETERMINED"
    told = {row["snapshot"]: f"HOLDS_{row['holds'].upper()}" for row in found}
    assert [(number, told[number]) for number, _ in said] == said
