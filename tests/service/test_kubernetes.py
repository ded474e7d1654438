"""The pods of a Kubernetes Service are expected one by one, as listed by the API server."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from detector.ops.logs import Log
from detector.service.detection.membership.expected import Expected, Pods
from detector.service.kubernetes.api import ApiServer, NoClusterError
from detector.service.kubernetes.service_pods import ServicePods
from detector.service.settings import Expectation
from stilltrue.model import ProcessName, ProcessState
from stilltrue.v1 import snapshot_pb2
from tests.service.authority import Authority

TRUE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_UNDETERMINED
PATIENCE_SECONDS = 10.0
ORDERS = "shop/orders"


class Api:
    """An API server that knows EndpointSlices, a page of one at a time, and asks for the token of now."""

    def __init__(self, account: Path) -> None:
        self.account = account
        self.slices: list[list[str]] = []
        self.status = 200
        self.body: Any = None
        self.asked: list[str] = []
        self.token("first")

    def token(self, token: str) -> None:
        self.account.mkdir(exist_ok=True)
        (self.account / "token").write_text(f"{token}\n")
        self._token = token

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(str(request.rel_url))
        if request.headers.get("Authorization") != f"Bearer {self._token}":
            return web.json_response({}, status=401)
        if self.status != 200 or self.body is not None:
            return web.json_response(self.body, status=self.status)
        assert request.query["labelSelector"] == "kubernetes.io/service-name=orders"
        at = int(request.query.get("continue", "0"))
        endpoints = [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": False}, "targetRef": {"kind": "Pod", "name": name}}
            for name in (self.slices[at] if self.slices else [])
        ]
        more = {"continue": str(at + 1)} if at + 1 < len(self.slices) else {}
        items = [{"endpoints": [*endpoints, {"addresses": ["10.0.0.9"]}]}, {"endpoints": None}]
        return web.json_response({"metadata": more, "items": items})


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca", "the cluster's")


@pytest.fixture
async def api(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    api = Api(tmp_path / "account")
    certificate, key = authority.sign("detector")
    (api.account / "ca.crt").write_bytes(authority.pem)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_get("/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", api.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "localhost", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
    monkeypatch.setattr(ApiServer.of_cluster.__func__, "__defaults__", (api.account,))  # type: ignore[attr-defined]
    yield api
    await runner.cleanup()


@pytest.fixture
async def reading(api: Api) -> AsyncIterator[Callable[[Callable[[Pods], bool]], Any]]:
    """Waits for a reading of which something holds."""
    found: asyncio.Queue[Pods] = asyncio.Queue()

    def keep(service: str, pods: Pods) -> None:
        assert service == ORDERS
        found.put_nowait(pods)

    server = ApiServer.of_cluster(os.environ)
    pods = ServicePods(server, [ORDERS], keep, Log("test"), read_seconds=0.02, stale_seconds=0.2)
    task = asyncio.create_task(pods.run())

    async def until(holds: Callable[[Pods], bool]) -> Pods:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds(one := await found.get()):
                assert not task.done()
        return one

    yield until
    task.cancel()


async def test_pods_are_read_page_by_page_and_again_when_they_change(api: Api, reading: Any) -> None:
    api.slices = [["orders-a", "orders-b"], ["orders-c"]]
    assert (await reading(lambda pods: bool(pods.names))).names == {"orders-a", "orders-b", "orders-c"}
    api.slices = [["orders-b"]]
    await reading(lambda pods: pods.names == {"orders-b"})
    api.token("second")  # it rotates
    api.slices = [["orders-d"]]
    await reading(lambda pods: pods.names == {"orders-d"})


async def test_a_service_without_pods_is_unknown(api: Api, reading: Any) -> None:
    assert "check its name" in (await reading(lambda pods: bool(pods.unknown))).unknown


async def test_known_pods_stay_for_a_while_if_the_api_server_does_not_answer(api: Api, reading: Any) -> None:
    api.slices = [["orders-a"]]
    await reading(lambda pods: bool(pods.names))
    api.status = 403
    pods = await reading(lambda pods: bool(pods.unknown))
    assert "403" in pods.unknown
    assert "may not list endpointslices" in pods.unknown
    api.status = 200
    await reading(lambda pods: pods.names == {"orders-a"})


@pytest.mark.parametrize("body", [[], {}, {"items": 3}, {"items": [{"endpoints": [3]}]}, "items", {"items": ["x"]}])
async def test_a_nonsensical_answer_is_ignored(api: Api, reading: Any, body: Any) -> None:
    api.body = body
    assert (await reading(lambda pods: bool(pods.unknown))).names == frozenset()


async def test_an_api_server_with_an_unknown_certificate_is_refused(api: Api, tmp_path: Path, reading: Any) -> None:
    (api.account / "ca.crt").write_bytes(Authority(tmp_path / "other", "somebody else's").pem)
    found: asyncio.Queue[Pods] = asyncio.Queue()
    server = ApiServer.of_cluster(os.environ)
    pods = ServicePods(server, [ORDERS], lambda _, pods: found.put_nowait(pods), Log("test"))
    task = asyncio.create_task(pods.run())
    assert "ertificate" in (await asyncio.wait_for(found.get(), PATIENCE_SECONDS)).unknown
    task.cancel()


def test_outside_of_a_cluster_pods_are_an_error() -> None:
    with pytest.raises(NoClusterError, match="works only in a Kubernetes pod; give a number"):
        ApiServer.of_cluster({})
    assert ApiServer.of_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1"}).url == "https://[fd00::1]:443"


def test_pods_and_names_are_expected_together() -> None:
    expected = Expected(
        {"all": Expectation(names=frozenset({"db"}), services=frozenset({ORDERS})), "some": Expectation(count=2)}
    )
    assert expected.services == [ORDERS]
    joined = {
        ProcessName("orders-a"): ProcessState(service="orders"),
        ProcessName("orders-b-17"): ProcessState(service="orders", labels={"pod": "orders-b"}),
    }
    assert (
        expected.doubt("all", joined) == f"0 of 1 expected have joined; the pods of Service {ORDERS} are unknown: not read yet"
    )
    expected.found(ORDERS, Pods(names=frozenset({"orders-a", "orders-b", "orders-c"})))
    assert (expected.doubt("all", joined), expected.lacking("all", joined)) == ("2 of 4 expected have joined", 2)
    joined |= {ProcessName("orders-c"): ProcessState(service="orders"), ProcessName("db"): ProcessState(service="db")}
    assert (expected.doubt("all", joined), expected.doubt("some", joined), expected.doubt("other", {})) == ("", "", "")
    assert ("all" in expected, "other" in expected) == (True, False)


async def test_without_a_token_the_pods_are_not_known(api: Api, reading: Any) -> None:
    (api.account / "token").unlink()
    await reading(lambda pods: "FileNotFoundError" in pods.unknown)


async def test_termination_waits_for_every_pod_of_the_service(
    api: Api, start_detector: Any, process: Any, tmp_path: Path
) -> None:
    api.slices = [["orders-a", "orders-b"]]
    a, b = process("orders-a", service="orders"), process("orders-b-17", service="orders", labels={"pod": "orders-b"})
    async with start_detector(tmp_path, expected={"all": Expectation(services=frozenset({ORDERS}))}) as detector:
        await detector.join(a)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "1 of 2 expected have joined" not in (verdict := await detector.ask("termination")).witness.text:
                assert verdict.holds == UNDETERMINED
        assert (verdict.coverage.members, verdict.coverage.expected) == (1, 2)
        await detector.join(b)
        assert (await detector.ask("termination")).holds == TRUE
