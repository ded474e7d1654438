"""Kubernetes Events for an incident's pods, over HTTPS, with a fake API server."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from detector.ops.logs import Log
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.membership.members import Member
from detector.service.kubernetes.api import ApiServer, NoClusterError
from detector.service.kubernetes.pod_events import MESSAGE_BYTES_MAX, Pod, PodEvents, event_of
from detector.service.settings import SettingError, Settings
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId
from tests.service.authority import Authority

PATIENCE_SECONDS = 30.0


class Cluster:
    """An API server that has pods by namespace, takes Events, and can be made to fail."""

    def __init__(self, account: Path) -> None:
        self.account = account
        self.pods = {("shop", "orders-0"), ("shop", "stock-0"), ("billing", "stock-0")}
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.names: set[str] = set()
        self.asked: list[str] = []
        self.statuses: list[int] = []
        account.mkdir()
        (account / "token").write_text("first\n")

    async def pod(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        where = request.match_info["namespace"], request.match_info["name"]
        if request.headers["Authorization"] != "Bearer first":
            return web.json_response({}, status=401)
        if where not in self.pods:
            return web.json_response({}, status=404)
        return web.json_response({"metadata": {"name": where[1], "uid": f"uid-{where[0]}-{where[1]}"}})

    async def create(self, request: web.Request) -> web.Response:
        if self.statuses:
            return web.json_response({}, status=self.statuses.pop())
        event = await request.json()
        if event["metadata"]["name"] in self.names:
            return web.json_response({}, status=409)
        self.names.add(event["metadata"]["name"])
        await self.events.put({"in": request.match_info["namespace"], **event})
        return web.json_response(event, status=201)

    async def next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.events.get(), PATIENCE_SECONDS)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    authority, cluster = Authority(tmp_path / "ca", "the cluster's"), Cluster(tmp_path / "account")
    certificate, key = authority.sign("detector")
    (cluster.account / "ca.crt").write_bytes(authority.pem)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}", cluster.pod)
    app.router.add_post("/api/v1/namespaces/{namespace}/events", cluster.create)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0, ssl_context=tls).start()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(runner.addresses[0][1]))
    monkeypatch.setattr(ApiServer.of_cluster.__func__, "__defaults__", (cluster.account,))  # type: ignore[attr-defined]
    yield cluster
    await runner.cleanup()


def incident(*core: str, predicate: str = "deadlock") -> Incident:
    return Incident(
        id="i-4F2c", predicate=predicate, scope="all", core=tuple(map(PartyName, core)), behind=(), opened=1e9, seen=1e9,
        first_snapshot=SnapshotId(3), last_snapshot=SnapshotId(3),
    )  # fmt: skip


def member(name: str, **labels: str) -> Member:
    identity = ProcessId(service=name, instance=ProcessName(name), incarnation=1)
    return Member(
        process=identity, labels=labels, agent="", reactive=False, connected_at=0, heard_at=0, colour=SnapshotId(0), stream=None
    )


@pytest.fixture
async def events(cluster: Cluster) -> AsyncIterator[PodEvents]:
    """Of the namespaces shop and billing."""
    members = {one.name: one for one in (member("orders-0-17", pod="orders-0"), member("stock-0", namespace="billing"))}
    server = ApiServer.of_cluster(os.environ)
    found = PodEvents(server, ["shop", "billing"], members.get, Log("test"), pages="https://s.example/", pause_seconds=0.01)
    task = asyncio.create_task(found.run())
    yield found
    task.cancel()


async def test_each_pod_gets_an_event_at_the_beginning_and_the_end(cluster: Cluster, events: PodEvents) -> None:
    one = incident("orders-0-17/Place#1", "stock-0/Reserve#2", "orders-0-17/Place#3")
    events.changed(one)
    events.changed(replace(one, seen=2e9))  # seen again: nothing new
    first, second = await cluster.next(), await cluster.next()
    assert (first["in"], first["involvedObject"]["uid"]) == ("shop", "uid-shop-orders-0")
    assert (second["in"], second["involvedObject"]["uid"]) == ("billing", "uid-billing-stock-0")
    assert (first["type"], first["reason"], first["count"]) == ("Warning", "Deadlock", 1)
    assert first["message"].startswith("Deadlock i-4F2c: orders-0-17, stock-0 wait for each other")
    assert first["message"].endswith("https://s.example/incidents/i-4F2c")
    assert first["firstTimestamp"] == "2001-09-09T01:46:40Z"
    events.changed(replace(one, closed=1e9 + 60, ending="they went on", last_snapshot=SnapshotId(9)))
    over = await cluster.next()
    assert (over["type"], over["reason"], over["involvedObject"]["name"]) == ("Normal", "DeadlockOver", "orders-0")
    assert "is over: they went on" in over["message"]


async def test_a_process_that_is_not_one_certain_pod_gets_no_event(cluster: Cluster, events: PodEvents) -> None:
    cluster.pods |= {("billing", "orders-0"), ("shop", "web-1")}
    events.changed(
        incident("orders-0-17/X", "db.example/../../secrets/x", "UPPER/X", "nobody/X", "web-1/X", predicate="lost-message")
    )
    told = await cluster.next()
    assert (told["involvedObject"]["name"], told["reason"]) == ("web-1", "LostMessage")
    assert cluster.events.empty()
    assert not [path for path in cluster.asked if "secrets" in path or "UPPER" in path]


async def test_a_failed_event_is_retried_and_a_refused_one_is_not(cluster: Cluster, events: PodEvents) -> None:
    cluster.statuses = [503, 429]
    events.changed(incident("orders-0-17/X"))
    assert (await cluster.next())["involvedObject"]["name"] == "orders-0"
    cluster.statuses = [403]
    events.changed(replace(incident("orders-0-17/X"), closed=2e9, ending="it is over"))
    events.changed(replace(incident("stock-0/X"), id="i-next"))
    assert (await cluster.next())["involvedObject"]["name"] == "stock-0", "the refused one is left, the next one comes"


async def test_an_event_sent_twice_exists_once(cluster: Cluster, events: PodEvents) -> None:
    one = incident("orders-0-17/X")
    events.changed(one)
    await cluster.next()
    server = ApiServer.of_cluster(os.environ)
    again = PodEvents(server, ["shop"], lambda _: member("x", pod="orders-0"), Log("test"), pause_seconds=0.01)
    task = asyncio.create_task(again.run())
    again.changed(one)
    again.changed(replace(one, id="i-other"))
    assert (await cluster.next())["metadata"]["name"].startswith("orders-0.i-other")
    task.cancel()


def test_an_events_size_and_name_are_valid_in_kubernetes() -> None:
    long = event_of(
        incident(*(f"{'n' * 200}-{at}/X" for at in range(9))),
        Pod(namespace="shop", name="p" * 250, uid="u"),
        "https://s.example",
    )
    assert len(long["message"].encode()) <= MESSAGE_BYTES_MAX
    assert long["message"].endswith("... https://s.example/incidents/i-4F2c")
    assert len(long["metadata"]["name"]) <= 253
    assert long["metadata"]["name"] == long["metadata"]["name"].lower()
    json.dumps(long)


def test_pod_events_are_off_by_default_and_need_a_cluster() -> None:
    assert Settings().event_namespaces == ()
    assert Settings(kubernetes_events="shop, billing").event_namespaces == ("shop", "billing")
    with pytest.raises(SettingError, match="'Shop/x' is not a valid namespace name"):
        Settings(kubernetes_events="Shop/x")
    with pytest.raises(NoClusterError, match=r"^--kubernetes-events works only in a Kubernetes pod$"):
        ApiServer.of_cluster({}, wanted="--kubernetes-events", instead="")


async def test_the_detector_sends_events_for_a_deadlock(
    cluster: Cluster, start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("orders-0", service="orders"), process("b", service="stock", labels={"pod": "stock-0", "namespace": "shop"})
    stuck = deadlock(a, b)
    async with start_detector(tmp_path / "data", kubernetes_events="shop") as detector:
        await detector.join(a, b)
        await detector.ask()
        assert {(await cluster.next())["involvedObject"]["name"] for _ in range(2)} == {"orders-0", "stock-0"}
        stuck.cure()
        await detector.ask()
        assert (await cluster.next())["reason"] == "DeadlockOver"
