"""Agents behind collectors: the coordinator's rows equal a single detector's, and failures lose no verdict."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from detector.assembly import results
from detector.collector import relay as collector_relay
from detector.core.registry import predicate_names
from detector.service.grpc_api import relay
from detector.service.settings import Scope
from stilltrue.model import CallNumber
from stilltrue.v1 import agent_pb2, detector_pb2, snapshot_pb2
from tests.collector.conftest import collected, collector_of
from tests.collector.kafka_in_memory import KafkaInMemory
from tests.service.conftest import Deadlock, Detector, FakeProcess, detecting

LEASE: dict[str, Any] = {"lease_seconds": 60.0, "scopes": (Scope(name="shop", labels={"team": "shop"}),)}
PREDICATES = predicate_names()
TIMES = re.compile(r"\d\d:\d\d:\d\d|\d+(\.\d+)? (ms|s|seconds?)\b|\d{4}-\d\d-\d\dT[\d:.]+Z|\b1[78]\d{8}(\.\d+)?")
"""Whatever of a text depends on when it was written."""
Scene = Callable[[Detector], Awaitable[None]]


async def _join(detector: Detector, *processes: FakeProcess) -> None:
    """Join one after the other, since answers name the last to join."""
    for process in processes:
        await detector.join(process)


async def _ask(detector: Detector, predicate: str = "deadlock") -> snapshot_pb2.Verdict:
    """The answer, once the snapshot is judged by all predicates: some need another look at processes as they are now."""
    verdict = await detector.ask(predicate)
    async with asyncio.timeout(20):
        while len(await _verdicts(detector, verdict.snapshot.id)) < 2 * len(PREDICATES):
            await asyncio.sleep(0.01)
    return verdict


async def _verdicts(detector: Detector, snapshot: int) -> list[snapshot_pb2.Verdict]:
    answer = await detector.stub.GetSnapshot(detector_pb2.GetSnapshotRequest(id=snapshot), timeout=10)
    return list(answer.verdicts)


async def deadlocked(detector: Detector) -> None:
    """Calm, then stuck for three snapshots, then cured."""
    a, b, c = FakeProcess("a"), FakeProcess("b"), FakeProcess("c", labels={"team": "shop"})
    await _join(detector, a, b, c)
    await _ask(detector)
    stuck = Deadlock(a, b)
    for _ in range(3):
        await _ask(detector)
    stuck.cure()
    await _ask(detector)


async def idle_then_busy(detector: Detector) -> None:
    """All idle (a TRUE that needs the second round), then one busy."""
    a, b = FakeProcess("a"), FakeProcess("b")
    await _join(detector, a, b)
    await _ask(detector, "termination")
    a.call(b, "/s/Work")
    await _ask(detector, "termination")


async def somebody_silent(detector: Detector) -> None:
    """A member that does not report, beside a deadlock of the others."""
    a, b, c = FakeProcess("a"), FakeProcess("b"), FakeProcess("c")
    await _join(detector, a, b, c)
    c.silent = True
    await _ask(detector)
    Deadlock(a, b)
    await _ask(detector)


async def one_blind(detector: Detector) -> None:
    """A suspect that does not look again."""
    a, b = FakeProcess("a"), FakeProcess("b")
    await _join(detector, a, b)
    Deadlock(a, b)
    b.blind = True
    await _ask(detector)


async def one_too_old(detector: Detector) -> None:
    """A suspect whose agent cannot look."""
    a, b = FakeProcess("a"), FakeProcess("b")
    a.looks = False
    await _join(detector, a, b)
    Deadlock(a, b)
    await _ask(detector)


async def contradicted(detector: Detector) -> None:
    """A report that says its process has seen a call which was never sent (rule 5)."""
    a, b = FakeProcess("a"), FakeProcess("b")
    await _join(detector, a, b)
    a.call(b, "/s/Work")
    a.change = lambda report: replace(report, next_number=CallNumber(0), made=())
    await _ask(detector)


async def in_doubt(detector: Detector) -> None:
    """A caller gives up a call that was answered: the next marker settles it."""
    a, b = FakeProcess("a"), FakeProcess("b")
    await _join(detector, a, b)
    made, served = a.call(b, "/s/Work")
    a.gives_up(made)
    b.recorder.replied(served)
    for _ in range(3):
        await _ask(detector, "termination")


SCENES: tuple[Scene, ...] = (
    deadlocked, idle_then_busy, somebody_silent, one_blind, one_too_old, contradicted, in_doubt,
)  # fmt: skip
QUICK = (deadlocked, somebody_silent)


def _as_parameter(scene: Scene) -> Any:
    return pytest.param(scene, id=scene.__name__, marks=() if scene in QUICK else pytest.mark.longer)


async def rows(detector: Detector) -> list[Any]:
    """All that is kept of each snapshot, without times."""
    listed = await detector.stub.ListSnapshots(detector_pb2.ListSnapshotsRequest(limit=100), timeout=10)
    found = []
    for summary in sorted(listed.snapshots, key=lambda each: int(each.ref.id)):
        answer = await detector.stub.GetSnapshot(detector_pb2.GetSnapshotRequest(id=summary.ref.id), timeout=10)
        verdicts = sorted(_timeless(str(verdict)) for verdict in map(_stripped, answer.verdicts))
        document = json.loads(answer.document_json)
        found.append((summary.outcome, list(summary.missing), verdicts, _timeless(json.dumps(document, sort_keys=True))))
    return found


def _stripped(verdict: snapshot_pb2.Verdict) -> snapshot_pb2.Verdict:
    for field in ("begun", "ended"):
        verdict.snapshot.ClearField(field)
    return verdict


def _timeless(text: str) -> str:
    return TIMES.sub("TIME", text)


async def incidents(detector: Detector) -> list[Any]:
    found = await detector.incidents()
    return [(each.predicate, list(each.core), each.HasField("closed"), list(map(_timeless, each.waits))) for each in found]


@pytest.mark.parametrize("scene", list(map(_as_parameter, SCENES)))
async def test_every_row_equals_that_of_a_single_detector(scene: Scene, kafka: KafkaInMemory, tmp_path: Path) -> None:
    async with detecting(tmp_path / "one", **LEASE) as detector:
        await scene(detector)
        wanted, told = await rows(detector), await incidents(detector)
    kafka.doubled = 2
    async with collected(tmp_path / "many", **LEASE) as coordinator:
        await scene(coordinator)
        assert await rows(coordinator) == wanted
        assert await incidents(coordinator) == told
    assert wanted
    assert kafka.reports()


async def test_a_large_fleet_sends_only_the_parts_that_verdicts_need(
    kafka: KafkaInMemory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with detecting(tmp_path / "one", **LEASE) as detector:
        await deadlocked(detector)
        wanted, told = [row[:3] for row in await rows(detector)], await incidents(detector)
    monkeypatch.setattr(results, "WHOLE_MEMBERS_MAX", 0)
    async with collected(tmp_path / "many", **LEASE) as coordinator:
        await deadlocked(coordinator)
        assert [row[:3] for row in await rows(coordinator)] == wanted
        assert await incidents(coordinator) == told
        documents = [json.loads(row[3]) for row in await rows(coordinator)]
    assert not any(document.get("waits") for document in (documents[0], documents[-1]))
    assert {wait["waiter"] for wait in documents[1]["waits"]} >= {"a/X#1", "b/Y#1"}


async def test_an_agent_of_a_killed_collector_reconnects_through_another(kafka: KafkaInMemory, tmp_path: Path) -> None:
    a, b = FakeProcess("a"), FakeProcess("b")
    async with collected(tmp_path, collectors=1, **LEASE) as coordinator:
        first = coordinator.collectors[0]
        async with collector_of(coordinator.coordinator) as other:
            await _join(coordinator, a)
            coordinator.collectors = [other.address]
            await _join(coordinator, b)
            Deadlock(a, b)
            before = await _ask(coordinator)
        await asyncio.wait_for(b.ended.wait(), 20)
        cut_off = await _ask(coordinator)
        await b.connect(first)
        after = await _ask(coordinator)
    assert (before.holds, list(before.missing)) == (snapshot_pb2.HOLDS_TRUE, [])
    assert (cut_off.holds, list(cut_off.missing)) == (snapshot_pb2.HOLDS_UNDETERMINED, ["b"])
    assert (after.holds, list(after.core), list(after.missing)) == (before.holds, list(before.core), [])


async def test_a_report_that_kafka_refuses_is_missing(kafka: KafkaInMemory, tmp_path: Path) -> None:
    a, b = FakeProcess("a"), FakeProcess("b")
    async with collected(tmp_path, give_up_seconds=0.5, assembly_seconds_max=5.0, **LEASE) as coordinator:
        await _join(coordinator, a, b)
        kafka.refuses = b"b"
        verdict = await _ask(coordinator)
        assert list(verdict.missing) == ["b"]
        kafka.refuses = b""
        assert not (await _ask(coordinator)).missing


async def test_without_an_assembly_the_answer_is_undetermined_and_says_why(kafka: KafkaInMemory, tmp_path: Path) -> None:
    kafka.assembling = False
    async with collected(tmp_path, assembly_seconds_max=0.5, **LEASE) as coordinator:
        await _join(coordinator, FakeProcess("a"))
        verdict = await _ask(coordinator)
    assert verdict.holds == snapshot_pb2.HOLDS_UNDETERMINED
    assert "the assembly gave no result for snapshot 1 within 0.5 s" in verdict.witness.text


async def test_an_agent_is_refused_as_a_detector_refuses_it(kafka: KafkaInMemory, tmp_path: Path) -> None:
    first, second = FakeProcess("a"), FakeProcess("a", incarnation=2)
    async with collected(tmp_path, **LEASE) as coordinator:
        await _join(coordinator, first)
        await second.connect(coordinator.collectors[1])
        assert not second.welcomed.is_set()
        assert second.status is grpc.StatusCode.ALREADY_EXISTS
        assert "give each process its own instance name" in second.details
        await second.kill()


async def test_a_report_for_another_process_ends_the_stream_and_is_not_kept(kafka: KafkaInMemory, tmp_path: Path) -> None:
    a, b = FakeProcess("a"), FakeProcess("b")
    async with collected(tmp_path, give_up_seconds=0.5, **LEASE) as coordinator:
        await _join(coordinator, a, b)
        a.change = lambda report: replace(report, process=b.id)
        verdict = await _ask(coordinator)
        assert list(verdict.missing) == ["a"]
        assert a.status is grpc.StatusCode.INVALID_ARGUMENT
    assert kafka.reports() == 1


@pytest.mark.longer
@pytest.mark.parametrize("talks", [True, False], ids=["agents that talk all the time", "agents that say nothing"])
async def test_a_collector_stays_connected(
    talks: bool, kafka: KafkaInMemory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(relay, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(collector_relay, "SILENT_SECONDS_MAX", 3.0)
    a = FakeProcess("a")
    async with collected(tmp_path, **LEASE) as coordinator:
        await _join(coordinator, a)
        until = asyncio.get_running_loop().time() + 4.0  # longer than a silence may be
        while asyncio.get_running_loop().time() < until:
            if talks:
                await a.say(lease=agent_pb2.Lease(colour=0))
            await asyncio.sleep(0.02)
        assert not a.ended.is_set()
        assert not (await _ask(coordinator)).missing
