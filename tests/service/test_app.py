"""The service as a whole: what survives a restart, and what is visible from outside."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from pathlib import Path
from typing import Any, cast

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from detector.ops.logs import Log
from detector.service.app import _expire
from stilltrue.model import SnapshotId
from stilltrue.v1 import detector_pb2, snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED


async def test_an_open_incident_survives_a_restart_and_ids_rise(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        first = await detector.ask()
        async with asyncio.timeout(10):
            while not (kept_by_now := await detector.incidents()):
                await asyncio.sleep(0.02)
        (before,) = kept_by_now
    async with start_detector(tmp_path) as detector:
        (kept,) = await detector.incidents()
        assert (kept.id, kept.HasField("closed")) == (before.id, False)
        await detector.join(a, b)
        second = await detector.ask()
        assert second.snapshot.id > first.snapshot.id
        (same,) = await detector.incidents()
        assert (same.id, same.first_snapshot) == (before.id, before.first_snapshot)
        stuck.cure()
        await detector.ask()
        async with asyncio.timeout(10):  # incidents follow the answer, on a thread of their own
            while not (await detector.incidents())[0].HasField("closed"):
                await asyncio.sleep(0.02)
        old = await detector.stub.GetSnapshot(detector_pb2.GetSnapshotRequest(id=first.snapshot.id))
        assert old.verdicts[0].holds == TRUE


async def test_ids_rise_above_the_colours_of_the_fleet_when_the_archive_is_lost(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a = process("a")
    a.recorder.marked(SnapshotId(5000), 1.0)
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        assert (await detector.ask()).snapshot.id > 5000


async def test_ids_are_reserved_before_they_are_given(
    start_detector: Any, process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detector.service.storage.snapshot_store._IDS_AT_ONCE", 4)
    a = process("a")
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        for _ in range(9):
            given = (await detector.ask()).snapshot.id
        async with asyncio.timeout(5):
            while reserved(tmp_path) <= given:
                await asyncio.sleep(0.02)


def reserved(data: Path) -> int:
    with contextlib.closing(sqlite3.connect(data / "stilltrue.sqlite3")) as database:
        (value,) = database.execute("SELECT value FROM meta WHERE key = 'next_id'").fetchone()
        return int(value)


async def test_health_reflection_metrics_and_pages(start_detector: Any, process: Any, deadlock: Any, tmp_path: Path) -> None:
    a, b = process("a<script>"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        health = health_pb2_grpc.HealthStub(detector.channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(service="stilltrue.v1.AgentService"))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        listing = reflection_pb2.ServerReflectionRequest(list_services="")
        reflection = reflection_pb2_grpc.ServerReflectionStub(detector.channel).ServerReflectionInfo(iter([listing]))
        names = {service.name for service in (await anext(aiter(reflection))).list_services_response.service}
        assert {"stilltrue.v1.AgentService", "stilltrue.v1.DetectorService"} <= names
        assert (await detector.fetch("/healthz"))[0] == 200
        assert (await detector.fetch("/readyz"))[0] == 200
        assert (await detector.fetch("/nothing"))[0] == 404
        assert (await detector.fetch("/"))[0] == 200
        await detector.join(a, b)
        verdict = await detector.ask()
        assert await detector.metric('stilltrue_predicate_state{predicate="deadlock",scope="all",state="true"}') == 1
        assert await detector.metric('stilltrue_incidents_total{predicate="deadlock"}') == 1
        assert await detector.metric('stilltrue_members{state="live"}') == 2
        assert await detector.metric('stilltrue_snapshots_total{outcome="complete"}') == 1
        assert await detector.metric("stilltrue_snapshot_last_complete_timestamp_seconds") > 1e9
        assert await detector.metric("stilltrue_snapshot_duration_seconds_count") == 1
        (incident,) = await detector.incidents()
        for path in ("/", "/incidents", f"/incidents/{incident.id}", f"/snapshots/{verdict.snapshot.id}"):
            status, kind, body = await detector.fetch(path)
            assert (status, kind) == (200, "text/html; charset=utf-8")
            assert "a<script>" not in body
            assert "http://" not in body.replace("http://www.w3.org", "")
        _, _, body = await detector.fetch(f"/incidents/{incident.id}")
        source = f"/api/v1/snapshots/{incident.last_snapshot}/picture?predicate=deadlock&incident={incident.id}"
        assert f'<noscript><img src="{source.replace("&", "&amp;")}" alt="who waits for whom"></noscript>' in body
        for path in (source, f"/snapshots/{verdict.snapshot.id}.svg"):
            _, _, body = await detector.fetch(path)
            assert body.count("<svg ") == 1
            assert "a&lt;script&gt;/X#1" in body
        status, kind, body = await detector.fetch(f"/snapshots/{verdict.snapshot.id}.json")
        assert (status, kind) == (200, "application/json")
        assert json.loads(body)["id"] == verdict.snapshot.id


async def test_leases_are_extended_by_the_time_the_loop_was_blocked() -> None:
    told: list[float] = []

    class Driver:
        def expire_leases(self, stalled_seconds: float) -> None:
            told.append(stalled_seconds)

    task = asyncio.create_task(_expire(cast("Any", Driver()), 0.2, Log("test")))
    async with asyncio.timeout(20):
        while not told:
            await asyncio.sleep(0.01)
        before = len(told)
        time.sleep(1.0)  # the loop is held up on purpose
        while len(told) == before:
            await asyncio.sleep(0.01)
    task.cancel()
    assert told[before] > 0.5
